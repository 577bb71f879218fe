"""What lies on the disk: logs of file streams, lag of file sources, contents of tables, forks, data folder records."""
