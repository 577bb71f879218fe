"""What a plan says of each table of its scope, short enough to be compared with every other open plan."""

from dataclasses import dataclass

from core.model.actions import Action
from core.model.names import TableName
from core.plan.model import Plan
from core.plan.preconditions import SERIAL


@dataclass(frozen=True, slots=True)
class TableWords:
    """What one plan says of one table."""

    serial: int
    """The table's serial when the plan was made."""
    acts: bool
    """Whether executing the plan does anything to it."""
    says: str
    """What becomes of the table and by which text; empty where the plan was not asked about it."""


def scope_words(plan: Plan) -> dict[TableName, TableWords]:
    """Return what a plan says of each of its tables; two plans that say otherwise of one cannot both be meant."""
    found = {}
    for node in plan.nodes:
        acts = node.action is not Action.KEEP
        asked = acts or node.table in plan.request.tables
        says = f"{node.action} {node.strategy} {node.at} {node.revision}" if asked else ""
        serial = plan.preconditions.get(node.table, {}).get(SERIAL, "0")
        found[node.table] = TableWords(int(serial), acts, says)
    return found
