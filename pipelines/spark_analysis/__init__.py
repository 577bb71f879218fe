"""Spark analysis: Spark analyses statements over empty tables of our own; the operator's are never touched."""
