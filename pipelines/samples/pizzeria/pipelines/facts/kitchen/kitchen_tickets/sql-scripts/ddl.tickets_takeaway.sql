CREATE TABLE tickets_takeaway (
  order_id BIGINT,
  order_time TIMESTAMP,
  pizzas INT
)
USING parquet;
