"""The pool: keeping it alive and attached, filling its catalog, moving and comparing its pointers."""
