"""Parsing of tokens into one syntax tree: streaming clauses removed, FROM normalised, table names resolved."""
