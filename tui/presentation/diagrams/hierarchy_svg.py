"""Draws a table's upstream and downstream tables as an SVG picture, in which data flows from left to right.

A solid line is a stream, a dashed line a static input.
"""

from collections.abc import Iterable, Mapping, Sequence

from core.reports.inventory import UPSTREAM, HierarchyRow
from tui.presentation.diagrams.box_layout import BoxLayout, lay_out_boxes
from tui.presentation.diagrams.lineage_svg import (
    BETWEEN,
    CHAR,
    HEAD,
    LINE,
    PAD,
    SMALL,
    TITLE,
    box_frame,
    connection_path,
    draw_connection,
    legend_of,
    safe,
    svg_document,
)
from tui.presentation.reports.table_hierarchy import kind_of, lag_of, state_of, version_of

Ways = Mapping[tuple[str, str], bool]
"""Maps pairs of tables (source, target) to True if the target streams from the source, False for a static input."""


def hierarchy_svg(trees: Sequence[tuple[str, Sequence[HierarchyRow]]]) -> str:
    """Draw a table's upstream and downstream trees as one SVG document, in which each table appears once.

    `trees` contains at least one pair of (direction, rows). The first of the rows is the table itself.
    """
    root = trees[0][1][0].table
    boxes = {str(branch.table): branch for _, branches in reversed(trees) for branch in branches if not branch.again}
    texts = {name: _texts(branch) for name, branch in boxes.items()}
    ways = {way: streamed for direction, branches in trees for way, streamed in _ways(direction, branches)}
    layers = lay_out_boxes({name: _size(name, texts[name]) for name in boxes}, ways, BETWEEN)
    title = f"{root}: " + " and ".join("upstream" if way == UPSTREAM else "downstream" for way, _ in trees)
    width = max(layers.left[-1] + layers.widths[-1], len(title) * 8.5, 420.0)
    boxes_and_ways = [
        *_lines(ways, layers),
        *(line for name, text in texts.items() for line in _box(boxes[name], text, layers, is_root=name == root)),
    ]
    below = TITLE + layers.height
    return svg_document(title, width, below + 34, boxes_and_ways, _legend(below + 26))


def _ways(direction: str, branches: Sequence[HierarchyRow]) -> Iterable[tuple[tuple[str, str], bool]]:
    way: list[HierarchyRow] = []
    for branch in branches:
        del way[branch.depth :]
        if way:
            ends = (str(branch.table), str(way[-1].table))
            yield (ends if direction == UPSTREAM else ends[::-1]), branch.streamed
        way.append(branch)


def _texts(branch: HierarchyRow) -> tuple[str, ...]:
    entry = branch.entry
    if entry is None:
        return ("neither declared nor deployed",)
    serves = [kind_of(entry), version_of(entry), state_of(entry)]
    lag = lag_of(entry)
    more = f"{branch.hidden} more at this level" if branch.hidden else ""
    texts = (
        " ".join(filter(None, (entry.product, entry.layer))),
        " ".join(filter(None, [*serves, f"lag {lag}" if lag else ""])),
        more,
    )
    return tuple(filter(None, texts))


def _size(name: str, texts: Sequence[str]) -> tuple[float, float]:
    wide = max(len(name) * CHAR * 1.05, *(len(text) * SMALL for text in texts))
    return wide + 2 * PAD, HEAD + LINE * len(texts) + 6


def _box(branch: HierarchyRow, texts: Sequence[str], layers: BoxLayout, *, is_root: bool) -> Iterable[str]:
    external = branch.entry is not None and branch.entry.external
    bar = "root" if is_root else "landed" if external else "bar"
    name = str(branch.table)
    yield from box_frame(name, layers, _size(name, texts)[1], bar)
    for number, text in enumerate(texts):
        yield f'<text class="small dim" x="{PAD}" y="{HEAD + 13 + LINE * number:.1f}">{safe(text)}</text>'
    yield "</g>"


def _lines(ways: Ways, layers: BoxLayout) -> Iterable[str]:
    for (source, target), streamed in sorted(ways.items(), key=lambda way: way[1]):
        path = connection_path(source, HEAD / 2, target, HEAD / 2, layers)
        yield draw_connection(path, "value" if streamed else "condition", f"{source} → {target}")


def _legend(y: float) -> Iterable[str]:
    return legend_of(y, (0, "value", "streams"), (130, "condition", "reads as a static side"))
