"""Values to rows, lines and words: pure functions, no clock, no terminal, no Textual."""
