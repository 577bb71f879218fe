"""Results of health, impact, report, lineage and history, as lines and as JSON."""
