"""One execution of a plan: its states as tables, the state machine that says what is next, how long it still takes."""
