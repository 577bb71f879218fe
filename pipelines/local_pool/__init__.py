"""The local pool: a Spark Connect server as a child process, its Java, and the identity of processes."""
