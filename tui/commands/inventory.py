"""The command `inventory`: every table of the project and of the environment, for people and for programs."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from core.model.errors import UsageError
from core.text.wording import counted
from tui.command_line.context import CommandContext
from tui.command_line.output import format_table
from tui.presentation.reports.table_hierarchy import kind_of, state_of, table_as_json, version_of
from tui.project_folder.parsing_performance import rare_garbage_collection

if TYPE_CHECKING:
    from core.reports.inventory import InventoryEntry

MOST_READERS = 3
"""Readers that a line names."""


@rare_garbage_collection()
def inventory(context: CommandContext) -> int:
    """List the tables that the arguments ask for."""
    from core.reports.inventory import InventorySelection, select

    args, voice = context.args, context.voice
    every = context.operations.inventory()
    _refuse_unknown(args.product, every)
    selection = InventorySelection(tuple(args.product), args.unused, args.single_reader, args.cross_product)
    found = select(every, selection)
    if voice.as_json:
        context.document("headgate.inventory/1", tables=[as_json(entry) for entry in found])
        return 0
    head = ("TABLE", "PRODUCT", "LAYER", "FORMAT", "KIND", "VER", "STATE", "READS", "READ BY")
    voice.print(format_table(head, [_row(entry) for entry in found], right=("VER", "READS")))
    deployed = sum(entry.serving is not None for entry in found)
    voice.say(f"{context.place.title}: {len(found)} of {counted(len(every), 'table')}, {deployed} deployed")
    return 0


def as_json(entry: "InventoryEntry") -> dict[str, Any]:
    """Return one table of `headgate.inventory/1`; fields may be added within /1, never changed. Not known is null."""
    return {
        **table_as_json(entry),
        "format": entry.format or None,
        "parents": [{"table": parent.table, "streamed": parent.streamed} for parent in entry.parents],
        "children": [{"table": child.table, "streamed": child.streamed} for child in entry.children],
        "other_products": list(entry.products),
    }


def _row(entry: "InventoryEntry") -> tuple[str, ...]:
    more = len(entry.children) - MOST_READERS
    readers = ", ".join(child.table for child in entry.children[:MOST_READERS]) + (f" +{more}" if more > 0 else "")
    return (
        str(entry.table),
        entry.product,
        str(entry.layer),
        entry.format,
        kind_of(entry) if entry.declared else "undeclared",
        version_of(entry),
        state_of(entry),
        str(len(entry.parents) or ""),
        readers,
    )


def _refuse_unknown(products: Iterable[str], entries: "Iterable[InventoryEntry]") -> None:
    """Raise UsageError for a product of no table, with the nearest that has one."""
    from core.text.wording import did_you_mean

    known = sorted({entry.product for entry in entries})
    for product in products:
        if product not in known:
            raise UsageError(
                f"there is no product {product}",
                remedy=did_you_mean(product, known) or f"products: {', '.join(known)}",
            )
