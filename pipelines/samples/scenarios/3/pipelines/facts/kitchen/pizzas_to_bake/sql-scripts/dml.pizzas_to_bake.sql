-- The view is read by each batch, so an order shows what the database contains by then, and not what it contained when
-- this revision was committed.
INSERT INTO pizzas_to_bake
SELECT o.id AS order_id, o.revision, v.client_name, v.table_name,
  from_json(v.pizzas, 'ARRAY<STRUCT<pizza: STRING, price: DECIMAL(6,2)>>') AS pizzas
FROM STREAM order_changes AS o
JOIN order_enriched AS v ON v.order_id = o.id
WHERE o._op <> 'd';
