"""SQL text before it is parsed: tokens, data types, statement headers, and what Spark's grammar refuses."""
