"""Spark Connect behind the agent's ports: sessions, deadlines, queries, catalog, Spark's analysis, error kinds."""
