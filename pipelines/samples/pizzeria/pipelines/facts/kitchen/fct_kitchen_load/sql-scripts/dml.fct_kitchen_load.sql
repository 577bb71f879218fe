INSERT INTO fct_kitchen_load
SELECT window.start AS window_start, window.end AS window_end, pizza_id, count(*) AS pizzas
FROM STREAM int_order_items WATERMARK order_time DELAY OF INTERVAL 20 SECONDS
GROUP BY window(order_time, '30 seconds'), pizza_id;
