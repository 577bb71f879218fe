"""From tokens to one syntax tree: streaming clauses removed, FROM normalised, table names resolved."""
