"""Runs benchmarks: writes load as files, and follows it through the statements by the positions of their batches."""
