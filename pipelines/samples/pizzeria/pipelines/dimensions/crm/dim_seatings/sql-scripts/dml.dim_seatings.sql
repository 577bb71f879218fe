-- Every seating once, with the name of its table.
INSERT INTO dim_seatings
SELECT DISTINCT a.id AS assignment_id, a.client_id, t.name AS table_name, a.guests, a.time_in
FROM STREAM table_assignments WATERMARK time_in DELAY OF INTERVAL 20 SECONDS AS a
JOIN tables AS t ON t.id = a.table_id;
