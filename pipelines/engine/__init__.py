"""The engine behind the agent's ports: one class per port, all over Spark Connect."""
