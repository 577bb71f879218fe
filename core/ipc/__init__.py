"""What console, command line and agent agree on between processes: frames of the socket, paths of an environment."""
