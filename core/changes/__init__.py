"""Declared against deployed: revision diff, fingerprint, classification, Spark's analysis of it, pinned settings."""
