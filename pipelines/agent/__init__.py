"""The agent: the daemon of one environment. Only the agent calls the pool, and only the agent writes the ledger."""
