-- The printer takes four files at a time: a burst of orders queues here, and drains afterwards.
INSERT INTO order_labels
SELECT id AS order_id, order_time,
  concat_ws(' ', '#', id, channel, concat(size(pizzas), ' pizzas')) AS label,
  sha2(concat_ws('/', id, order_time), 256) AS code
FROM STREAM src_orders WITH ('maxFilesPerTrigger'='4');
