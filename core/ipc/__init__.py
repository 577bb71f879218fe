"""Contracts between console, command line and agent: socket frames and the paths of an environment."""
