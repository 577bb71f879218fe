"""Formats of file tables: how far a source has been written, and how many rows its files hold."""
