"""Writes column lineage as Mermaid, which code hosts render in Markdown, or as DOT, for Graphviz.

A table is a box that contains its columns and, if conditions filter its rows, a node for the rows. Arrows follow the
data flow and are dashed for conditions; the requested table or column has a thicker border. Everything is sorted by
name, so that equal lineages yield equal output. Names appear only in labels: ids are `t0` and `c0`, so that no name can
be mistaken for a keyword.
"""

import html
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from core.sql.lineage.model import ColumnOrigin, InputKind
from core.text.escaping import replace_control_characters
from tui.presentation.reports.column_lineage import external_source_of

if TYPE_CHECKING:
    from core.lineage.column_lineage import ColumnLineage

ROWS = "rows"
"""Label of the node that represents a table's rows."""

_MERMAID = {char: f"#{ord(char)};" for char in '"#&<>%`\\{}'}
"""Characters that Mermaid interprets even in a quoted label, with the codes that display them."""


@dataclass(frozen=True, slots=True)
class _TableBox:
    id: str
    label: str
    columns: tuple[ColumnOrigin, ...]
    """The columns to draw.

    An origin with an empty column name represents the table's rows, and always comes first.
    """
    asked: bool
    """True if the lineage of the whole table was requested."""


def lineage_mermaid(found: "ColumnLineage") -> str:
    """Return a column lineage as a Mermaid flowchart."""
    ids = _ids(found)
    lines = ["flowchart LR"]
    for box in _boxes(found, ids):
        lines.append(f'  subgraph {box.id}["{_mermaid(box.label)}"]')
        for at in box.columns:
            opening, closing = ("[", "]") if at.column else ("([", "])")
            lines.append(f'    {ids[at]}{opening}"{_mermaid(at.column or ROWS)}"{closing}')
        lines.append("  end")
        if box.asked:
            lines.append(f"  style {box.id} stroke-width:3px")
    for source, target, kind in _arrows(found):
        lines.append(f"  {ids[source]} {'-->' if kind is InputKind.VALUE else '-.->'} {ids[target]}")
    if found.root.column:
        lines.append(f"  style {ids[found.root]} stroke-width:3px")
    return "\n".join(lines) + "\n"


def lineage_dot(found: "ColumnLineage") -> str:
    """Return a column lineage in DOT, the language of Graphviz."""
    ids = _ids(found)
    lines = ["digraph {", "  rankdir=LR;", "  node [shape=box];"]
    for box in _boxes(found, ids):
        width = " penwidth=3;" if box.asked else ""
        lines.append(f"  subgraph cluster_{box.id} {{ label={_dot(box.label)};{width}")
        for at in box.columns:
            style = ("" if at.column else " style=rounded") + (" penwidth=3" if at.column and at == found.root else "")
            lines.append(f"    {ids[at]} [label={_dot(at.column or ROWS)}{style}];")
        lines.append("  }")
    for source, target, kind in _arrows(found):
        lines.append(f"  {ids[source]} -> {ids[target]}{'' if kind is InputKind.VALUE else ' [style=dashed]'};")
    return "\n".join([*lines, "}"]) + "\n"


def _ids(found: "ColumnLineage") -> Mapping[ColumnOrigin, str]:
    ends = (end for edge in found.edges for end in (edge.source, edge.target))
    asked = [found.root] if found.root.column else []
    known = sorted({*(node.at for node in found.nodes), *ends, *asked})
    return {at: f"c{number}" for number, at in enumerate(known)}


def _boxes(found: "ColumnLineage", ids: Mapping[ColumnOrigin, str]) -> list[_TableBox]:
    landed = {node.at.table: f"{node.at.table} ({external_source_of(node)})" for node in found.nodes if node.landed}
    return [
        _TableBox(f"t{number}", landed.get(table, table), tuple(columns), found.root == ColumnOrigin(table))
        for number, (table, columns) in enumerate(groupby(ids, key=lambda at: at.table))
    ]


def _arrows(found: "ColumnLineage") -> list[tuple[ColumnOrigin, ColumnOrigin, InputKind]]:
    return sorted({(edge.source, edge.target, edge.kind) for edge in found.edges})


def _plain(text: str) -> str:
    shown = (char if char.isprintable() else " " if char.isspace() else "\ufffd" for char in text)
    return replace_control_characters("".join(shown))


def _mermaid(label: str) -> str:
    return "".join(_MERMAID.get(char, char) for char in _plain(label))


def _dot(label: str) -> str:
    r"""Quote a label so that Graphviz interprets neither entities such as `&lt;` nor escapes such as `\l`."""
    escaped = html.escape(_plain(label), quote=False).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
