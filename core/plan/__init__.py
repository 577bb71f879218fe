"""The plan as a value and in all its forms: request, model, codec, file, diff, confirmation, ETA, lines, Markdown."""
