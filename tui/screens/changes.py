"""The changes screen: tables whose files differ from what is deployed, staged tables, and a preview of the plan.

Enter creates a plan for the staged tables and opens its review.
"""

from collections.abc import Hashable, Sequence
from dataclasses import replace

from tui.presentation.interaction.action_availability import ActionContext
from tui.presentation.screen_content.changes import ChangeRow, columns, detail, merge, problem_lines, row, summary
from tui.presentation.styling.styled_text import EMPTY, Line, Tone, line
from tui.presentation.styling.table_layout import header
from tui.screens.backend import ProjectView
from tui.screens.console_state import ConsoleState
from tui.screens.table_screen import SplitScreen, StatementTableScreen


class ChangesScreen(SplitScreen, StatementTableScreen):
    """The screen that lists changed and staged tables."""

    screen_name = "changes"
    vanished_because = "it is no longer staged or changed"

    def __init__(self, state: ConsoleState) -> None:
        super().__init__(state)
        self.project_view: ProjectView | None = None
        self.changes: dict[str, ChangeRow] = {}
        self.full = False

    def fetch(self) -> object:
        return self.state.backend.project()

    def receive(self, fetched: object) -> None:
        if isinstance(fetched, ProjectView):
            self.project_view = fetched

    def row_ids(self) -> Sequence[str]:
        drift = {one.table: one for one in (self.project_view.drift if self.project_view else ())}
        compared = self.project_view is not None and not self.project_view.missing
        rows = merge(drift, self.state.view.snapshot.staged, compared=compared)
        self.changes = {one.table: one for one in rows}
        self.marks &= set(self.changes)
        needle = self.typed.filter_text.lower()
        return [table for table in self.changes if needle in table]

    def shape(self) -> Hashable:
        return (self.typed.filter_text, self.project_view is None)

    def head(self, width: int) -> Line:
        return header(columns(width), width)

    def picture(self, row_id: str, width: int) -> Line:
        return row(self.changes[row_id], width, self.state.identity.user)

    def last_line(self, row_id: str) -> Line:
        return line(f"  {row_id}  no longer staged or changed")

    def is_gone(self, row_id: str) -> bool:
        return row_id not in self.changes

    def refresh_body(self) -> None:
        super().refresh_body()
        self.fit_table_height(max(len(self.table.ids), 2), max(self.size.height * 2 // 5, 4))
        width = self.pane.size.width
        if not width:
            return
        project = self.project_view
        if project is None:
            self.pane.show((line((" reading the project", Tone.DIM)),))
            return
        chosen = self.changes.get(self.table.cursor_id or "")
        shown = chosen.problems if chosen is not None else ()
        wrong = problem_lines([problem for problem in project.problems if problem not in shown], project.missing)
        lines = list(wrong) if project.missing else []
        if chosen is not None:
            lines.extend(detail(chosen, width, self.state.glyphs, full=self.full))
        elif not wrong and self.typed.filter_text and self.changes:
            lines.append(line((" the filter hides every difference: esc ends it", Tone.DIM)))
        elif not wrong:
            lines.append(line((" the files match what is deployed, and nothing is staged", Tone.DIM)))
        if wrong and not project.missing:
            lines += [EMPTY, *wrong] if lines else wrong
        self.pane.show(lines)

    def empty_lines(self, width: int) -> tuple[Line, ...]:
        return ()

    def path_and_counts(self) -> tuple[Sequence[str], str]:
        project = self.project_view
        if project is None:
            return ("changes",), f"{self.marked_words()}reading the project"
        counts = summary(tuple(self.changes.values()), self.state.identity.user, compared=not project.missing)
        return ("changes",), self.marked_words() + self.with_below(counts)

    def action_context(self) -> ActionContext:
        mine = sum(1 for mark in self.state.view.snapshot.staged if mark.actor == self.state.identity.user)
        return replace(super().action_context(), staged=mine)

    def do_sql(self, key: str) -> None:
        self.full = not self.full

    def do_enter_row(self, key: str) -> None:
        self.plan_staged()
