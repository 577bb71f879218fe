"""Whether a new version of a table holds what it should: differences that its edit explains, apart from all others."""
