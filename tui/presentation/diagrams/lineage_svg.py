"""Draws column lineage as SVG: tables are boxes, data flows from left to right, colours follow the page's theme."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING

from core.sql.lineage.model import ColumnOrigin, InputKind
from core.text.escaping import replace_control_characters
from tui.presentation.diagrams.box_layout import BoxLayout, lay_out_boxes
from tui.presentation.reports.column_lineage import external_source_of, gap_line, name_of, row_conditions

if TYPE_CHECKING:
    from core.lineage.column_lineage import ColumnLineage, LineageEdge, LineageNode

CHAR, SMALL = 7.25, 6.3
"""Character widths of the two text sizes, in pixels."""
HEAD, LINE, ROW, PAD, MARGIN, BETWEEN, TITLE = 26.0, 15.0, 20.0, 10.0, 24.0, 110.0, 46.0
LONGEST, MOST_DECIDERS = 52, 8

STYLE = """\
text{font:12px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:#0f172a}
.small{font-size:10.5px}.dim{fill:#5b6b80}.head{font-weight:bold}.title{font-size:14px;font-weight:bold}
.paper{fill:#fff}.box{fill:#f8fafc;stroke:#94a3b8}.bar{fill:#e2e8f0}.landed{fill:#cfeee0}.root{fill:#fde9a9}
.value{stroke:#1d5fd1;stroke-width:1.8;fill:none}
.condition{stroke:#b3610a;stroke-width:1.2;fill:none;stroke-dasharray:5 4}
.near{stroke:transparent;stroke-width:10;fill:none}.edge:hover .line{stroke-width:4}
.tip-value{fill:#1d5fd1}.tip-condition{fill:#b3610a}
@media(prefers-color-scheme:dark){text{fill:#e2e8f0}.dim{fill:#9fb0c6}.paper{fill:#0f172a}
.box{fill:#1a2537;stroke:#56657b}.bar{fill:#2b3a52}.landed{fill:#14533a}.root{fill:#6b4e0c}
.value{stroke:#6aa5ff}.condition{stroke:#f0b04e}.tip-value{fill:#6aa5ff}.tip-condition{fill:#f0b04e}}"""


@dataclass(slots=True)
class _DrawnTable:
    table: str
    landed_as: str = ""
    nodes: "list[LineageNode]" = field(default_factory=list)
    decided: list[str] = field(default_factory=list)
    """The conditions that determine the table's rows, one per line."""

    def head_height(self) -> float:
        return HEAD + LINE * (len(self.decided) + bool(self.landed_as)) + (6 if self.decided or self.landed_as else 0)

    def size(self) -> tuple[float, float]:
        wide = [
            len(self.table) * CHAR * 1.05,
            len(self.landed_as) * SMALL,
            *(len(each) * SMALL for each in self.decided),
        ]
        wide += [(len(node.at.column) + len(_cut(node.type)) + 3) * CHAR for node in self.nodes]
        wide += [(len(_made(node)) + 4) * SMALL for node in self.nodes]
        return max(wide) + 2 * PAD, self.head_height() + sum(_row_height(node) for node in self.nodes) + 4

    def middle_of(self, column: str) -> float:
        """Return the y offset of a column's connections in the box, in pixels.

        An empty name stands for the table's rows.
        """
        y = self.head_height()
        for node in self.nodes:
            if node.at.column == column:
                return y + ROW / 2
            y += _row_height(node)
        return HEAD / 2


def lineage_svg(found: "ColumnLineage") -> str:
    """Return a column lineage as an SVG document."""
    boxes = _boxes(found)
    sizes = {box.table: box.size() for box in boxes.values()}
    ways = [(str(edge.source.table), str(edge.target.table)) for edge in found.edges]
    layers = lay_out_boxes(sizes, ways, BETWEEN)
    notes = [gap_line(gap) for gap in found.gaps]
    title = f"{_root_name(found)}: {'upstream' if found.direction == 'up' else 'downstream'}"
    width = max(layers.left[-1] + layers.widths[-1], len(title) * 8.5, 420.0, *(len(note) * SMALL for note in notes))
    height = TITLE + layers.height + 34 + LINE * len(notes)
    boxes_and_ways = [
        *_lines(found.edges, boxes, layers),
        *(line for box in boxes.values() for line in _box(box, layers, found.root)),
    ]
    return svg_document(title, width, height, boxes_and_ways, _legend(TITLE + layers.height + 26, notes))


def svg_document(title: str, width: float, height: float, drawing: Iterable[str], legend: Iterable[str]) -> str:
    """Return an SVG document with a title, a drawing and a legend. `width` and `height` (pixels) exclude the margin."""
    width, height = width + 2 * MARGIN, height + 2 * MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
        f'height="{height:.0f}" role="img">',
        f"<title>{safe(title)}</title><style>{STYLE}</style>{arrowheads()}",
        '<rect class="paper" width="100%" height="100%"/>',
        f'<g transform="translate({MARGIN:.0f} {MARGIN:.0f})">',
        f'<text class="title" x="0" y="14">{safe(title)}</text>',
        f'<g transform="translate(0 {TITLE:.0f})">',
        *drawing,
        "</g>",
        *legend,
        "</g></svg>",
    ]
    return "\n".join(parts) + "\n"


def lineage_html(found: "ColumnLineage") -> str:
    """Return a column lineage as a self-contained HTML page."""
    title = f"lineage of {_root_name(found)}"
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{safe(title)}</title>\n'
        "<style>:root{color-scheme:light dark}body{margin:0;background:#fff}svg{display:block}"
        "@media(prefers-color-scheme:dark){body{background:#0f172a}}</style></head>\n"
        f"<body>\n{lineage_svg(found)}</body></html>\n"
    )


def _root_name(found: "ColumnLineage") -> str:
    return name_of(found.root) if found.root.column else str(found.root.table)


def _boxes(found: "ColumnLineage") -> dict[str, _DrawnTable]:
    boxes: dict[str, _DrawnTable] = {}
    for node in found.nodes:
        box = boxes.setdefault(
            str(node.at.table), _DrawnTable(str(node.at.table), external_source_of(node) if node.landed else "")
        )
        if node.at.column:
            box.nodes.append(node)
    for each in row_conditions(found):
        if each.clause != "FROM":
            boxes[each.table].decided.append(_cut(f"{each.clause} {each.expression}"))
    for box in boxes.values():
        more = len(box.decided) - MOST_DECIDERS
        if more > 0:
            box.decided[MOST_DECIDERS:] = [f"… {more} more"]
    return boxes


def _box(box: _DrawnTable, layers: BoxLayout, root: ColumnOrigin) -> Iterable[str]:
    width = layers.widths[layers.layer_of[box.table]]
    yield from box_frame(box.table, layers, box.size()[1], "landed" if box.landed_as else "bar")
    at = HEAD + 12
    for text in [*([box.landed_as] if box.landed_as else []), *box.decided]:
        yield f'<text class="small dim" x="{PAD}" y="{at:.1f}">{safe(text)}</text>'
        at += LINE
    at = box.head_height()
    for node in box.nodes:
        row = _row_height(node)
        if node.at == root:
            yield f'<rect class="root" x="1" y="{at:.1f}" width="{width - 2:.1f}" height="{row:.1f}"/>'
        yield f'<text x="{PAD}" y="{at + 14:.1f}">{safe(node.at.column)}</text>'
        yield (
            f'<text class="small dim" x="{width - PAD:.1f}" y="{at + 14:.1f}" text-anchor="end">'
            f"{safe(_cut(node.type))}{_hint(node.type)}</text>"
        )
        if _made(node):
            yield (
                f'<text class="small dim" x="{PAD + 8}" y="{at + 28:.1f}">= {safe(_made(node))}'
                f"{_hint(node.expression)}</text>"
            )
        at += row
    yield "</g>"


def _lines(edges: "Sequence[LineageEdge]", boxes: dict[str, _DrawnTable], layers: BoxLayout) -> Iterable[str]:
    groups: dict[tuple[InputKind, ColumnOrigin, ColumnOrigin], list[str]] = {}
    for edge in sorted(edges, key=lambda edge: edge.kind is InputKind.VALUE):
        text = edge.expression if edge.clause == "SELECT" else f"{edge.clause} {edge.expression}"
        steps = "".join(f"\n  {step.name} = {step.expression}" for step in edge.through)
        place = f"\n{edge.path}:{edge.line}"
        groups.setdefault((edge.kind, edge.source, edge.target), []).append(text + steps + place)
    for (kind, source, target), texts in groups.items():
        y, to_y = boxes[str(source.table)].middle_of(source.column), boxes[str(target.table)].middle_of(target.column)
        path = connection_path(str(source.table), y, str(target.table), to_y, layers)
        yield draw_connection(path, str(kind), f"{name_of(source)} → {name_of(target)}\n" + "\n".join(texts))


def box_frame(table: str, layers: BoxLayout, height: float, bar: str) -> Iterable[str]:
    """Draw a table's frame and name inside a `<g>` that the caller must close. `bar` is the header's CSS class."""
    layer = layers.layer_of[table]
    width = layers.widths[layer]
    yield f'<g transform="translate({layers.left[layer]:.1f} {layers.top[(table,)]:.1f})">'
    yield f'<rect class="box" width="{width:.1f}" height="{height:.1f}" rx="5"/>'
    yield f'<path class="{bar}" d="M.5 {HEAD}V5.5a5 5 0 0 1 5-5H{width - 5.5:.1f}a5 5 0 0 1 5 5V{HEAD}z"/>'
    yield f'<text class="head" x="{PAD}" y="17.5">{safe(table)}</text>'


def connection_path(source: str, y: float, target: str, to_y: float, layers: BoxLayout) -> str:
    """Return the SVG path of a connection. `y` and `to_y` are pixels below the tops of the two boxes."""
    layer = layers.layer_of[source]
    x, y = layers.left[layer] + layers.widths[layer], layers.top[(source,)] + y
    text = f"M{x:.1f} {y:.1f}"
    for start, end, middle in layers.slots(source, target):
        text += _curve(x, y, start, middle) + f"H{end:.1f}"
        x, y = end, middle
    return text + _curve(x, y, layers.left[layers.layer_of[target]] - 7, layers.top[(target,)] + to_y)


def draw_connection(path: str, kind: str, hint: str) -> str:
    """Draw a connection with an arrowhead along an SVG path. `kind` is the CSS class and `hint` the tooltip."""
    return (
        f'<g class="edge"><title>{safe(hint)}</title><path class="near" d="{path}"/>'
        f'<path class="line {kind}" d="{path}" marker-end="url(#{kind})"/></g>'
    )


def _curve(x: float, y: float, to_x: float, to_y: float) -> str:
    """Return a Bézier curve that is horizontal at both ends."""
    bend = (to_x - x) / 2
    return f"C{x + bend:.1f} {y:.1f} {to_x - bend:.1f} {to_y:.1f} {to_x:.1f} {to_y:.1f}"


def arrowheads() -> str:
    """Return the SVG definitions of the arrowheads, referenced as `url(#value)` and `url(#condition)`."""
    markers = "".join(
        f'<marker id="{kind}" viewBox="0 0 8 8" refX="1" refY="4" markerWidth="7" markerHeight="7" '
        f'markerUnits="userSpaceOnUse" orient="auto"><path class="tip-{kind}" d="M0 0L8 4L0 8z"/></marker>'
        for kind in InputKind
    )
    return f"<defs>{markers}</defs>"


def _legend(y: float, notes: Sequence[str]) -> Iterable[str]:
    yield from legend_of(y, (0, "value", "flows into the column"), (210, "condition", "decides rows"))
    for number, note in enumerate(notes, 1):
        yield f'<text class="small" x="0" y="{y + LINE * number + 4:.1f}">? {safe(note)}</text>'


def legend_of(y: float, *kinds: tuple[int, str, str]) -> Iterable[str]:
    """Draw a legend at height `y`. `kinds` are (x position, CSS class of the sample line, explanation)."""
    for x, kind, words in kinds:
        yield f'<path class="{kind}" d="M{x} {y - 4:.1f}h28"/>'
        yield f'<text class="small" x="{x + 36}" y="{y:.1f}">{words}</text>'


def _row_height(node: "LineageNode") -> float:
    return ROW + (LINE if _made(node) else 0)


def _made(node: "LineageNode") -> str:
    """Return the expression to show below a column; empty if the column is a plain copy of one with the same name."""
    return "" if node.expression == node.at.column.lower() else _cut(node.expression)


def _cut(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= LONGEST else f"{flat[: LONGEST - 1]}…"


def _hint(text: str) -> str:
    return f"<title>{safe(text)}</title>" if len(text) > LONGEST else ""


def safe(text: str) -> str:
    """Escape a string for XML, and replace control characters, most of which XML forbids."""
    return escape(replace_control_characters(text))
