CREATE TABLE vw_busy_windows (
  window_start TIMESTAMP,
  pizza_id INT,
  pizzas BIGINT
)
USING parquet;
