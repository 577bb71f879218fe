"""Tokens to one syntax tree: streaming clauses taken out, FROM in one shape, table names resolved."""
