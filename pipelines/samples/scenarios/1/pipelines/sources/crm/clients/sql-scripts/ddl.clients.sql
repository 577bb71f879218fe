CREATE TABLE clients (
  id INT, name STRING
) USING jdbc OPTIONS (
  url 'jdbc:postgresql://127.0.0.1:@POSTGRES@/postgres', user 'reader', dbtable 'public.clients'
);
