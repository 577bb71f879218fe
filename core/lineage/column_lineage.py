"""Column lineage across a project: which columns and rows determine which other columns and rows.

Statements are analysed on demand. A node without a column represents the rows of a table. Every column depends on the
rows of its own table; this edge is not stored, but upstream traces follow it. The rows of a table depend on the rows of
every table that its statement reads.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from core.lineage.column_usage import table_lineage
from core.lineage.table_graph import TableGraph, table_graph
from core.model.names import TableName
from core.project.model import Project, Table
from core.sql.lineage.model import ColumnOrigin, InputKind, LineageInput, LineageStep, StatementLineage
from core.sql.metadata_columns import METADATA_NAMES
from core.sql.statement import CHANGE_COLUMNS, Column, line_of
from core.text.sentence import Sentence

UPSTREAM, DOWNSTREAM = "up", "down"


@dataclass(frozen=True, slots=True)
class LineageEdge:
    """An edge from a column or rows that a statement reads to a column or rows that the statement writes."""

    source: ColumnOrigin
    target: ColumnOrigin
    kind: InputKind
    clause: str
    """The clause of the condition, such as `WHERE`, for an edge to rows; `SELECT` for an edge to a column."""
    expression: str
    fields: tuple[str, ...]
    """Paths of the struct fields that are read; empty if the whole column is read."""
    through: tuple[LineageStep, ...]
    """Columns of CTEs and subqueries on the way from the edge's target to its source, starting at the target."""
    path: str
    line: int


@dataclass(frozen=True, slots=True)
class LineageNode:
    """A column, or the rows of a table if `at.column` is empty."""

    at: ColumnOrigin
    type: str
    """Type of the column as declared in the DDL; empty for rows and undeclared columns."""
    landed: bool
    """Whether the table is filled outside Headgate, so that lineage ends at the table."""
    format: str = ""
    """Format of a landed table, such as `json` or `csv`."""
    location: str = ""
    """Location of a landed table as given in its DDL; empty if the DDL gives none."""
    expression: str = ""
    """The expression that computes the column in its table's statement; empty for rows and landed tables."""
    of_feed: bool = False
    """Whether the column exists only in the table's change feed (`core.sql.statement.CHANGE_COLUMNS`)."""


@dataclass(frozen=True, slots=True)
class LineageGap:
    """A name that could not be traced to its source.

    The gap leaves the lineage of the column or rows `at` incomplete.
    """

    at: ColumnOrigin
    name: str
    reason: Sentence
    path: str
    line: int


@dataclass(frozen=True, slots=True)
class ColumnLineage:
    """The lineage of one column, or of a whole table, in one direction."""

    root: ColumnOrigin
    """The column, or whole table, at which the trace started."""
    direction: str
    nodes: tuple[LineageNode, ...]
    """Nodes in the order in which the trace reached them."""
    edges: tuple[LineageEdge, ...]
    gaps: tuple[LineageGap, ...]


@dataclass(frozen=True)
class _StatementEdges:
    by_target: Mapping[ColumnOrigin, tuple[LineageEdge, ...]]
    by_source: Mapping[ColumnOrigin, tuple[LineageEdge, ...]]
    gaps: Mapping[ColumnOrigin, tuple[LineageGap, ...]]
    expressions: Mapping[str, str]
    """Output expressions by column name in lower case."""


class LineageTracer:
    """Traces lineage in a project, analysing each statement at most once."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._statements: dict[TableName, _StatementEdges] = {}
        self._followed: dict[TableName, StatementLineage] = {}

    def trace(self, root: ColumnOrigin, direction: str) -> ColumnLineage:
        """Return the upstream or downstream lineage of a column, or of a whole table if `root` has no column.

        The table must be declared. The time is linear in the number of edges.
        """
        waiting = [root] if root.column else self._whole(root.table)
        nodes: dict[ColumnOrigin, LineageNode] = {}
        edges: dict[LineageEdge, None] = {}
        gaps: dict[LineageGap, None] = {}
        for at in waiting:
            if at in nodes:
                continue
            nodes[at] = self._node(at)
            for gap in self._gaps_at(at, direction):
                gaps[gap] = None
            found = self._above(at) if direction == UPSTREAM else self._below(at)
            for edge in found:
                edges[edge] = None
            waiting += [edge.source if direction == UPSTREAM else edge.target for edge in found]
            if direction == UPSTREAM and at.column:
                waiting.append(ColumnOrigin(at.table))
        return ColumnLineage(root, direction, tuple(nodes.values()), tuple(edges), tuple(gaps))

    def follow(self, table: Table) -> StatementLineage:
        """Return the lineage of a table's own statement; raises AssertionError if the table is external."""
        if table.name not in self._followed:
            self._followed[table.name] = table_lineage(table, self._declared)
        return self._followed[table.name]

    def readers(self, table: TableName) -> tuple[Table, ...]:
        """Return the declared tables whose statements read `table`, sorted by name."""
        return tuple(self._project.tables[child] for child in self._graph.children(table))

    def tables(self) -> Collection[TableName]:
        """Return the names of the declared tables, sorted."""
        return self._project.tables

    def columns(self, table: TableName) -> tuple[Column, ...]:
        """Return the columns of a declared table."""
        return self._project.tables[table].parsed_ddl.columns

    def column(self, table: TableName, name: str) -> ColumnOrigin | None:
        """Return a declared column, spelled as in the DDL, by its name in any case; None if no such column exists."""
        spelled = self._spelled(table, name)
        return ColumnOrigin(table, spelled) if spelled is not None else None

    def _whole(self, table: TableName) -> list[ColumnOrigin]:
        return [*(ColumnOrigin(table, column.name) for column in self.columns(table)), ColumnOrigin(table)]

    def _above(self, at: ColumnOrigin) -> tuple[LineageEdge, ...]:
        return self._statement(at.table).by_target.get(at, ())

    def _below(self, at: ColumnOrigin) -> tuple[LineageEdge, ...]:
        children = self._graph.children(at.table)
        return tuple(edge for child in children for edge in self._statement(child).by_source.get(at, ()))

    def _gaps_at(self, at: ColumnOrigin, direction: str) -> tuple[LineageGap, ...]:
        """Return the gaps that may hide part of a node's lineage.

        Downstream, these are all gaps of the tables that read the node's table.
        """
        if direction == UPSTREAM:
            return self._statement(at.table).gaps.get(at, ())
        children = self._graph.children(at.table)
        return tuple(gap for child in children for each in self._statement(child).gaps.values() for gap in each)

    @cached_property
    def _graph(self) -> TableGraph:
        return table_graph(self._project)

    def _node(self, at: ColumnOrigin) -> LineageNode:
        table = self._project.tables.get(at.table)
        if table is None:
            return LineageNode(at, "", landed=True)
        kind = next((column.type for column in table.parsed_ddl.columns if column.name == at.column), None)
        feed = next((column.type for column in CHANGE_COLUMNS if column.name == at.column), None)
        if kind is None and feed is not None:
            return LineageNode(at, feed, landed=False, of_feed=True)
        kind = kind or ""
        expression = self._statement(at.table).expressions.get(at.column.lower(), "")
        if not table.external:
            return LineageNode(at, kind, landed=False, expression=expression)
        return LineageNode(at, kind, landed=True, format=table.parsed_ddl.format, location=table.parsed_ddl.location)

    def _statement(self, name: TableName) -> _StatementEdges:
        if name not in self._statements:
            table = self._project.tables.get(name)
            self._statements[name] = self._read(table) if table is not None else _StatementEdges({}, {}, {}, {})
        return self._statements[name]

    def _read(self, table: Table) -> _StatementEdges:
        if table.parsed is None or table.dml is None:
            return _StatementEdges({}, {}, {}, {})
        found, lines = self.follow(table), LineNumbers(table)
        edges, gaps = self._edges(table, found, lines), self._gaps(table, found, lines)
        expressions = {output.name: output.expression for output in found.outputs}
        return _StatementEdges(_grouped(edges, "target"), _grouped(edges, "source"), _gathered(gaps), expressions)

    def _edges(self, table: Table, found: StatementLineage, lines: "LineNumbers") -> Iterable[LineageEdge]:
        edges: dict[LineageEdge, None] = {}
        for output in found.outputs:
            spelled = self._spelled(table.name, output.name)
            target = ColumnOrigin(table.name, spelled if spelled is not None else output.name)
            for each in output.inputs:
                edges[_edge(each, target, "SELECT", lines, output.offset)] = None
        for condition in found.conditions:
            for each in condition.inputs:
                edges[_edge(each, ColumnOrigin(table.name), condition.clause, lines, condition.offset)] = None
        return edges

    def _gaps(self, table: Table, found: StatementLineage, lines: "LineNumbers") -> Iterable[LineageGap]:
        written = {output.name for output in found.outputs}
        starred: Sentence | None = None
        for each in found.unresolved:
            spelled = self._spelled(table.name, each.within)
            if each.within == "*":
                starred = each.reason if table.parsed is not None and table.parsed.in_python else _STAR
            at = ColumnOrigin(table.name, spelled or "")
            yield LineageGap(at, each.name, each.reason, lines.path, lines.of(each.offset))
        written |= METADATA_NAMES if table.settings.metadata else frozenset()
        for column in self.columns(table.name):
            if column.name.lower() not in written:
                reason = Sentence("the statement does not write it") if starred is None else starred
                yield LineageGap(ColumnOrigin(table.name, column.name), column.name, reason, lines.path, lines.of(0))

    def _declared(self, name: TableName) -> tuple[Column, ...] | None:
        table = self._project.tables.get(name)
        return table.parsed_ddl.columns if table is not None else None

    def _spelled(self, table: TableName, name: str) -> str | None:
        lowered = name.lower()
        return next((column.name for column in self.columns(table) if column.name.lower() == lowered), None)


_STAR = Sentence("it may come from a * that cannot be expanded")


class LineNumbers:
    """Converts offsets in a statement to line numbers in the statement's file."""

    def __init__(self, table: Table) -> None:
        assert table.parsed is not None and table.dml is not None
        self._script = table.dml
        self.path = table.dml.file
        self._first = line_of(table.dml.text, table.parsed, 0)
        self._breaks = [at for at, char in enumerate(table.parsed.select) if char == "\n"]

    def of(self, offset: int) -> int:
        """Return the line of the file, counted from 1, that contains an offset in the statement's SELECT."""
        return self._script.at(self._first + bisect_left(self._breaks, offset)).line


def _edge(each: LineageInput, target: ColumnOrigin, clause: str, lines: LineNumbers, offset: int) -> LineageEdge:
    line = lines.of(offset)
    return LineageEdge(
        each.origin,
        target,
        kind=each.kind,
        clause=clause,
        expression=each.expression,
        fields=each.fields,
        through=each.through,
        path=lines.path,
        line=line,
    )


def _grouped(edges: Iterable[LineageEdge], end: str) -> Mapping[ColumnOrigin, tuple[LineageEdge, ...]]:
    found: dict[ColumnOrigin, list[LineageEdge]] = {}
    for edge in edges:
        found.setdefault(getattr(edge, end), []).append(edge)
    return {at: tuple(each) for at, each in found.items()}


def _gathered(gaps: Iterable[LineageGap]) -> Mapping[ColumnOrigin, tuple[LineageGap, ...]]:
    found: dict[ColumnOrigin, list[LineageGap]] = {}
    for gap in gaps:
        found.setdefault(gap.at, []).append(gap)
    return {at: tuple(each) for at, each in found.items()}
