-- A change without a name deletes a client who wants to be forgotten.
INSERT INTO dim_client_now
SELECT client_id, id AS change_id, trim(name) AS name, upper(town) AS town, changed_at
FROM STREAM client_changes WHERE client_id > 0;
