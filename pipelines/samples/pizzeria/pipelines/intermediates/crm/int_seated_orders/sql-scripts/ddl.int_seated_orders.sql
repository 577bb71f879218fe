CREATE TABLE int_seated_orders (
  order_id BIGINT,
  assignment_id BIGINT,
  client_id BIGINT,
  table_name STRING,
  guests INT,
  order_time TIMESTAMP
)
USING parquet;
