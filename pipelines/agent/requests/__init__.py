"""Requests to the agent: socket server, command handler, policy enforcement, submitted plans, Spark analysis."""
