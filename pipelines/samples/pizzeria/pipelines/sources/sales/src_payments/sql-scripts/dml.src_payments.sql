-- Every payment once.
INSERT INTO src_payments
SELECT DISTINCT id, order_id, method, amount_cents, paid_at
FROM STREAM payments WATERMARK paid_at DELAY OF INTERVAL 20 SECONDS;
