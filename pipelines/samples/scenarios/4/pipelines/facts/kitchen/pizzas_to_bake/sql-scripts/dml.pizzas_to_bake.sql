-- The application has written each order into an outbox, in the transaction that changed it.
INSERT INTO pizzas_to_bake
SELECT order_id, revision, client_name, table_name, pizzas FROM STREAM order_events;
