"""One execution of a plan: its states as tables, the state machine that says what to do next, how long it will take."""
