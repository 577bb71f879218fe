"""Contents of each screen as lines: frame, rows, detail, review, runs, audit."""
