"""Comparison of two versions of a statement: state, qualified columns, edits and their effects on rows."""
