CREATE TABLE tickets_delivery (
  order_id BIGINT,
  order_time TIMESTAMP,
  pizzas INT
)
USING parquet;
