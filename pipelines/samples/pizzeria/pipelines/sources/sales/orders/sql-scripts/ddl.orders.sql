-- Lands from the tills: late by 10 s at most, sometimes twice.
CREATE TABLE orders (
  id BIGINT,
  assignment_id BIGINT,
  channel STRING,
  status STRING,
  order_time TIMESTAMP,
  pizzas ARRAY<INT>
)
USING json
LOCATION 'landing/orders';
