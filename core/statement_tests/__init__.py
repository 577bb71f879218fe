"""Unit tests of statements: cases from YAML and CSV, values by declared types, comparison of rows, upgrade verdicts."""
