CREATE TABLE pizzas (
  id INT, name STRING, price DECIMAL(6,2)
) USING jdbc OPTIONS (
  url 'jdbc:postgresql://127.0.0.1:@POSTGRES@/postgres', user 'reader', dbtable 'public.pizzas'
);
