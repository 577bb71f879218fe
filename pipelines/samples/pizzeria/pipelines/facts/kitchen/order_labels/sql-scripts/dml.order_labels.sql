-- The printer takes four files at a time: it queues in a burst and drains after it.
INSERT INTO order_labels
SELECT id AS order_id, order_time,
  concat_ws(' ', '#', id, channel, concat(size(pizzas), ' pizzas')) AS label,
  sha2(concat_ws('/', id, order_time), 256) AS code
FROM STREAM src_orders WITH ('maxFilesPerTrigger'='4');
