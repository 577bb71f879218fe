"""What a person means by `table` or `table.column`, and the tables up- and downstream of it."""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from core.model.errors import UsageError
from core.model.names import TableName

if TYPE_CHECKING:
    from core.lineage.column_lineage import LineageTracer
    from core.observed.planner_input import ObservedDeployment
    from core.reports.inventory import HierarchyRow, InventoryEntry
    from core.sql.lineage.model import ColumnOrigin


def table_hierarchy(
    entries: "Sequence[InventoryEntry]", words: str, direction: str, *, depth: int | None = None
) -> "tuple[HierarchyRow, ...]":
    """Walk up or down from the table that `words` name, in any case; raises UsageError where there is none."""
    from core.reports.inventory import hierarchy as walk
    from core.text.wording import did_you_mean

    by_name = {entry.table: entry for entry in entries}
    name = TableName(words.strip().strip("`").lower())
    if name not in by_name:
        remedy = did_you_mean(name, by_name) or "headgate inventory lists the tables"
        raise UsageError(f"{name or 'a table without a name'} is neither declared nor deployed", remedy=remedy)
    return walk(by_name, name, direction, depth=depth)


def root_of(tracer: "LineageTracer", observed: "Mapping[TableName, ObservedDeployment]", words: str) -> "ColumnOrigin":
    """Find what `table` or `table.column` names; a table may be deployed and no longer declared. Raises UsageError."""
    from core.sql.lineage.model import ColumnOrigin

    table, point, _ = words.partition(".")
    name = TableName(table.strip().strip("`").lower())
    if name in tracer.tables() or name not in observed:
        return origin_of(tracer, words)
    if point:
        raise UsageError(
            f"{name} is deployed but no longer declared: its columns are unknown",
            remedy=f"ask about the whole table: {name}",
        )
    return ColumnOrigin(name)


def origin_of(tracer: "LineageTracer", words: str) -> "ColumnOrigin":
    """Find what `table` or `table.column` names, in any case, with or without back-ticks."""
    from core.sql.lineage.model import ColumnOrigin

    table, _, column = (part.strip().strip("`") for part in words.partition("."))
    name = TableName(table.lower())
    if name not in tracer.tables():
        raise _unknown(f"{table or 'a table without a name'} is not declared in this project", name, tracer.tables())
    if not column and "." not in words:
        return ColumnOrigin(name)
    found = tracer.column(name, column)
    if found is None:
        known = [each.name for each in tracer.columns(name)]
        raise _unknown(f"{name} has no column {column or 'without a name'}", column, known)
    return found


def _unknown(summary: str, word: str, known: Iterable[str]) -> UsageError:
    names = list(known)
    near = difflib.get_close_matches(word.lower(), [name.lower() for name in names], n=1)
    spelled = next((name for name in names if near and name.lower() == near[0]), "")
    listed = f"there are {', '.join(names[:12])}{' …' if len(names) > 12 else ''}"
    return UsageError(summary, remedy=f"did you mean {spelled}?" if spelled else listed)
