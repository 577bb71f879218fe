"""Lineage across a project: the table graph, column lineage, and the uses and comparisons of columns."""
