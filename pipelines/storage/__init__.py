"""Tables and checkpoints on disk or in HDFS, without Spark: Delta logs, file logs, offsets, lag, contents, copies."""
