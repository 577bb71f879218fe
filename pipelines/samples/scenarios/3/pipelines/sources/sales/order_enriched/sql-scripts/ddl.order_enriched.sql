CREATE TABLE order_enriched (
  order_id INT, revision INT, client_name STRING, table_name STRING, pizzas STRING
) USING jdbc OPTIONS (
  url 'jdbc:postgresql://127.0.0.1:@POSTGRES@/postgres', user 'reader', dbtable 'public.order_enriched'
);
