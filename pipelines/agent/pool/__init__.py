"""The pool: keeps it running and connected, fills its catalog, and moves and checks the pointers in it."""
