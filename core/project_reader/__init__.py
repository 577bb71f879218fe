"""Files of a project folder to a Project or to Problems with lines; parse cache, copy, comparison with git."""
