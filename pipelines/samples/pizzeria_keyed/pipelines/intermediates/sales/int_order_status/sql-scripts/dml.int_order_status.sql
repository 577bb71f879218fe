-- The latest status of an order: from the till, then from its payment.
INSERT INTO int_order_status
SELECT id AS order_id, status, order_time AS changed_at FROM STREAM orders WHERE id > 0
UNION ALL
SELECT order_id, concat('paid, ', method) AS status, paid_at AS changed_at FROM STREAM payments WHERE id > 0;
