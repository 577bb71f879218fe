"""What screens show of a snapshot of the ledger: statements, tree, downstream readers, freshness."""
