"""Files of tables and checkpoints behind the agent's port; of Delta by its log: identity, batches, offsets, lag."""
