"""Copies of the sample and of the scenarios, the simulated events in them, and the scenarios' servers."""
