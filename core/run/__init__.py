"""Execution of a plan: run and step states, the state machine, the remaining time, and releases of new versions."""
