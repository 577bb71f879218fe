"""One execution of a plan: its states as tables, the state machine, the time left, and the release that it is."""
