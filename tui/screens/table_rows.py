"""Rows of a table, read once when the screen opens, and again when asked to."""

from collections.abc import Sequence

from core.text.wording import counted
from tui.presentation.screen_content.statement_detail import row_lines
from tui.presentation.styling.styled_text import Line, Tone, line
from tui.screens.console_state import ConsoleState
from tui.screens.text_screen import TextScreen

ROWS = 100


class RowsScreen(TextScreen):
    """Some rows, in no order."""

    screen_name = "rows"

    def __init__(self, state: ConsoleState, *, table: str) -> None:
        super().__init__(state)
        self.table_name = table
        self.rows: tuple[tuple[str, ...], list[list[object]]] | None = None
        self._asked = False

    def fetch(self) -> object:
        # The pool works for each reading, so a table is not read with every turn of the poller.
        if self._asked:
            return None
        self._asked = True
        return self.state.backend.agent.peek(self.table_name, version=None, limit=ROWS)

    def receive(self, fetched: object) -> None:
        if isinstance(fetched, tuple):
            self.rows = fetched

    def do_refresh(self, key: str) -> None:
        self._asked = False
        super().do_refresh(key)

    def content(self, width: int) -> Sequence[Line]:
        if self.rows is None:
            return (line((" reading rows from the pool", Tone.DIM)),)
        return row_lines(*self.rows)

    def targets(self) -> tuple[str, ...]:
        return (self.table_name,)

    def path_and_counts(self) -> tuple[Sequence[str], str]:
        if self.rows is None:
            return ("rows", self.table_name), ""
        below = f", {self.pane.below} more below" if self.pane.below else ""
        return ("rows", self.table_name), f"{counted(len(self.rows[1]), 'row')} in no order{below}"

    def copy_line(self) -> str:
        return f"headgate peek {self.table_name} -n {ROWS} --env {self.state.identity.environment}"
