"""One statement at work: how it starts and stops, an operator's words, liveness, failures that pass, changed tables."""
