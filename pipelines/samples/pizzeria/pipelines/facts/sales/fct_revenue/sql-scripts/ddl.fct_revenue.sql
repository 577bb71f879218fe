CREATE TABLE fct_revenue (
  window_start TIMESTAMP,
  window_end TIMESTAMP,
  pizza_name STRING,
  items BIGINT,
  revenue_cents BIGINT
)
USING parquet;
