"""The local pool: a Connect server as a child process, with its Java, jars and locks; a standalone cluster."""
