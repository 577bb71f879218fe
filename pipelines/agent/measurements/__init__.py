"""Measurements by the agent: lag and progress of deployments, table statistics, utilization of the pool."""
