"""The rows of the home screen's tree, the health of its branches, and which branches are collapsed."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from core.model.names import TableName
from core.model.states import State, Trend, counts_for_many, summary_state, worst_trend
from tui.presentation.view.ledger_view import LedgerView, StatementView

LAYER_NAMES = {
    "source": "sources",
    "intermediate": "intermediates",
    "dimension": "dimensions",
    "fact": "facts",
    "view": "views",
}


@dataclass(frozen=True, slots=True)
class BranchHealth:
    """The aggregated health of all statements below a branch of the tree."""

    statements: int
    """Number of statements, without external tables."""
    word: str
    state: State
    behind_s: float | None
    """Age of the oldest pending input of any statement, in seconds."""
    lag_rows: int | None
    trend: Trend
    errors: int


@dataclass(frozen=True, slots=True)
class TreeRow:
    """A row of the tree. `kind` is product, layer, table, version, or `again` for a table that is also shown above."""

    id: str
    kind: str
    depth: int
    name: str
    open: bool | None
    """True if the row is expanded, False if it is collapsed; None if there is nothing below it."""
    statement: StatementView | None = None
    version: int = 0
    """Version of a row of kind version; 0 for other rows."""
    tables: tuple[TableName, ...] = ()
    """The table of a row of kind table, version or again."""
    below: tuple[TableName, ...] = ()
    """The tables below a branch, including external tables."""


def roll_up(statements: Iterable[StatementView]) -> BranchHealth:
    """Aggregate the health of a branch's statements in one pass."""
    states: dict[State, int] = {}
    lag, known, errors, total, wrong = 0, False, 0, 0, 0
    behind: float | None = None
    trends: set[Trend] = set()
    for statement in statements:
        if statement.external:
            wrong += statement.faulty
            continue
        total += 1
        states[statement.state] = states.get(statement.state, 0) + 1
        if counts_for_many(statement.trend, statement.state, statement.lag_rows):
            trends.add(statement.trend)
        errors += statement.errors
        if statement.line.behind_s is not None:
            behind = max(behind or 0.0, statement.line.behind_s)
        if statement.lag_rows is not None:
            lag, known = lag + statement.lag_rows, True
    if not total:
        word, state = (f"{wrong} wrong", State.FAILED) if wrong else ("external", State.ABSENT)
        return BranchHealth(0, word, state, None, None, Trend.IDLE, 0)
    state = summary_state(states)
    word = f"{states[state]} {state}"
    if wrong and state is not State.FAILED:
        word, state = f"{wrong} wrong", State.FAILED
    return BranchHealth(total, word, state, behind, lag if known else None, worst_trend(trends), errors)


def by_product(
    view: LedgerView, closed: frozenset[str], shows: Callable[[StatementView], bool] | None, *, force_open: bool
) -> tuple[TreeRow, ...]:
    """Return the rows of the tree by product.

    `closed` contains the ids of collapsed branches; with `force_open`, all branches are expanded. `shows` selects the
    statements; None selects all statements.
    """
    entries: list[TreeRow] = []
    known = view.statements
    for product, layers in view.families.items():
        shown = layers
        if shows is not None:
            shown = {layer: tuple(name for name in names if shows(known[name])) for layer, names in layers.items()}
        below = tuple(name for names in shown.values() for name in names)
        if not below:
            continue
        node = f"product:{product}"
        is_open = force_open or node not in closed
        entries.append(TreeRow(node, "product", 0, product, is_open, below=below))
        for layer, names in shown.items() if is_open else ():
            if not names:
                continue
            node = f"layer:{product}/{layer}"
            layer_open = force_open or node not in closed
            entries.append(TreeRow(node, "layer", 1, LAYER_NAMES.get(layer, layer), layer_open, below=names))
            for name in names if layer_open else ():
                entries.extend(_leaf(view, known[name], 2))
    return tuple(entries)


def _leaf(view: LedgerView, statement: StatementView, depth: int) -> Iterable[TreeRow]:
    yield TreeRow(statement.table, "table", depth, statement.table, None, statement, tables=(statement.table,))
    for row in view.others.get(statement.table, ()):
        yield TreeRow(
            f"{row.table}@v{row.version}",
            "version",
            depth + 1,
            f"v{row.version}",
            None,
            statement,
            row.version,
            tables=(statement.table,),
        )


def by_lineage(
    view: LedgerView, closed: frozenset[str], shows: Callable[[StatementView], bool] | None, *, force_open: bool
) -> tuple[TreeRow, ...]:
    """Return the rows of the tree from sources to sinks. The arguments are those of `by_product`.

    A table with several parents is expanded only at its first row.
    """
    shown = {table for table, statement in view.statements.items() if shows is None or shows(statement)}
    children: Mapping[TableName, tuple[TableName, ...]] = {
        table: tuple(reader for reader in view.statements[table].readers if reader in shown) for table in shown
    }
    has_parent = {child for below in children.values() for child in below}
    entries: list[TreeRow] = []
    done: set[TableName] = set()
    # An explicit stack, because a chain of statements may exceed the recursion limit of Python.
    stack = [(table, 0, "") for table in sorted(shown - has_parent, reverse=True)]
    while stack:
        table, depth, path = stack.pop()
        statement = view.statements[table]
        if table in done:
            entries.append(TreeRow(f"{table}<{path}", "again", depth, table, None, statement, tables=(table,)))
            continue
        done.add(table)
        below = children[table]
        is_open = force_open or f"down:{table}" not in closed
        entries.append(TreeRow(table, "table", depth, table, is_open if below else None, statement, tables=(table,)))
        if is_open:
            stack.extend((child, depth + 1, table) for child in reversed(below))
    return tuple(entries)


def toggled_branch_id(entry: TreeRow) -> str:
    """Return the id of the branch that expands or collapses when a row is toggled."""
    return entry.id if entry.kind in ("product", "layer") else f"down:{entry.id}"


def branches(view: LedgerView) -> tuple[str, ...]:
    """Return the ids of all branches of the tree by product."""
    products = [f"product:{product}" for product in view.families]
    return (*products, *(f"layer:{product}/{layer}" for product, layers in view.families.items() for layer in layers))


def tables_of(entry: TreeRow, view: LedgerView) -> tuple[TableName, ...]:
    """Return the tables that an action on a row applies to: the row's table, or all tables below a branch.

    External tables below a branch are excluded.
    """
    if entry.tables:
        return entry.tables
    return tuple(name for name in entry.below if (found := view.statement(name)) is not None and not found.external)


def health_of(entry: TreeRow, view: LedgerView) -> BranchHealth:
    """Aggregate the health of the statements below a branch, in time linear in their number."""
    return roll_up(found for name in entry.below if (found := view.statement(name)) is not None)


class FoldingMode(StrEnum):
    """The rule for collapsing branches by default. Its value is shown to the user."""

    FIT = "as many branches open as fit"
    QUIET = "quiet branches folded"
    NONE = "all branches open"


class TreeFolding:
    """Tracks collapsed branches.

    A branch that is no longer quiet (see `quiet_branches`) is expanded, unless the user collapsed it.
    """

    def __init__(self) -> None:
        self.mode = FoldingMode.FIT
        self.chosen: dict[str, bool] = {}
        """The user's choice by branch id, True for collapsed; kept until the mode changes."""
        self._folded: frozenset[str] = frozenset()
        self._made_for: tuple[object, ...] = ()

    def closed(self, view: LedgerView, rows: int, kept: Collection[str] = ()) -> frozenset[str]:
        """Return the branches to collapse if `rows` rows fit on screen.

        Branches in `kept` are collapsed only if the user has collapsed them.
        """
        made_for = (self.mode, rows, rows_of(view, ()))
        if made_for != self._made_for:
            self._made_for = made_for
            self._folded = _folded(view, self.mode, rows).difference(kept)
        elif self._folded:
            self._folded &= quiet_branches(view)
        by_person = {branch for branch, is_closed in self.chosen.items() if is_closed}
        return frozenset((self._folded | by_person) - (self.chosen.keys() - by_person))

    def change_mode(self, view: LedgerView, rows: int) -> None:
        """Switch to the next mode that changes the tree, and forget which branches the user expanded or collapsed."""
        now, modes = self.closed(view, rows), tuple(FoldingMode)
        self.chosen = {}
        at = modes.index(self.mode) + 1
        for mode in (*modes[at:], *modes[:at]):
            self.mode = mode
            if self.closed(view, rows) != now:
                return


def folded_to_fit(view: LedgerView, rows: int) -> frozenset[str]:
    """Return the branches to collapse so that the tree has at most `rows` rows, if possible.

    Only quiet branches (see `quiet_branches`) are collapsed. Products are expanded before layers, and small branches
    before large ones.
    """
    closed = quiet_branches(view)
    room = rows - rows_of(view, closed)
    for branch, added in (*_sorted(_layers_in(view)), *_sorted(_rows_in_layers(view))):
        if branch in closed and added <= room and _product_of(branch) not in closed - {branch}:
            closed, room = closed - {branch}, room - added
    return closed


def _layers_in(view: LedgerView) -> dict[str, int]:
    return {f"product:{product}": len(layers) for product, layers in view.families.items()}


def _rows_in_layers(view: LedgerView) -> dict[str, int]:
    return {
        f"layer:{product}/{layer}": sum(1 + len(view.others.get(name, ())) for name in names)
        for product, layers in view.families.items()
        for layer, names in layers.items()
    }


def _sorted(added: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(added.items(), key=lambda item: item[1])


def _product_of(branch: str) -> str:
    return f"product:{branch.split(':', 1)[1].split('/', 1)[0]}"


def quiet_branches(view: LedgerView) -> frozenset[str]:
    """Return the ids of branches without faults, staged marks or additional versions."""
    found = set(branches(view))
    for statement in view.statements.values():
        if statement.faulty or statement.staged or statement.table in view.others:
            line = statement.line
            found -= {f"product:{line.product}", f"layer:{line.product}/{line.layer}"}
    return frozenset(found)


def rows_of(view: LedgerView, closed: Collection[str]) -> int:
    """Return the number of rows in the tree by product when the branches in `closed` are collapsed."""
    rows = len(view.families)
    for product, layers in view.families.items():
        for layer, names in layers.items() if f"product:{product}" not in closed else ():
            is_open = f"layer:{product}/{layer}" not in closed
            rows += 1 + (len(names) + sum(len(view.others.get(name, ())) for name in names) if is_open else 0)
    return rows


def _folded(view: LedgerView, mode: FoldingMode, rows: int) -> frozenset[str]:
    match mode:
        case FoldingMode.FIT:
            return folded_to_fit(view, rows)
        case FoldingMode.QUIET:
            return quiet_branches(view)
        case FoldingMode.NONE:
            return frozenset()
