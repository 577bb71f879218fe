"""How far a statement is behind, where that is going, and whether what is active is alive."""
