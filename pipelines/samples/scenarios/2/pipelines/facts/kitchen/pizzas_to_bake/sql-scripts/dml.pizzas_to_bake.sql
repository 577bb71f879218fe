-- The view is read by one SELECT, and joins all tables as they are at that moment.
INSERT INTO pizzas_to_bake
SELECT o.order_id, o.revision, o.client_name, o.table_name,
  from_json(o.pizzas, 'ARRAY<STRUCT<pizza: STRING, price: DECIMAL(6,2)>>') AS pizzas
FROM STREAM schedule AS due
JOIN order_enriched AS o ON o.changed_at > due.from_at AND o.changed_at <= due.until_at;
