"""Protocols between the agent and what it drives; implementations are in `pipelines.spark` and `pipelines.storage`."""
