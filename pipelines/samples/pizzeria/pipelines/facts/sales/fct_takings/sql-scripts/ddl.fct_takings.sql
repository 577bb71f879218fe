CREATE TABLE fct_takings (
  window_start TIMESTAMP,
  window_end TIMESTAMP,
  method STRING,
  payments BIGINT,
  taken_cents BIGINT
)
USING parquet;
