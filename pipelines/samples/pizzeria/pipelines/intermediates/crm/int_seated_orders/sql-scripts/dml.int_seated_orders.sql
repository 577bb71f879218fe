-- A table orders within two minutes of being seated.
INSERT INTO int_seated_orders
SELECT o.id AS order_id, o.assignment_id, s.client_id, s.table_name, s.guests, o.order_time
FROM STREAM src_orders WATERMARK order_time DELAY OF INTERVAL 20 SECONDS AS o
JOIN STREAM dim_seatings WATERMARK time_in DELAY OF INTERVAL 20 SECONDS AS s
  ON s.assignment_id = o.assignment_id
  AND o.order_time >= s.time_in
  AND o.order_time <= s.time_in + INTERVAL 2 MINUTES;
