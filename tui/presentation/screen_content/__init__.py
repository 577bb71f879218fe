"""What each screen shows, as lines: frame, rows, detail, review, runs, audit."""
