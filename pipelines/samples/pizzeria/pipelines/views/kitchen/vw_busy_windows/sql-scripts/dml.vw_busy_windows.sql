INSERT INTO vw_busy_windows
SELECT window_start, pizza_id, pizzas
FROM STREAM fct_kitchen_load
WHERE pizzas >= 10;
