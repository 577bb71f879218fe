"""Identity of the environment: ledger and data folder belong together, names are its own; copies of the registry."""
