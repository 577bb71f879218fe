CREATE TABLE fct_client_moves (
  client_id BIGINT,
  town STRING,
  change STRING,
  changed_at TIMESTAMP
)
USING parquet;
