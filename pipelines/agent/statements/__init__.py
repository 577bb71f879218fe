"""Operation of single statements: starts and stops, operator commands, transient failures, changed tables."""
