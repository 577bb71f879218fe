"""Reading of a project folder into a Project, or Problems with lines; parse cache, copy, comparison with git."""
