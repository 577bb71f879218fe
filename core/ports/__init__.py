"""The agent's ports to Spark and to files; implemented in `pipelines.spark_connect` and `pipelines.storage`."""
