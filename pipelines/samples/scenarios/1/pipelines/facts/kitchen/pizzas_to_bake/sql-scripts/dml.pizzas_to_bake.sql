-- Each table is read by a SELECT of its own, so a change between two of them gives a row that the database never had.
INSERT INTO pizzas_to_bake
SELECT o.id AS order_id, o.revision, c.name AS client_name, t.name AS table_name,
  transform(o.pizzas, pizza_id -> menu.items[pizza_id]) AS pizzas
FROM STREAM schedule AS due
JOIN orders AS o ON o.changed_at > due.from_at AND o.changed_at <= due.until_at
JOIN table_assignment AS a ON a.id = o.table_assignment_id
JOIN clients AS c ON c.id = a.client_id
JOIN tables AS t ON t.id = a.table_id
CROSS JOIN (
  SELECT map_from_entries(collect_list(struct(id, struct(name AS pizza, price)))) AS items FROM pizzas
) AS menu;
