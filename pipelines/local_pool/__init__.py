"""The local pool: a Spark Connect server run as a child process, with its Java, jars and locks."""
