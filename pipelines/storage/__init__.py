"""Tables and checkpoints on disk, read without Spark: Delta logs, file logs, offsets, lag, contents, copies."""
