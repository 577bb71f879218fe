-- Void orders are not sold.
INSERT INTO int_priced_items
SELECT i.order_id, i.line, i.pizza_id, p.name AS pizza_name, p.price_cents, i.order_time
FROM STREAM int_order_items AS i
JOIN pizzas AS p ON p.id = i.pizza_id
WHERE is_sold(i.status);
