CREATE TABLE src_orders (
  id BIGINT,
  assignment_id BIGINT,
  channel STRING,
  status STRING,
  order_time TIMESTAMP,
  pizzas ARRAY<INT>
)
USING parquet;
