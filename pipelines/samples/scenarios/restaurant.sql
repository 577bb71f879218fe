-- The database of the restaurant. Row 0 of each table is touched by beat(), and belongs to no order.
CREATE TABLE clients (id int PRIMARY KEY, name text NOT NULL);
CREATE TABLE tables (id int PRIMARY KEY, name text NOT NULL);
CREATE TABLE pizzas (id int PRIMARY KEY, name text NOT NULL, price numeric(6,2) NOT NULL);
CREATE TABLE table_assignment (
  id int PRIMARY KEY, client_id int NOT NULL, table_id int NOT NULL, in_time timestamptz NOT NULL, out_time timestamptz
);
CREATE TABLE orders (
  id int PRIMARY KEY, table_assignment_id int NOT NULL, order_time timestamptz NOT NULL, pizzas int[] NOT NULL,
  revision int NOT NULL, changed_at timestamptz NOT NULL
);
CREATE TABLE orders_outbox (
  id uuid PRIMARY KEY DEFAULT gen_random_uuid(), aggregatetype text, aggregateid text, type text, payload jsonb
);

CREATE VIEW order_enriched AS
SELECT o.id AS order_id, o.revision, o.changed_at, c.name AS client_name, t.name AS table_name,
  json_agg(json_build_object('pizza', p.name, 'price', p.price) ORDER BY ordered.line) AS pizzas
FROM orders AS o
JOIN table_assignment AS a ON a.id = o.table_assignment_id
JOIN clients AS c ON c.id = a.client_id
JOIN tables AS t ON t.id = a.table_id
CROSS JOIN unnest(o.pizzas) WITH ORDINALITY AS ordered (pizza_id, line)
JOIN pizzas AS p ON p.id = ordered.pizza_id
GROUP BY o.id, c.name, t.name;

INSERT INTO clients VALUES (0, '-');
INSERT INTO tables SELECT n, CASE n WHEN 0 THEN '-' ELSE 'Table ' || n END FROM generate_series(0, 8) AS n;
INSERT INTO pizzas VALUES
  (0, '-', 0), (1, 'Margherita', 7.50), (2, 'Diavola', 9.00), (3, 'Hawaii', 9.50), (4, 'Quattro Formaggi', 10.50);
INSERT INTO table_assignment VALUES (0, 0, 0, now(), NULL);
INSERT INTO orders VALUES (0, -1, now(), '{0}', 0, now());

-- A change in each table, so that the watermark of a table in which nothing changes does not hold back the others.
CREATE FUNCTION beat() RETURNS void LANGUAGE sql SECURITY DEFINER AS $$
  UPDATE clients SET name = name WHERE id = 0;
  UPDATE tables SET name = name WHERE id = 0;
  UPDATE pizzas SET name = name WHERE id = 0;
  UPDATE table_assignment SET in_time = in_time WHERE id = 0;
  UPDATE orders SET changed_at = changed_at WHERE id = 0;
$$;

CREATE PUBLICATION restaurant FOR TABLE clients, tables, pizzas, table_assignment, orders, orders_outbox;
DO $$ BEGIN
  CREATE ROLE restaurant LOGIN;
  CREATE ROLE reader LOGIN REPLICATION;
EXCEPTION WHEN duplicate_object THEN
  NULL;  -- Roles belong to all databases of the cluster.
END $$;
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO restaurant;
GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader;
