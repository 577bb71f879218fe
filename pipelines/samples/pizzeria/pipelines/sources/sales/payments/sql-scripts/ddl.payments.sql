-- Written by the card reader and the till, within 15 s of the order.
CREATE TABLE payments (
  id BIGINT,
  order_id BIGINT,
  method STRING,
  amount_cents BIGINT,
  paid_at TIMESTAMP
)
USING json
LOCATION 'landing/payments';
