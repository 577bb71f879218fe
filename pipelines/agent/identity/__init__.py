"""Identity of the environment: the check that ledger and data folder belong together, and copies of the registry."""
