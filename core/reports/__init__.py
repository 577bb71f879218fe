"""Reports on the whole graph: inventory, hierarchy, and the effect of a table's change on tables downstream."""
