"""Preconditions for applying a plan, and the effects of open plans on tables, to detect contradictory plans."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from core.model.actions import Action
from core.model.names import TableName
from core.model.states import State
from core.observed.planner_input import ObservedDeployment
from core.plan.model import Plan, PlanNode

SERIAL = "serial"
"""Counter of actions on a table; it reveals an action even if the table has returned to its former state."""

WATCHED = ("revision", "version", "highest_version", "checkpoint_id", "pointer", "table_id", "wanted", "state", SERIAL)
"""Values that are compared for every table of a plan."""

READERS = "readers"
"""For a table that the plan changes: its readers and the versions they read; a new reader invalidates the plan."""

FILLED = "older versions that run"
"""For a kept table: older versions that still run and that statements of the plan read."""

IN_TRASH = "version in the trash"
"""For a table to undelete: the version in the trash, whose files are purged after a deadline."""

_ABSENT = ObservedDeployment()


def preconditions(
    observed: Mapping[TableName, ObservedDeployment],
    readers_of: Callable[[TableName], Sequence[TableName]],
    nodes: Iterable[PlanNode],
) -> dict[TableName, dict[str, str]]:
    """Return, for each table of a plan, the observed values that must not change before the plan is applied.

    A reader that is left behind has no entry of its own; it is among the READERS of the table whose version changes.
    """
    found, nodes = {}, sorted(nodes, key=lambda node: node.table)
    read = {(b.parent, b.version) for node in nodes if node.action is not Action.KEEP for b in node.bindings}
    for node in nodes:
        seen = observed.get(node.table, _ABSENT)
        values = {name: str(getattr(seen, name)) for name in WATCHED}
        if node.action is not Action.KEEP:
            values[READERS] = _readers(node.table, ((name, observed[name]) for name in readers_of(node.table)))
            if node.action is Action.UNDELETE:
                values[IN_TRASH] = _in_trash(seen)
        elif older := [f"v{version}" for version in seen.retained if (node.table, version) in read]:
            values[FILLED] = ", ".join(older)
        found[node.table] = values
    return found


def moved_since(
    before: Mapping[TableName, Mapping[str, str]],
    observed: Mapping[TableName, ObservedDeployment],
    acts: Mapping[TableName, str] = MappingProxyType({}),
) -> tuple[str, ...]:
    """Return a sentence for each value that differs from a plan's preconditions, sorted by table.

    `acts` describes the last operator action on each table: who did what, and when. A changed state yields a sentence
    only if the table has appeared or disappeared.
    """
    readers: dict[TableName, list[tuple[TableName, ObservedDeployment]]] = {}
    for name, seen in observed.items():
        for parent in {binding.parent for binding in seen.bindings} & before.keys():
            readers.setdefault(parent, []).append((name, seen))
    found = []
    for table in sorted(before):
        now = observed.get(table, _ABSENT)
        for key, value in before[table].items():
            if key == READERS:
                actual = _readers(table, readers.get(table, ()))
            elif key == IN_TRASH:
                actual = _in_trash(now)
            elif key == FILLED:
                run = {f"v{version}" for version in (now.version, *now.retained)}
                actual = ", ".join(word for word in value.split(", ") if word in run)
            else:
                actual = str(getattr(now, key, ""))
            if value != actual and not (key == "state" and is_there(value) == is_there(actual)):
                if key == SERIAL:
                    found.append(f"{table}: {acts.get(table, 'it was acted on')} since the plan was made")
                else:
                    found.append(_sentence(table, key, value or "none", actual or "none"))
    return tuple(found)


def is_there(state: str) -> bool:
    """True if a table in this state is deployed."""
    return state != State.ABSENT


def _in_trash(seen: ObservedDeployment) -> str:
    return f"v{seen.in_trash.version}" if seen.in_trash is not None else ""


def _readers(table: TableName, readers: Iterable[tuple[TableName, ObservedDeployment]]) -> str:
    return ", ".join(
        sorted(
            {
                f"{name} v{binding.version}"
                for name, seen in readers
                for binding in seen.bindings
                if binding.parent == table and is_there(seen.state)
            }
        )
    )


def _sentence(table: TableName, key: str, value: str, actual: str) -> str:
    if key == IN_TRASH:
        return f"{table}: its {key} was {value}, now {actual}"
    if key == FILLED:
        return f"{table}: its {key} were {value}, now {actual}"
    if key == READERS:
        return f"{table}: its readers were {value}, now {actual}"
    return f"{table}: {key} was {value}, now {actual}"


@dataclass(frozen=True, slots=True)
class TableEffect:
    """The effect of a plan on one table."""

    serial: int
    """The table's serial when the plan was made."""
    acts: bool
    """True if the plan changes the table."""
    says: str
    """The action on the table and the hash of its SQL and YAML; empty if the table is kept and was not requested."""


def effects_by_table(plan: Plan) -> dict[TableName, TableEffect]:
    """Return a plan's effect on each table; open plans with different effects on a table are contradictory."""
    found = {}
    for node in plan.nodes:
        acts = node.action is not Action.KEEP
        asked = acts or node.table in plan.request.tables
        says = f"{node.action} {node.strategy} {node.at} {node.revision} {node.pool}".rstrip() if asked else ""
        serial = plan.preconditions.get(node.table, {}).get(SERIAL, "0")
        found[node.table] = TableEffect(int(serial), acts, says)
    return found
