"""From what is asked to what happens: parents depth-first to the running ones, children breadth-first."""

from core.planning.context import PlanningContext
from core.planning.decisions import DeployDecisions, DeployWalk
from core.planning.downstream import decide_downstream
from core.planning.left_behind import find_left_behind
from core.planning.old_inputs import warn_of_old_inputs
from core.planning.operator_choices import apply_start, refuse_unmet_choices, with_chosen_strategy
from core.planning.requested_tables import decide_table
from core.planning.scope import PlanScope
from core.planning.upstream import decide_upstream
from core.planning.warnings import add_warnings


def decide_deploy(context: PlanningContext, scope: PlanScope) -> DeployDecisions:
    """Decide what a deploy does to every table it meets."""
    walk = DeployWalk(context, scope)
    found = walk.found
    for table in scope.asked:
        came_with = scope.because_of.get(table)
        decision = decide_table(walk, table, (came_with,) if came_with else ())
        if decision is not None:
            found.put(table, with_chosen_strategy(walk, table, decision))
    decide_downstream(walk)
    find_left_behind(walk)
    for table in sorted(found.by_table):
        decide_upstream(walk, table)
    warn_of_old_inputs(walk)
    apply_start(walk)
    refuse_unmet_choices(walk)
    found.settle()
    for table in sorted(found.by_table):
        add_warnings(walk, table)
    return found
