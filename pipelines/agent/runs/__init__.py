"""Runs of plans: a driver with a thread for each run, the executor of its steps, and the catch-up gate of a rebuild."""
