"""The ledger: the SQLite database of one environment. The agent alone writes it; everyone else reads."""
