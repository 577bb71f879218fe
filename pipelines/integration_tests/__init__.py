"""Writes rows to sources and reads rows and positions of tables in an ephemeral environment, in a child process."""
