"""From a request to a plan: scope, decisions up- and downstream, strategies, steps, guards; `planner` is the door."""
