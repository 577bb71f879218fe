CREATE TABLE tickets_dine_in (
  order_id BIGINT,
  order_time TIMESTAMP,
  pizzas INT
)
USING parquet;
