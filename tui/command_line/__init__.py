"""Parts shared by all commands: arguments, command table, output streams, exit codes."""
