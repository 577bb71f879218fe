-- Who was seated where, and when.
CREATE TABLE table_assignments (
  id BIGINT,
  table_id INT,
  client_id BIGINT,
  guests INT,
  time_in TIMESTAMP
)
USING json
LOCATION 'landing/table_assignments';
