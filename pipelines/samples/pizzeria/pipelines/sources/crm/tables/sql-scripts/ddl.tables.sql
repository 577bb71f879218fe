-- The dining room. Table 0 belongs to closing events.
CREATE TABLE tables (
  id INT,
  name STRING,
  seats INT
)
USING csv
OPTIONS (header 'true')
LOCATION 'reference/tables';
