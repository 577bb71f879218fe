"""The tables upstream and downstream of a table, as the rows of a tree and as nested JSON."""

from collections.abc import Sequence
from typing import Any

from core.reports.inventory import UPSTREAM, HierarchyRow, InventoryEntry
from tui.presentation.styling.value_formatting import lag_words

CAPTIONS = {"up": "upstream", "down": "feeds"}

HEAD = ("TABLE", "PRODUCT", "LAYER", "KIND", "VER", "STATE", "LAG")
_LEFT_OUT = ((), ("LAYER",), ("LAYER", "PRODUCT"))
"""Columns that a narrow terminal omits, step by step. The name of the table is always shown."""


def kind_of(entry: InventoryEntry) -> str:
    """Return `external`, or a label for the state that the table's statement keeps between batches (`kept_words`)."""
    return "external" if entry.external else kept_words(stateful=entry.stateful, keyed=entry.keyed)


def kept_words(*, stateful: bool, keyed: bool) -> str:
    """Return `stateless`, `stateful`, `keyed`, or `keyed, stateful`. A table updated by key is never `stateless`."""
    if keyed:
        return "keyed, stateful" if stateful else "keyed"
    return "stateful" if stateful else "stateless"


def version_of(entry: InventoryEntry) -> str:
    """Return a table's serving version, such as `v2`; empty if the table is external or has no serving version."""
    return f"v{entry.serving.version}" if entry.serving and entry.serving.version else ""


def state_of(entry: InventoryEntry) -> str:
    """Return the state of a table's serving version; empty if the table is external or not deployed."""
    return "" if entry.external or entry.serving is None else str(entry.serving.state)


def lag_of(entry: InventoryEntry) -> str:
    """Return a table's lag in rows, with `~` if estimated; empty if the table is external or was never measured."""
    serving = entry.serving
    return "" if entry.external or serving is None or serving.lag_rows is None else lag_words(serving)


def rows(trees: Sequence[tuple[str, Sequence[HierarchyRow]]], width: int) -> list[tuple[str, ...]]:
    """Return a table and its trees as rows of cells, header first. Columns that do not fit `width` are omitted."""
    found = [HEAD, _cells(trees[0][1][0], "")]
    for direction, branches in trees:
        below = [_cells(branch, "  " * branch.depth) for branch in branches[1:]]
        found += [_alone(CAPTIONS[direction]), *(below or [_alone("  nothing")])]
    widths = [max(len(row[at]) for row in found) for at in range(len(HEAD))]
    for without in _LEFT_OUT:
        kept = [at for at, name in enumerate(HEAD) if name not in without]
        if sum(widths[at] + 2 for at in kept) - 2 <= width:
            break
    return [tuple(row[at] for at in kept) for row in found]


def nested(branches: Sequence[HierarchyRow], direction: str) -> dict[str, Any]:
    """Return a tree as nested objects. Every node lists the nodes below it as `parents` (up) or `children` (down)."""
    key = "parents" if direction == UPSTREAM else "children"
    way: list[dict[str, Any]] = []
    for branch in branches:
        found = {**_described(branch), key: []}
        del way[branch.depth :]
        if way:
            way[-1][key].append(found)
        way.append(found)
    return way[0]


def table_as_json(entry: InventoryEntry) -> dict[str, Any]:
    """Return the JSON fields of a table that inventory and hierarchy have in common. Unknown values are null."""
    serving = entry.serving
    return {
        "table": str(entry.table),
        "product": entry.product,
        "layer": str(entry.layer),
        "external": entry.external,
        "stateful": entry.stateful,
        "keyed": entry.keyed,
        "owner": entry.owner or None,
        "declared": entry.declared,
        "folder": entry.folder or None,
        "files": list(entry.files),
        "version": serving.version if serving else None,
        "state": str(serving.state) if serving else None,
    }


def _described(branch: HierarchyRow) -> dict[str, Any]:
    entry = branch.entry
    if entry is None:
        return {"table": str(branch.table), "declared": False, "state": None, "streamed": branch.streamed}
    serving = entry.serving
    return {
        **table_as_json(entry),
        "lag_rows": serving.lag_rows if serving else None,
        "trend": serving.trend if serving else None,
        "streamed": branch.streamed if branch.depth else None,
        "again": branch.again,
        "hidden": branch.hidden,
    }


def _cells(branch: HierarchyRow, indent: str) -> tuple[str, ...]:
    entry = branch.entry
    marks = [word for word, holds in (("static", not branch.streamed), ("again", branch.again)) if holds]
    marks += [f"{branch.hidden} more"] if branch.hidden else []
    name = indent + branch.table + (f" ({', '.join(marks)})" if marks else "")
    if entry is None:
        return (name, "", "", "gone", "", "", "")
    return (name, entry.product, str(entry.layer), kind_of(entry), version_of(entry), state_of(entry), lag_of(entry))


def _alone(text: str) -> tuple[str, ...]:
    return (text, *[""] * (len(HEAD) - 1))
