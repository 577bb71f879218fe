CREATE TABLE order_changes (
  id INT, table_assignment_id INT, pizzas ARRAY<INT>, revision INT,
  _op STRING, _committed_at TIMESTAMP, _lsn BIGINT, _xid BIGINT,
  _transaction STRUCT<id: STRING, total_order: BIGINT>
) USING kafka OPTIONS (
  'kafka.bootstrap.servers' = '127.0.0.1:@KAFKA@', subscribe = 'pg.public.orders', 'value.format' = 'debezium'
);
