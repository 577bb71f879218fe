"""The commands of the command line, one module per command or group; each is imported only when it runs."""
