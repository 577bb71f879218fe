"""Unit tests of statements on a Spark server of their own: fixtures as files, micro-batches by part, rows read."""
