CREATE TABLE pizzas_to_bake (
  order_id INT,
  revision INT,
  client_name STRING,
  table_name STRING,
  pizzas ARRAY<STRUCT<pizza: STRING, price: DECIMAL(6,2)>>
)
USING parquet;
