"""Comparison of declared and deployed revisions: differences, classification, Spark's analysis, pinned settings."""
