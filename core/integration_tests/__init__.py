"""Integration tests of pipelines: cases over several tables, generated input, positions, scenarios, reports for CI."""
