-- Read by sales and by the kitchen.
INSERT INTO int_order_items
SELECT id AS order_id, line, pizza_id, status, order_time
FROM STREAM src_orders
LATERAL VIEW posexplode(pizzas) items AS line, pizza_id;
