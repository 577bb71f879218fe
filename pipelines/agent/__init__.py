"""The agent: the daemon that alone talks to the pool and alone writes the ledger of one environment."""
