"""Runs: all of them, newest first."""

from collections.abc import Sequence

from state.rows import RunRow
from tui.presentation.runs import run_row, runs_columns
from tui.presentation.text import Line
from tui.screens.desk import Desk
from tui.screens.rows import RowsPage


class RunsPage(RowsPage):
    """The list of runs."""

    page_name = "runs"

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self.runs: dict[str, RunRow] = {}

    def fetch(self) -> object:
        return tuple(self.desk.operations.runs())

    def take(self, fetched: object) -> None:
        if isinstance(fetched, tuple):
            self.runs = {run.id: run for run in fetched}

    def row_ids(self) -> Sequence[str]:
        needle = self.filter_text.lower()
        words = {run.id: f"{run.id} {run.plan_hash} {run.state} {run.actor}".lower() for run in self.runs.values()}
        return [run_id for run_id, said in words.items() if needle in said]

    def is_gone(self, row: str) -> bool:
        return row not in self.runs

    def head(self, width: int) -> Line:
        return runs_columns(width)

    def picture(self, row: str, width: int) -> Line:
        return run_row(self.runs[row], width, self.desk.clock())

    def targets(self) -> tuple[str, ...]:
        return ()

    def is_marked(self, row: str) -> bool:
        return False

    def crumb(self) -> tuple[Sequence[str], str]:
        return ("runs",), f"{len(self.table.ids)} of {len(self.runs)}"

    def do_enter_row(self, key: str) -> None:
        if self.table.cursor_id is not None:
            self.desk.host.go("run", run_id=self.table.cursor_id)
