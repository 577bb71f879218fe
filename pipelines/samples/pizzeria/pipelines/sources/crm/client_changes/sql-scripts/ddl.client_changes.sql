-- Every change of a client is an event; no row is ever updated.
CREATE TABLE client_changes (
  id BIGINT,
  client_id BIGINT,
  name STRING,
  town STRING,
  changed_at TIMESTAMP
)
USING json
LOCATION 'landing/client_changes';
