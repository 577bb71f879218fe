-- An order with its payment may arrive 20 s late; the watermark waits 30 s.
INSERT INTO fct_takings
SELECT window.start AS window_start, window.end AS window_end, method,
  count(*) AS payments, sum(amount_cents) AS taken_cents
FROM STREAM int_paid_orders WATERMARK paid_at DELAY OF INTERVAL 30 SECONDS
GROUP BY window(paid_at, '30 seconds'), method;
