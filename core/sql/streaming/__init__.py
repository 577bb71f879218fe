"""Streaming semantics of a query: where it streams, which state Spark keeps, and what Spark rejects."""
