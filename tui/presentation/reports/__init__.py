"""Answers of health, impact, report and lineage, as lines and as data."""
