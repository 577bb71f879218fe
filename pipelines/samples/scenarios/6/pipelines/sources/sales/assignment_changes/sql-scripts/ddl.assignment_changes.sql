CREATE TABLE assignment_changes (
  id INT, client_id INT, table_id INT,
  _op STRING, _committed_at TIMESTAMP, _lsn BIGINT, _xid BIGINT
) USING kafka OPTIONS (
  'kafka.bootstrap.servers' = '127.0.0.1:@KAFKA@', subscribe = 'pg.public.table_assignment', 'value.format' = 'debezium'
);
