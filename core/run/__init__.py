"""Execution of a plan: run and step states, the state machine, the time left, and releases."""
