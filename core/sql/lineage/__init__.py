"""Column lineage within one statement: from each output column to the columns that it reads."""
