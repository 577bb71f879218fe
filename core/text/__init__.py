"""Text for people: wording, numbers, diffs, escaping, YAML output; independent of the product."""
