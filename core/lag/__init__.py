"""Lag of a statement: how far it is behind, its trend, whether that is a fault, and whether its query is live."""
