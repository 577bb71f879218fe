"""Questions about the whole graph: inventory, hierarchy, and what a change of a table would do downstream."""
