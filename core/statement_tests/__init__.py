"""Unit tests of statements: cases in YAML and CSV, values of the declared types, comparison of rows, upgrades."""
