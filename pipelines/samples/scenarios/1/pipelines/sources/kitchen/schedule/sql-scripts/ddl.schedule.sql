-- The scheduler lands a file every ten seconds: the interval whose orders are due.
CREATE TABLE schedule (from_at TIMESTAMP, until_at TIMESTAMP) USING json LOCATION 'landing/schedule';
