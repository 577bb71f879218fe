"""What was observed of one environment: deployments, table statistics, and the document that `--observed` reads."""
