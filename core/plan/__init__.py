"""The plan as a value and in every form: request, model, codec, file, diff, confirmation, lines, Markdown."""
