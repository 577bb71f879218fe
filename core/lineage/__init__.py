"""Who reads whom over a project: the table graph, column lineage, and where a column is used."""
