"""The screen of the environment's pools, with what the selected one really does."""

from collections.abc import Sequence

from core.observed.spark_work import WorkOfPool
from tui.presentation.screen_content.changes import rule
from tui.presentation.screen_content.pools import pool_columns, pool_facts, pool_row
from tui.presentation.screen_content.statement_rows import RowContext
from tui.presentation.screen_content.statement_sheet import sheet_lines
from tui.presentation.styling.styled_text import Line
from tui.presentation.styling.table_layout import header
from tui.presentation.view.pools import PoolUse
from tui.screens.console_state import ConsoleState
from tui.screens.table_screen import SplitScreen


class PoolsScreen(SplitScreen):
    """The screen that lists pools. Only the selected pool is asked what it does, and only while the screen is open."""

    screen_name = "pools"

    def __init__(self, state: ConsoleState) -> None:
        super().__init__(state)
        self.uses: dict[str, PoolUse] = {}
        self.work: dict[str, WorkOfPool] = {}

    def fetch(self) -> object:
        backend, chosen = self.state.backend, self.table.cursor_id
        uses = backend.pools()
        name = chosen or (uses[0].row.name if uses else "")
        asked = bool(name) and not self.state.freshness.no_agent
        return uses, {name: backend.pool_work(name)} if asked else {}

    def receive(self, fetched: object) -> None:
        assert isinstance(fetched, tuple)
        uses, self.work = fetched
        self.uses = {use.row.name: use for use in uses}

    def row_ids(self) -> Sequence[str]:
        return [*self.uses]

    def is_gone(self, row: str) -> bool:
        return row not in self.uses

    def head(self, width: int) -> Line:
        return header(pool_columns(width), width)

    def picture(self, row: str, width: int) -> Line:
        return pool_row(self.uses[row], width)

    def refresh_body(self) -> None:
        self.fit_table_height(len(self.uses), max(self.size.height // 3, 4))
        super().refresh_body()
        use, width = self.uses.get(self.table.cursor_id or ""), self.pane.size.width
        if use is not None and width:
            look = RowContext(self.state.glyphs, self.state.clock())
            no_agent, work = self.state.freshness.no_agent, self.work.get(use.row.name)
            facts = pool_facts(use, look, no_agent=no_agent, work=work)
            self.pane.show((rule(use.row.name, width, self.state.glyphs), *sheet_lines(facts, look, width)))

    def move_cursor(self, place: int) -> None:
        super().move_cursor(place)
        # What the pool under the cursor does is read at once.
        self.state.host.read_now()

    def path_and_counts(self) -> tuple[Sequence[str], str]:
        return ("pools",), self.with_below(str(len(self.uses)) if self.was_read else "")

    def copy_line(self) -> str:
        words = f"show {self.table.cursor_id}" if self.table.cursor_id is not None else "list"
        return f"headgate pool {words} --env {self.state.identity.environment}"
