"""Changes: files against what is deployed, what is staged, and a preview.

Enter plans what is staged and opens the review.
"""

from collections.abc import Hashable, Sequence
from dataclasses import replace

from textual.containers import Container
from textual.widget import Widget

from tui.presentation.interaction.action_availability import ActionContext
from tui.presentation.screen_content.changes import ChangeRow, detail, header, merge, problem_lines, row, summary
from tui.presentation.styling.styled_text import Line, Tone, line
from tui.screens.backend_protocol import ProjectView, TableDrift
from tui.screens.console_state import ConsoleState
from tui.screens.table_screen import TableScreen
from tui.widgets.line_widgets import ScrollingLines


class ChangesScreen(TableScreen):
    """Differences and the stage."""

    page_name = "changes"

    def __init__(self, desk: ConsoleState) -> None:
        super().__init__(desk)
        self.view: ProjectView | None = None
        self.changes: dict[str, ChangeRow] = {}
        self.full = False
        self.pane = ScrollingLines(desk.painter, id="under")

    def body(self) -> Sequence[Widget]:
        return (Container(self.table, self.pane, id="split"),)

    def fetch(self) -> object:
        return self.desk.operations.project()

    def take(self, fetched: object) -> None:
        if isinstance(fetched, ProjectView):
            self.view = fetched

    def row_ids(self) -> Sequence[str]:
        drift = {one.table: change_row_of(one) for one in (self.view.drift if self.view else ())}
        compared = self.view is not None and not self.view.missing
        rows = merge(drift, self.desk.world.snapshot.staged, compared=compared)
        self.changes = {one.table: one for one in rows}
        needle = self.filter_text.lower()
        return [table for table in self.changes if needle in table]

    def shape(self) -> Hashable:
        return (self.filter_text, self.view is None)

    def head(self, width: int) -> Line:
        return header(width)

    def picture(self, row_id: str, width: int) -> Line:
        return row(self.changes[row_id], width, self.desk.place.user)

    def is_gone(self, row_id: str) -> bool:
        return row_id not in self.changes

    def refresh_body(self) -> None:
        super().refresh_body()
        self.share(max(len(self.table.ids), 2), max(self.size.height * 2 // 5, 4))
        width = self.pane.size.width
        if not width:
            return
        view = self.view
        if view is None:
            self.pane.show((line((" reading the project", Tone.DIM)),))
            return
        lines = list(problem_lines(view.problems, view.missing, width))
        chosen = self.changes.get(self.table.cursor_id or "")
        if chosen is not None:
            lines.extend(detail(chosen, width, self.desk.glyphs, full=self.full))
        elif not lines and self.filter_text and self.changes:
            lines.append(line((" the filter hides every difference: esc ends it", Tone.DIM)))
        elif not lines:
            lines.append(line((" the files match what is deployed, and nothing is staged", Tone.DIM)))
        self.pane.show(lines)

    def crumb(self) -> tuple[Sequence[str], str]:
        marked = f"{len(self.desk.marks)} marked   " if self.desk.marks else ""
        return ("changes",), marked + summary(tuple(self.changes.values()), self.desk.place.user)

    def circumstances(self) -> ActionContext:
        mine = sum(1 for mark in self.desk.world.snapshot.staged if mark.actor == self.desk.place.user)
        return replace(super().circumstances(), staged=mine)

    def do_sql(self, key: str) -> None:
        self.full = not self.full

    def do_enter_row(self, key: str) -> None:
        self.desk.say("planning what is staged", Tone.CHANGING)
        user = self.desk.place.user
        self.desk.host.perform(lambda: self.desk.operations.submit(user), self._submitted)

    def _submitted(self, result: object) -> None:
        plan_hash = str(result)
        self.arrive("review", f"the plan is ready: :review {plan_hash[:12]}", plan_hash=plan_hash)

    def do_page_down(self, key: str) -> None:
        self.pane.scroll_by(max(self.pane.size.height - 2, 1))

    def do_page_up(self, key: str) -> None:
        self.pane.scroll_by(-max(self.pane.size.height - 2, 1))


def change_row_of(one: TableDrift) -> ChangeRow:
    """Make a row of a difference; what is staged is joined later."""
    return ChangeRow(one.table, one.change, one.would, one.reason, one.old, one.new, one.folder, ())
