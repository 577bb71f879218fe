CREATE TABLE dim_seatings (
  assignment_id BIGINT,
  client_id BIGINT,
  table_name STRING,
  guests INT,
  time_in TIMESTAMP
)
USING parquet;
