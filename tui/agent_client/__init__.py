"""The client side of the agent: its socket, its commands, and the processes of agent, pool and Spark side."""
