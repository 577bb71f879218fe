"""Files of tables and checkpoints: ownership, offsets, lag of file sources, contents of a table, counts of rows."""
