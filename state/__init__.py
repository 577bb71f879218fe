"""The ledger: the only package that opens SQLite."""
