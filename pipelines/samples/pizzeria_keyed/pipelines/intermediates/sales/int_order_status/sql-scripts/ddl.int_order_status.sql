CREATE TABLE int_order_status (
  order_id BIGINT,
  status STRING,
  changed_at TIMESTAMP
)
USING parquet;
