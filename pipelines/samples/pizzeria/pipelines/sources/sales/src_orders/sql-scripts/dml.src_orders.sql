-- Every order once: the tills may repeat an order, byte for byte.
INSERT INTO src_orders
SELECT DISTINCT id, assignment_id, channel, status, order_time, pizzas
FROM STREAM orders WATERMARK order_time DELAY OF INTERVAL 20 SECONDS;
