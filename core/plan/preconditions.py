"""What must still be true when a plan is applied, and which open plans contradict each other about a table."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from core.model.actions import Action
from core.model.names import TableName
from core.model.states import State
from core.observed.planner_input import ObservedDeployment
from core.plan.model import Plan, PlanNode

SERIAL = "serial"
"""Moved by every act on a table: a world that has come back to where it was is told from one that never left."""

WATCHED = ("revision", "version", "highest_version", "checkpoint_id", "pointer", "table_id", "wanted", "state", SERIAL)
"""Of every table of a plan."""

READERS = "readers"
"""Of a table that is acted on: who is bound to which version of it. A reader that came meanwhile is in the way."""

FILLED = "older versions that run"
"""Of a table that is kept: those of its older versions that the plan's statements read, and that run for them."""

IN_TRASH = "version in the trash"
"""Of a table that is taken out of it: its files go when their time is over."""

_ABSENT = ObservedDeployment()


def preconditions(
    observed: Mapping[TableName, ObservedDeployment],
    readers_of: Callable[[TableName], Sequence[TableName]],
    nodes: Iterable[PlanNode],
) -> dict[TableName, dict[str, str]]:
    """Return the values that a plan was computed from, for each of its tables; what is left behind is out of its scope.

    A reader that is left behind is watched by what it reads: among the readers of the table that moves on.
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
    """Describe what differs from a plan's preconditions, one sentence for each value, by table.

    `acts` name the last act on each table: who, what and when.

    A state may go from starting to running meanwhile: what matters is whether the table is there at all.
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
    """Return whether a table in this state has a version at all."""
    return state != State.ABSENT


def _in_trash(seen: ObservedDeployment) -> str:
    return f"v{seen.in_trash.version}" if seen.in_trash is not None else ""


def _readers(table: TableName, readers: Iterable[tuple[TableName, ObservedDeployment]]) -> str:
    """Name the serving deployments that are bound to versions of a table: `b v1, c v2`."""
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
