"""The demo's own process: it copies the sample, generates events and closes windows, without Spark or the agent."""
