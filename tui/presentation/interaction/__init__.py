"""User input as values: keymap, filters, the `:` line, confirmation dialogs, help."""
