"""Protocols between the agent and what it drives; implemented in `pipelines.spark_connect` and `pipelines.storage`."""
