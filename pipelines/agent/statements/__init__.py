"""One statement at work: starts and stops, operator commands, transient failures, and tables changed under it."""
