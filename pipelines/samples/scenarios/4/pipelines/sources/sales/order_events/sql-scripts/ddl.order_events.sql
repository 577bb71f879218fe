CREATE TABLE order_events (
  order_id INT, revision INT, client_name STRING, table_name STRING,
  pizzas ARRAY<STRUCT<pizza: STRING, price: DECIMAL(6,2)>>
) USING kafka OPTIONS (
  'kafka.bootstrap.servers' = '127.0.0.1:@KAFKA@', subscribe = 'outbox.event.order'
);
