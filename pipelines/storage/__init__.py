"""Tables and checkpoints in files of any store, without Spark: Delta logs, file logs, offsets, lag, copies."""
