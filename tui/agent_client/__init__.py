"""The agent from outside: its socket, its commands, its process and the pool's."""
