CREATE TABLE src_payments (
  id BIGINT,
  order_id BIGINT,
  method STRING,
  amount_cents BIGINT,
  paid_at TIMESTAMP
)
USING parquet;
