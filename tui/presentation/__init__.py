"""Pure functions that turn values into rows, lines and labels: no clock, no terminal, no Textual."""
