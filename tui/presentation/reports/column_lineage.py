"""Column lineage as the rows of a tree, for command line and console: a column, then its sources or its uses.

The tree shows how values flow. Conditions on the rows of a table are listed separately, by table.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from core.sql.lineage.model import ColumnOrigin, InputKind

if TYPE_CHECKING:
    from core.lineage.column_lineage import ColumnLineage, LineageEdge, LineageGap, LineageNode


class BranchKind(StrEnum):
    """How a row of the lineage tree contributes to its parent row."""

    VALUE = ""
    CONDITION = "if"
    """A condition that affects only one column."""
    STEP = "via"
    """A step inside a statement."""
    AGAIN = "again"
    """A node that was already expanded further up."""


@dataclass(frozen=True, slots=True)
class LineageTreeRow:
    """A row of the lineage tree: a column, the rows of a table, or a step inside a statement."""

    depth: int
    name: str
    """`table.column`, `rows of table`, or a step inside a statement."""
    type: str
    place: str
    """File and line (`dml.t.sql:3`), or a description of the external input or change feed."""
    expression: str
    """The expression that defines the column (upstream) or that uses the parent row (downstream).

    Empty for an external input.
    """
    kind: BranchKind = BranchKind.VALUE

    @property
    def mark(self) -> str:
        """Prefix of the row's name: `if ` for a condition, `via ` for a step, empty for other rows."""
        return f"{self.kind} " if self.kind in (BranchKind.CONDITION, BranchKind.STEP) else ""


@dataclass(frozen=True, slots=True)
class RowCondition:
    """A SQL condition, such as a WHERE clause, that determines which rows a table contains."""

    table: str
    clause: str
    expression: str
    columns: tuple[str, ...]
    place: str


def tree(found: "ColumnLineage") -> tuple[LineageTreeRow, ...]:
    """Return a lineage as tree rows. Each node is expanded once, upstream into sources or downstream into uses."""
    up = found.direction == "up"
    nodes = {node.at: node for node in found.nodes}
    edges: dict[ColumnOrigin, list[LineageEdge]] = {}
    for edge in found.edges:
        edges.setdefault(edge.target if up else edge.source, []).append(edge)
    rows: list[LineageTreeRow] = []
    expanded: set[ColumnOrigin] = set()
    waiting: list[tuple[int, ColumnOrigin, LineageEdge | None]] = [(0, at, None) for at in reversed(_roots(found))]
    while waiting:
        depth, at, over = waiting.pop()
        # Upstream, the tree ends at rows: the conditions on them are listed separately.
        following = edges.get(at, []) if at.column or not up else []
        again = at in expanded and bool(following)
        expanded.add(at)
        if over is not None:
            rows.extend(_steps(depth, over, up=up))
        rows.append(_row(depth, nodes[at], over, following, up=up))
        if again:
            rows[-1] = replace(rows[-1], kind=BranchKind.AGAIN)
        else:
            waiting += [(depth + 1, each.source if up else each.target, each) for each in reversed(following)]
    return tuple(rows)


def _roots(found: "ColumnLineage") -> list[ColumnOrigin]:
    if found.root.column:
        return [found.root]
    own = [node.at for node in found.nodes if node.at.table == found.root.table]
    return [at for at in own if at.column or found.direction == "down"]


def row_conditions(found: "ColumnLineage") -> tuple[RowCondition, ...]:
    """Return the conditions that determine which rows the tables contain, grouped by table in lineage order."""
    groups: dict[tuple[str, str, str, str], dict[str, None]] = {}
    for edge in found.edges:
        if not edge.target.column and edge.kind is InputKind.CONDITION:
            key = (str(edge.target.table), edge.clause, edge.expression, file_of(edge.path, edge.line))
            columns = groups.setdefault(key, {})
            if edge.source.column:
                columns[name_of(edge.source)] = None
    order = {str(table): at for at, table in enumerate(dict.fromkeys(node.at.table for node in found.nodes))}
    keys = sorted(groups, key=lambda key: (order[key[0]], key[1] == "FROM"))
    return tuple(RowCondition(key[0], key[1], key[2], tuple(groups[key]), key[3]) for key in keys)


def gap_line(gap: "LineageGap") -> str:
    """Explain why the lineage of a reference in a SQL file cannot be traced."""
    at = name_of(gap.at)
    return f"{at}: {gap.name} cannot be traced: {gap.reason}  ({file_of(gap.path, gap.line)})"


def external_source_of(node: "LineageNode") -> str:
    """Describe the origin of an external table by its format and location."""
    return f"external input: {node.format} {node.location}".rstrip(" :")


def name_of(at: ColumnOrigin) -> str:
    """Return `table.column`, or `rows of table` if the column name is empty."""
    return f"{at.table}.{at.column}" if at.column else f"rows of {at.table}"


def file_of(path: str, line: int) -> str:
    """Return a position in a file as `file:line`, without the folder."""
    return f"{path.rpartition('/')[2]}:{line}"


def _row(
    depth: int, node: "LineageNode", edge: "LineageEdge | None", following: "Sequence[LineageEdge]", *, up: bool
) -> LineageTreeRow:
    decides = edge is not None and edge.kind is InputKind.CONDITION and (up or node.at.column)
    kind = BranchKind.CONDITION if decides else BranchKind.VALUE
    if not up and edge is not None:
        text = edge.expression if edge.clause == "SELECT" else f"{edge.clause} {edge.expression}"
        return LineageTreeRow(depth, name_of(node.at), node.type, file_of(edge.path, edge.line), text, kind)
    place = ""
    if node.of_feed:
        place = f"change feed of {node.at.table}"
    elif node.landed:
        place = external_source_of(node)
    elif following and up:
        place = file_of(following[0].path, following[0].line)
    fields = "".join(f".{path}" for path in edge.fields[:1]) if edge is not None else ""
    more = " …" if edge is not None and len(edge.fields) > 1 else ""
    text = node.expression if up else ""
    return LineageTreeRow(depth, name_of(node.at) + fields + more, node.type, place, text, kind)


def _steps(depth: int, edge: "LineageEdge", *, up: bool) -> Iterable[LineageTreeRow]:
    steps = edge.through if up else reversed(edge.through)
    return [LineageTreeRow(depth, step.name, "", "", step.expression, BranchKind.STEP) for step in steps]
