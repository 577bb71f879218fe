"""SQL text before parsing: tokens, data types, statement headers, and checks against Spark's grammar."""
