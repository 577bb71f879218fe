"""The demo's own process: copies the sample, lands its events, closes its windows; knows neither Spark nor agent."""
