CREATE TABLE client_changes (
  id INT, name STRING,
  _op STRING, _committed_at TIMESTAMP, _lsn BIGINT, _xid BIGINT
) USING kafka OPTIONS (
  'kafka.bootstrap.servers' = '127.0.0.1:@KAFKA@', subscribe = 'pg.public.clients', 'value.format' = 'debezium'
);
