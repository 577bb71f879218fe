-- Every change of a client, read from the changes of its keyed table.
INSERT INTO fct_client_moves
SELECT client_id, town, _change_type AS change, changed_at
FROM STREAM dim_client_now
WHERE _change_type <> 'update_preimage';
