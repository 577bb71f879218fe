-- An order is paid within 20 s, or not at all.
INSERT INTO int_paid_orders
SELECT o.id AS order_id, p.id AS payment_id, o.channel, p.method, p.amount_cents, o.order_time, p.paid_at
FROM STREAM src_orders WATERMARK order_time DELAY OF INTERVAL 20 SECONDS AS o
JOIN STREAM src_payments WATERMARK paid_at DELAY OF INTERVAL 20 SECONDS AS p
  ON p.order_id = o.id
  AND p.paid_at >= o.order_time
  AND p.paid_at <= o.order_time + INTERVAL 20 SECONDS;
