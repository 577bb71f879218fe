"""Reading of streaming Spark SQL into values; the only package that uses sqlglot."""
