"""The planner, from request to plan: scope, decisions, strategies, steps, guards. `planner` is the entry point."""
