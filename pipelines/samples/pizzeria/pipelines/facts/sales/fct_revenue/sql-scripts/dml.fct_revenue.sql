INSERT INTO fct_revenue
SELECT window.start AS window_start, window.end AS window_end, pizza_name,
  count(*) AS items, sum(price_cents) AS revenue_cents
FROM STREAM int_priced_items WATERMARK order_time DELAY OF INTERVAL 20 SECONDS
GROUP BY window(order_time, '1 minute'), pizza_name;
