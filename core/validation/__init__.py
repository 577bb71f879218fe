"""Validation of a new version of a table: separates the differences that its edit explains from all others."""
