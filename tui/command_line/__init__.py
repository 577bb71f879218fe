"""What every command shares: arguments, command table, output streams, exit codes."""
