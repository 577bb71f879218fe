"""Observations of one environment: deployed versions, statistics, durations, and the `--observed` document."""
