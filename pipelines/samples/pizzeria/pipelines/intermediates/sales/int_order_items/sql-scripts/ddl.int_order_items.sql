CREATE TABLE int_order_items (
  order_id BIGINT,
  line INT,
  pizza_id INT,
  status STRING,
  order_time TIMESTAMP
)
USING parquet;
