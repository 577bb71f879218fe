CREATE TABLE order_changes (id INT, revision INT, _op STRING)
USING postgres_changes OPTIONS (
  url 'jdbc:postgresql://127.0.0.1:@POSTGRES@/postgres', user 'reader', dbtable 'public.orders',
  publication 'restaurant'
);
