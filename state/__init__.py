"""The ledger, an SQLite database of an environment's state; no other package opens SQLite."""
