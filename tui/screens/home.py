"""The home screen: the tree of tables by product and layer, or by lineage, with more panes on a wide terminal."""

from collections.abc import Hashable, Sequence

from textual.containers import Horizontal
from textual.widget import Widget

from core.model.names import TableName
from core.text.wording import counted
from state.ledger_snapshot import StatementDetails
from tui.presentation.screen_content.home import tree_page
from tui.presentation.screen_content.statement_rows import NARROW_TREE_COLUMNS, columns_for, statement_row, tree_row
from tui.presentation.styling.styled_text import Line, Tone
from tui.presentation.styling.table_layout import TableColumn, header
from tui.presentation.view.ledger_view import LedgerView
from tui.presentation.view.statement_tree import (
    LAYER_NAMES,
    TreeFolding,
    TreeRow,
    branches,
    by_lineage,
    by_product,
    tables_of,
    toggled_branch_id,
)
from tui.screens.console_state import ConsoleState
from tui.screens.statements import StatementListScreen
from tui.widgets.line_widgets import RowTable, ScrollingLines, with_gutter

RESTS_S = 0.4
"""Seconds without a key press after which the inspector follows the cursor, to save output on slow lines."""


class HomeScreen(StatementListScreen):
    """The home screen, with the tree of all tables."""

    screen_name = "home"

    def __init__(self, state: ConsoleState) -> None:
        super().__init__(state)
        self.folding = TreeFolding()
        self.lineage = False
        self.entries: dict[str, TreeRow] = {}
        self._held: dict[str, TreeRow] = {}
        self._made_of: tuple[LedgerView, Hashable] | None = None
        """The view and shape from which the rows were computed; if either changes, the rows are computed again."""
        self._row_ids: tuple[str, ...] = ()
        self.branches: frozenset[str] = frozenset()
        """All branches of the tree by product, shown or not."""
        self.details: StatementDetails | None = None
        self.list = RowTable(state.painter, id="beside")
        self.list.active = False
        self.inspector = ScrollingLines(state.painter, id="inspector")
        self.below_left = ScrollingLines(state.painter, id="below-left")
        self.below_right = ScrollingLines(state.painter, id="below-right")

    def body(self) -> Sequence[Widget]:
        return (
            Horizontal(self.table, self.list, self.inspector, id="upper"),
            Horizontal(self.below_left, self.below_right, id="lower"),
        )

    def fetch(self) -> object:
        entry = self.entry_of(self.table.cursor_id)
        if entry is None or entry.statement is None or not self.has_class("-wide"):
            return None
        return self.state.backend.detail(entry.statement.table)

    def receive(self, fetched: object) -> None:
        if isinstance(fetched, StatementDetails):
            self.details = fetched

    def row_ids(self) -> Sequence[str]:
        view = self.state.view
        made_of = (view, (self.shape(), self.page))
        if self._made_of is not None and self._made_of[0] is view and self._made_of[1] == made_of[1]:
            return self._row_ids
        self.branches = frozenset(branches(view))
        listing = by_lineage if self.lineage else by_product
        forced = bool(self.typed.filter_text) or self.faults
        closed = self.folding.closed(view, self.page, _branches_above(self.entry_of(self.table.cursor_id)))
        entries = listing(view, closed, self.shows if forced else None, force_open=forced)
        # Rows that keep their positions may be missing from the new entries, and are drawn from the former ones.
        known = {**self._held, **self.entries}
        self._held = {row: known[row] for row in self.table.ids if row in known}
        self.entries = {entry.id: entry for entry in entries}
        self._made_of, self._row_ids = made_of, tuple(self.entries)
        return self._row_ids

    def shape(self) -> Hashable:
        folding = self.folding
        return (self.typed.filter_text, folding.mode, frozenset(folding.chosen.items()), self.lineage, self.faults)

    @property
    def page(self) -> int:
        """Number of tree rows that fit above a one-line status message, even if the current message is longer."""
        return tree_page(self.size.width, self.size.height)

    def columns(self) -> tuple[TableColumn, ...]:
        """Return the columns for the current width."""
        if self.has_class("-wide"):
            return NARROW_TREE_COLUMNS
        return columns_for(self.table.size.width, wide=self.wide)

    def head(self, width: int) -> Line:
        return header(self.columns(), width)

    def picture(self, row: str, width: int) -> Line:
        entry = self.entry_of(row)
        assert entry is not None
        return tree_row(entry, self.columns(), width, self.row_context(), self.state.view)

    def is_gone(self, row: str) -> bool:
        if row.startswith(("product:", "layer:")):
            return row not in self.branches
        table, beside, version = row.partition("@v")
        if beside:
            return int(version) not in {one.version for one in self.state.view.others.get(TableName(table), ())}
        return self.state.view.statement(table.partition("<")[0]) is None

    def successor(self, row: str) -> str:
        """Return the row of a version's table, so that a cutover never moves the cursor to another table."""
        return row.partition("@v")[0]

    def entry_of(self, row: str | None) -> TreeRow | None:
        """Return the tree entry of a row. For a vanished row that is still shown, return the row's last entry."""
        return self.entries.get(row or "") or self._held.get(row or "")

    def tables_of(self, row: str) -> tuple[str, ...]:
        entry = self.entry_of(row)
        return tables_of(entry, self.state.view) if entry else ()

    def path_and_counts(self) -> tuple[Sequence[str], str]:
        total = len(self.state.view.statements)
        shown = total
        if self.typed.filter_text or self.faults:
            shown = sum(1 for statement in self.state.view.statements.values() if self.shows(statement))
        counts = f"{shown} of {total}" if shown != total else counted(total, "table")
        if self.table.below:
            counts += f", {counted(self.table.below, 'more row')} below"
        entry = self.entry_of(self.table.cursor_id)
        return _path(entry, lineage=self.lineage), self.marks_and_faults() + counts

    def refresh_body(self) -> None:
        super().refresh_body()
        if self.has_class("-wide"):
            self._refresh_beside()

    def _refresh_beside(self) -> None:
        from tui.presentation.screen_content.inspector import changes_lines, event_lines, inspector_lines

        width = self.list.size.width
        if not width:
            return
        columns = columns_for(width, wide=self.wide)
        look = self.row_context()
        view = self.state.view
        ids: list[str] = [name for name, statement in view.statements.items() if self.shows(statement)]
        if self.holds_order and set(self.list.ids) == set(ids):
            ids = list(self.list.ids)
        entry = self.entry_of(self.table.cursor_id)
        statement = entry.statement if entry else None

        def picture(row: str) -> Line:
            found = view.statement(row)
            drawn = statement_row(found, columns, width, look) if found else self.vanished.line(row)
            return with_gutter(drawn, look.glyphs.mark, Tone.MARK) if row in self.marks else drawn

        self.list.show(self.list.ids if list(self.list.ids) == ids else ids, picture, header(columns, width))
        if statement is not None:
            self.list.choose(statement.table)
        if self.state.monotonic() - self.key_at >= RESTS_S:
            room = self.inspector.size
            self.inspector.show(inspector_lines(entry, self.details, view, look, width=room.width, height=room.height))
        self.below_left.show(event_lines(view, look, self.below_left.size.width))
        self.below_right.show(changes_lines(view, look, self.below_right.size.width))

    # Keys.

    def do_open(self, key: str) -> None:
        entry = self.entry_of(self.table.cursor_id)
        if entry is None:
            return
        if entry.open is False:
            self.folding.chosen[toggled_branch_id(entry)] = False
        elif entry.kind in ("product", "layer"):
            if key == "enter":
                self.folding.chosen[toggled_branch_id(entry)] = True
            else:
                self.do_down(key)
        elif entry.statement is not None:
            self.state.host.open_screen("detail", table=entry.statement.table)

    def do_close(self, key: str) -> None:
        entry = self.entry_of(self.table.cursor_id)
        if entry is None:
            return
        if entry.open:
            self.folding.chosen[toggled_branch_id(entry)] = True
            return
        for row in reversed(self.table.ids[: self.table.cursor]):
            above = self.entry_of(row)
            if above is not None and above.depth < entry.depth:
                self.table.choose(row)
                return

    def do_clear(self, key: str) -> None:
        if self.typed.filter_text:
            self.typed.filter_text = ""
        elif self.faults:
            self.faults = False
        elif self.marks:
            self.marks.clear()
        else:
            self.state.notify("this is the top level: q leaves; statements and runs continue", Tone.DIM)

    def do_quit(self, key: str) -> None:
        self.state.host.quit()

    def do_flip(self, key: str) -> None:
        self.lineage = not self.lineage

    def do_fold(self, key: str) -> None:
        """Change the folding mode.

        If that hides the cursor's row, the cursor moves to the branch that contains the row.
        """
        if self.lineage:
            self.state.notify("the lineage does not fold: t shows the products", Tone.DIM)
            return
        view, page = self.state.view, self.page
        self.folding.change_mode(view, page)
        closed = self.folding.closed(view, page)
        above = _branches_above(self.entry_of(self.table.cursor_id))
        self.table.cursor_id = next((branch for branch in above if branch in closed), self.table.cursor_id)
        self.state.notify(self.folding.mode, Tone.DIM)

    def do_next_tab(self, key: str) -> None:
        self.state.host.open_screen("statements", filter_text=self.typed.filter_text)

    def do_previous_tab(self, key: str) -> None:
        self.do_next_tab(key)


def _branches_above(entry: TreeRow | None) -> tuple[str, ...]:
    """Return the ids of the product tree's branches that contain a row, outermost first."""
    if entry is None or entry.kind == "product":
        return ()
    if entry.statement is None:
        return (f"product:{entry.id.removeprefix('layer:').partition('/')[0]}",)
    line = entry.statement.line
    return (f"product:{line.product}", f"layer:{line.product}/{line.layer}")


def _path(entry: TreeRow | None, *, lineage: bool) -> tuple[str, ...]:
    if entry is None:
        return ("lineage",) if lineage else ("all",)
    if entry.statement is not None and not lineage:
        line = entry.statement.line
        return (line.product, LAYER_NAMES.get(line.layer, ""), line.table)
    if entry.kind == "layer":
        return (entry.id.removeprefix("layer:").partition("/")[0], entry.name)
    return ("lineage", entry.name) if lineage else (entry.name,)
