"""Spark Connect behind the agent's ports: sessions, call deadlines, queries, catalog, listener events, errors."""
