"""Inventory of all tables with their upstream and downstream tables and serving version, as a list or hierarchy.

The upstream tables of a declared table are the tables that its files read. Its downstream tables are all tables whose
files or deployed SQL read it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from core.lineage.table_graph import distances
from core.model.names import TableName
from core.observed.versions import StatementLine
from core.project.model import Layer, Project, Table

SINKS = frozenset({Layer.FACT, Layer.VIEW})
"""Layers whose tables are meant for readers outside the project, and so may have no reader inside it."""


@dataclass(frozen=True, slots=True)
class InventoryReading:
    """A table that another table reads, or that reads another table."""

    table: TableName
    streamed: bool
    """True if any of the reads is a stream."""


@dataclass(frozen=True, slots=True)
class InventoryEntry:
    """A table with all details that the inventory shows."""

    table: TableName
    product: str
    layer: str
    format: str
    external: bool
    stateful: bool
    """True if the statement keeps state; False for an external table."""
    keyed: bool
    """True if the statement upserts by key; False for an external table."""
    owner: str
    folder: str
    """Project folder, with forward slashes; empty if the table is no longer declared."""
    files: tuple[str, ...]
    """Path of the DDL file, then of the statement's file if there is one."""
    parents: tuple[InventoryReading, ...]
    """Direct upstream tables, sorted by name."""
    children: tuple[InventoryReading, ...]
    """Direct downstream tables, sorted by name."""
    products: tuple[str, ...]
    """Other products whose tables read this table, sorted."""
    declared: bool
    serving: StatementLine | None
    """The serving version; None if the table is not deployed or there is no ledger."""

    @property
    def unused(self) -> bool:
        """True if no table reads the table, and it is neither a fact nor a view."""
        return not self.children and self.layer not in SINKS


@dataclass(frozen=True, slots=True)
class InventorySelection:
    """A filter for tables; a table passes if it meets all conditions."""

    products: tuple[str, ...] = ()
    """Products to include; empty means all."""
    unused: bool = False
    single_reader: bool = False
    cross_product: bool = False

    def takes(self, entry: InventoryEntry) -> bool:
        """True if a table passes the filter."""
        return (
            (not self.products or entry.product in self.products)
            and (not self.unused or entry.unused)
            and (not self.single_reader or len(entry.children) == 1)
            and (not self.cross_product or bool(entry.products))
        )


def inventory_of(project: Project, serving: Mapping[TableName, StatementLine]) -> tuple[InventoryEntry, ...]:
    """Return the entries of all declared and deployed tables, sorted by name."""
    names = sorted({*project.tables, *serving})
    parents: dict[TableName, tuple[InventoryReading, ...]] = {}
    children: dict[TableName, list[InventoryReading]] = {}
    product: dict[TableName, str] = {}
    for name in names:
        declared, deployed = project.tables.get(name), serving.get(name)
        bound = _bound(deployed) if deployed is not None else {}
        readings = bound if declared is None else _declared_reads(declared)
        parents[name] = tuple([InventoryReading(parent, streamed) for parent, streamed in sorted(readings.items())])
        product[name] = declared.product if declared is not None else serving[name].product
        # A running version may still read tables that its new text no longer reads.
        for parent, streamed in (bound | readings).items():
            children.setdefault(parent, []).append(InventoryReading(name, streamed))
    found = []
    for name in names:
        declared, readers = project.tables.get(name), tuple(children.get(name, ()))
        others = tuple(sorted({product[reader.table] for reader in readers} - {product[name]}))
        if declared is not None:
            found.append(_declared(declared, parents[name], readers, others, serving.get(name)))
        else:
            found.append(_deployed(name, parents[name], readers, others, serving[name]))
    return tuple(found)


def select(entries: Iterable[InventoryEntry], selection: InventorySelection) -> tuple[InventoryEntry, ...]:
    """Return the entries that pass the filter, in the order of `entries`."""
    return tuple(entry for entry in entries if selection.takes(entry))


def _declared_reads(table: Table) -> dict[TableName, bool]:
    found: dict[TableName, bool] = {}
    for read in table.parsed.reads if table.parsed is not None else ():
        found[read.table] = read.streaming or found.get(read.table, False)
    return found


def _bound(serving: StatementLine) -> dict[TableName, bool]:
    found: dict[TableName, bool] = {}
    for binding in serving.bindings:
        found[binding.parent] = binding.streamed or found.get(binding.parent, False)
    return found


def _declared(
    table: Table,
    parents: tuple[InventoryReading, ...],
    children: tuple[InventoryReading, ...],
    products: tuple[str, ...],
    serving: StatementLine | None,
) -> InventoryEntry:
    return InventoryEntry(
        table=table.name,
        product=table.product,
        layer=table.layer,
        format=table.parsed_ddl.format,
        external=table.external,
        stateful=table.parsed is not None and table.parsed.stateful,
        keyed=table.settings.upserts and not table.external,
        owner=table.settings.owner,
        folder=table.manifest.rpartition("/")[0] or table.folder,
        files=(table.ddl.file, table.dml.file) if table.dml is not None else (table.ddl.file,),
        parents=parents,
        children=children,
        products=products,
        declared=True,
        serving=serving,
    )


def _deployed(
    name: TableName,
    parents: tuple[InventoryReading, ...],
    children: tuple[InventoryReading, ...],
    products: tuple[str, ...],
    serving: StatementLine,
) -> InventoryEntry:
    return InventoryEntry(
        table=name,
        product=serving.product,
        layer=serving.layer,
        format=serving.format,
        external=serving.external,
        stateful=serving.stateful,
        keyed=serving.keyed,
        owner=serving.owner,
        folder="",
        files=(),
        parents=parents,
        children=children,
        products=products,
        declared=False,
        serving=serving,
    )


UPSTREAM, DOWNSTREAM = "up", "down"


@dataclass(frozen=True, slots=True)
class HierarchyRow:
    """A row of a hierarchy, followed by the rows of the table's parents or children, depending on the direction."""

    table: TableName
    entry: InventoryEntry | None
    """The table's inventory entry; None if the table is read but neither declared nor deployed."""
    depth: int
    """Number of levels below the root of the hierarchy, whose depth is 0."""
    streamed: bool
    """True if a stream connects the table to the row under which it is listed; also True for the root."""
    again: bool = False
    """True if the table's parents or children are listed below another row of the same table."""
    hidden: int = 0
    """Number of parents or children that are not listed because of the depth limit."""


def hierarchy(
    entries: Mapping[TableName, InventoryEntry], root: TableName, direction: str, *, depth: int | None = None
) -> tuple[HierarchyRow, ...]:
    """Return the rows for tables upstream or downstream of `root`, at most `depth` levels away, in linear time."""
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
