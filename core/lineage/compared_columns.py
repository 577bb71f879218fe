"""Columns of external tables that statements compare, also after other statements have passed them on unchanged."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from core.lineage.column_lineage import LineageTracer
from core.model.names import TableName
from core.project.model import Project
from core.sql.lineage.model import ColumnComparison, ColumnOrigin


@dataclass(frozen=True, slots=True)
class ComparedColumns:
    """Columns of external tables, spelled as in their declarations, and how statements compare them."""

    joined: Mapping[ColumnOrigin, ColumnOrigin] = field(default_factory=dict)
    """Each column that is equated with one of another external table, and the first column of its group."""
    ends: frozenset[ColumnOrigin] = frozenset()
    """Columns that end an interval, which another column of their table begins."""
    within: frozenset[ColumnOrigin] = frozenset()
    """Columns of other tables that are compared with both ends of such an interval."""


def compared_columns(project: Project, tables: Iterable[TableName]) -> ComparedColumns:
    """Return how the statements among tables compare the columns of external tables."""
    chosen = [project.tables[name] for name in tables if project.tables[name].parsed is not None]
    tracer = LineageTracer(project)
    found = {table.name: tracer.follow(table) for table in chosen}
    copies = {
        (name, output.name.lower()): output.copies
        for name, lineage in found.items()
        for output in lineage.outputs
        if output.copies is not None
    }

    def source_of(at: ColumnOrigin) -> ColumnOrigin:
        # The chain ends, because a table depends on no table downstream of it.
        while (above := copies.get((at.table, at.column.lower()))) is not None:
            at = above
        return at

    every = [
        ColumnComparison(source_of(each.one), source_of(each.other), each.equal)
        for lineage in found.values()
        for each in lineage.comparisons
    ]
    external = {name for name, table in project.tables.items() if table.external}
    ends, within = _intervals(each for each in every if not each.equal)
    return ComparedColumns(_groups((each for each in every if each.equal), external), ends, within)


def _groups(equated: Iterable[ColumnComparison], external: set[TableName]) -> dict[ColumnOrigin, ColumnOrigin]:
    groups: dict[ColumnOrigin, set[ColumnOrigin]] = {}
    for each in equated:
        both = groups.get(each.one, {each.one}) | groups.get(each.other, {each.other})
        groups.update(dict.fromkeys(both, both))
    found = {}
    for column, group in groups.items():
        landed = sorted(each for each in group if each.table in external)
        if column.table in external and len({each.table for each in landed}) > 1:
            found[column] = landed[0]
    return found


def _intervals(
    ordered: Iterable[ColumnComparison],
) -> tuple[frozenset[ColumnOrigin], frozenset[ColumnOrigin]]:
    lows: dict[ColumnOrigin, set[ColumnOrigin]] = {}
    highs: dict[ColumnOrigin, set[ColumnOrigin]] = {}
    for each in ordered:
        lows.setdefault(each.other, set()).add(each.one)
        highs.setdefault(each.one, set()).add(each.other)
    found = [
        (end, middle)
        for middle in lows.keys() & highs.keys()
        for end in highs[middle]
        if end.table != middle.table and any(each.table == end.table for each in lows[middle])
    ]
    return frozenset(end for end, _ in found), frozenset(middle for _, middle in found)
