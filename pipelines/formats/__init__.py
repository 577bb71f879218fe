"""Table formats with a log of their own: identity, what was written and read, lag and contents, one module each."""
