"""Runs unit tests of statements on a separate Spark server, and compares the rows written with those expected."""
