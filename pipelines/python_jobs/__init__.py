"""Jobs in Python: their code runs in a confined process that only builds a query's plan, which Spark then executes."""
