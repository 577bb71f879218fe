CREATE TABLE int_paid_orders (
  order_id BIGINT,
  payment_id BIGINT,
  channel STRING,
  method STRING,
  amount_cents BIGINT,
  order_time TIMESTAMP,
  paid_at TIMESTAMP
)
USING parquet;
