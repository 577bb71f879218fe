"""Benchmarks of a project: load, search for the highest rate, traces by position, comparison, and the results."""
