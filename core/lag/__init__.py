"""How far a statement is behind, whether that is a fault, where it is going, and whether what is active is alive."""
