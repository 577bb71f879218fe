"""What was observed of one environment: deployments, statistics, durations, the document that `--observed` reads."""
