"""The streaming source of a PostgreSQL database's changes, which the pool's Python processes run without Headgate."""
