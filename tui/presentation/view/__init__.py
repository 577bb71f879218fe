"""A view of a ledger snapshot for the screens: statements, tree, downstream readers, freshness."""
