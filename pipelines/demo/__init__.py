"""Copies of the sample and of the scenarios, what happens in them, and the servers of the scenarios."""
