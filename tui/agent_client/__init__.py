"""The agent from outside: its socket, the commands that it takes, its process and the pool's."""
