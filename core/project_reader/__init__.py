"""Reading a project folder into a Project or Problems, with a parse cache, a binary copy, and a comparison with git."""
