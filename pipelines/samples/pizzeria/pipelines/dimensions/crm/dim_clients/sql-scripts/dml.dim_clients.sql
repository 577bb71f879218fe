-- The newest row of a client is its current state.
INSERT INTO dim_clients
SELECT DISTINCT client_id, id AS change_id, trim(name) AS name, upper(town) AS town, changed_at
FROM STREAM client_changes WATERMARK changed_at DELAY OF INTERVAL 20 SECONDS
WHERE name IS NOT NULL;
