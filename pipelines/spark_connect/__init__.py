"""Spark Connect, implementing the agent's ports: sessions, deadlines, queries, catalog, analysis, error kinds."""
