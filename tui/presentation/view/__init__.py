"""The immutable view of the ledger that screens show: statements, tree, downstream readers, freshness."""
