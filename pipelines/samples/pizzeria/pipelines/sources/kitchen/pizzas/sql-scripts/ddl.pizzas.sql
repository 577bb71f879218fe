-- The menu. Pizza 0 belongs to closing events.
CREATE TABLE pizzas (
  id INT,
  name STRING,
  price_cents INT
)
USING json
LOCATION 'reference/pizzas';
