"""The process that copies the sample project and generates its events; it needs neither Spark nor the agent."""
