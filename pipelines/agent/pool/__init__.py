"""The pool: kept alive, attached to, its catalog filled and its pointers compared."""
