"""What is upstream or downstream of a table, as a tree in flat rows: a shared table is expanded once, nearest."""

from collections.abc import Mapping
from dataclasses import dataclass

from core.lineage.table_graph import distances
from core.model.names import TableName
from core.reports.inventory import InventoryEntry, InventoryReading

UPSTREAM, DOWNSTREAM = "up", "down"


@dataclass(frozen=True, slots=True)
class HierarchyRow:
    """One row; rows come in the order of reading, each above its parents or children."""

    table: TableName
    entry: InventoryEntry | None
    """None for a table that a deployed statement reads and that is neither declared nor deployed."""
    depth: int
    """0 for the table itself."""
    streamed: bool
    """Whether the lower of this table and the one it hangs on streams the other; True for the table itself."""
    again: bool = False
    """Whether it is expanded in another place."""
    hidden: int = 0
    """Tables next to it that the bound on the depth leaves out."""


def hierarchy(
    entries: Mapping[TableName, InventoryEntry], root: TableName, direction: str, *, depth: int | None = None
) -> tuple[HierarchyRow, ...]:
    """Walk up or down from a table that is in `entries`, at most `depth` levels; linear in readings."""
    nearest = distances((root,), lambda table: [each.table for each in _beside(entries.get(table), direction)])
    rows: list[HierarchyRow] = []
    expanded: set[TableName] = set()
    # An explicit stack: a chain of statements may be longer than Python's recursion allows.
    waiting = [(root, 0, True)]
    while waiting:
        table, level, streamed = waiting.pop()
        entry = entries.get(table)
        beside = _beside(entry, direction)
        again = bool(beside) and (table in expanded or level > nearest[table])
        hides = not again and level == depth
        rows.append(
            HierarchyRow(table, entry, depth=level, streamed=streamed, again=again, hidden=len(beside) if hides else 0)
        )
        if not again:
            expanded.add(table)
        if not again and not hides:
            waiting += [(reading.table, level + 1, reading.streamed) for reading in reversed(beside)]
    return tuple(rows)


def _beside(entry: InventoryEntry | None, direction: str) -> tuple[InventoryReading, ...]:
    if entry is None:
        return ()
    return entry.parents if direction == UPSTREAM else entry.children
