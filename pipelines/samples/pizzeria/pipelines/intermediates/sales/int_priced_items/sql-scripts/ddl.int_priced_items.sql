CREATE TABLE int_priced_items (
  order_id BIGINT,
  line INT,
  pizza_id INT,
  pizza_name STRING,
  price_cents INT,
  order_time TIMESTAMP
)
USING parquet;
