"""Protocols for the systems that the agent drives; implemented in `pipelines.spark_connect` and `pipelines.storage`."""
