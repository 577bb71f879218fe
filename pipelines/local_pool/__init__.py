"""The local pool: a Spark Connect server run as a child process, and the Java, jars and locks that it needs."""
