"""Comparison of two versions of a statement: state, qualified columns, edits, and the effects of edits on rows."""
