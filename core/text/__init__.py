"""Words, numbers and texts for people: wording, units, diffs, escaping, YAML out; knows nothing of the product."""
