CREATE TABLE fct_kitchen_load (
  window_start TIMESTAMP,
  window_end TIMESTAMP,
  pizza_id INT,
  pizzas BIGINT
)
USING parquet;
