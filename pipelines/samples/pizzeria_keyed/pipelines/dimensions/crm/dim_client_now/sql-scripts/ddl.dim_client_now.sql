CREATE TABLE dim_client_now (
  client_id BIGINT,
  change_id BIGINT,
  name STRING,
  town STRING,
  changed_at TIMESTAMP
)
USING parquet;
