CREATE TABLE order_labels (
  order_id BIGINT,
  order_time TIMESTAMP,
  label STRING,
  code STRING
)
USING parquet;
