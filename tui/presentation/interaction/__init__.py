"""What a person types, as values: keymap, filters, the `:` line, confirmation dialogs, help."""
