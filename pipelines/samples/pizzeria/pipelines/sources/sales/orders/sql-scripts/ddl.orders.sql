-- Written by the tills: at most 10 s late, sometimes twice.
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
