CREATE TABLE orders (
  id INT, table_assignment_id INT, pizzas ARRAY<INT>, revision INT, changed_at TIMESTAMP
) USING jdbc OPTIONS (
  url 'jdbc:postgresql://127.0.0.1:@POSTGRES@/postgres', user 'reader', dbtable 'public.orders'
);
