-- A router: three statements over one input, deployed and swapped as one.
INSERT INTO tickets_dine_in
SELECT id AS order_id, order_time, size(pizzas) AS pizzas
FROM STREAM src_orders
WHERE channel = 'dine_in' AND status <> 'void';

INSERT INTO tickets_takeaway
SELECT id AS order_id, order_time, size(pizzas) AS pizzas
FROM STREAM src_orders
WHERE channel = 'takeaway' AND status <> 'void';

INSERT INTO tickets_delivery
SELECT id AS order_id, order_time, size(pizzas) AS pizzas
FROM STREAM src_orders
WHERE channel = 'delivery' AND status <> 'void';
