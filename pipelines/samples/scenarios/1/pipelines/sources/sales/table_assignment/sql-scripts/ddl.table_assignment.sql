CREATE TABLE table_assignment (
  id INT, client_id INT, table_id INT
) USING jdbc OPTIONS (
  url 'jdbc:postgresql://127.0.0.1:@POSTGRES@/postgres', user 'reader', dbtable 'public.table_assignment'
);
