"""Parsing of streaming Spark SQL into frozen values; the only package that uses sqlglot."""
