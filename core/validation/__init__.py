"""Validation of a table's new version: separates the differences caused by an edit from unexpected ones."""
