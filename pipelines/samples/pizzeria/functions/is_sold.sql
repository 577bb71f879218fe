-- Whether an order of this status is sold.
CREATE FUNCTION is_sold(status STRING)
RETURNS BOOLEAN
RETURN status <> 'void';
