"""Streaming Spark SQL read once into values; the only user of sqlglot."""
