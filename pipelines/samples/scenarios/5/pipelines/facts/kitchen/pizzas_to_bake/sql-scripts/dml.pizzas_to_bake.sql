-- The application has written each order as a message into the log, in the transaction that changed it.
INSERT INTO pizzas_to_bake
SELECT sent.order_id, sent.revision, sent.client_name, sent.table_name, sent.pizzas
FROM (
  SELECT from_json(_content, 'order_id INT, revision INT, client_name STRING, table_name STRING,
    pizzas ARRAY<STRUCT<pizza: STRING, price: DECIMAL(6,2)>>') AS sent
  FROM STREAM order_messages
);
