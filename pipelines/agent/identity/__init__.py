"""Identity of the environment: whether ledger and data folder belong together, and the registry's records there."""
