"""One execution of a plan: its states as tables, and the state machine that says what to do next."""
