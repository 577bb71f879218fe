"""Review: read the plan, then execute exactly it; what is typed carries the environment and the plan's hash."""

from collections.abc import Sequence
from dataclasses import replace

from textual.containers import Container
from textual.widget import Widget

from core.plan.confirmation import confirmation_for_plan
from core.plan.model import PlanNode
from core.plan.rendering import ColumnWidths, column_widths, plan_lines
from core.text.wording import counted
from tui.presentation.interaction.action_availability import ActionContext
from tui.presentation.interaction.confirmation_dialogs import dialog_for_approval, dialog_for_plan
from tui.presentation.interaction.keymap import command_of_action, find_action
from tui.presentation.screen_content.agent_answers import approve_answer
from tui.presentation.screen_content.plan_review import (
    columns,
    heading,
    losses,
    node_row,
    not_approvable,
    rest,
    state_of_plan,
    summary_of,
    waits_for,
    why,
)
from tui.presentation.styling.styled_text import Line, Tone, line
from tui.screens.backend_protocol import PlanView
from tui.screens.console_state import ConsoleState
from tui.screens.table_screen import TableScreen
from tui.widgets.line_widgets import GrowingLines, ScrollingLines

COPIED = 100
"""Columns of a plan that is copied."""


class ReviewScreen(TableScreen):
    """One plan."""

    page_name = "review"

    def __init__(self, desk: ConsoleState, *, plan_hash: str) -> None:
        super().__init__(desk)
        self.plan_hash = plan_hash
        self.view: PlanView | None = None
        self.by_table: dict[str, PlanNode] = {}
        self.shared: tuple[int, ColumnWidths] | None = None
        self.missing = False
        self.full = False
        self.heading = GrowingLines(desk.painter, id="heading")
        self.pane = ScrollingLines(desk.painter, id="under")

    def body(self) -> Sequence[Widget]:
        return (self.heading, Container(self.table, self.pane, id="split"))

    def fetch(self) -> object:
        return self.desk.operations.plan(self.plan_hash) or "missing"

    def take(self, fetched: object) -> None:
        if isinstance(fetched, PlanView):
            if self.view is None and fetched.plan.order:
                # What is done first is what is read first; what is kept stands above it.
                self.table.cursor_id = fetched.plan.order[0]
            self.view = fetched
            self.by_table = {str(node.table): node for node in fetched.plan.nodes}
            self.shared = None
        else:
            self.missing = True

    def row_ids(self) -> Sequence[str]:
        return [node.table for node in self.view.plan.nodes] if self.view else ()

    def head(self, width: int) -> Line:
        return columns(self._widths(width))

    def picture(self, row: str, width: int) -> Line:
        assert self.view is not None
        return node_row(self.by_table[row], self._widths(width))

    def _widths(self, width: int) -> ColumnWidths:
        """Share the width among the columns; every row of a plan of thousands asks, and its nodes never change."""
        if self.shared is None or self.shared[0] != width:
            self.shared = (width, column_widths(tuple(self.by_table.values()), width - 1))
        return self.shared[1]

    def refresh_body(self) -> None:
        width = self.size.width
        if self.view is None:
            words = f" there is no plan {self.plan_hash[:12]}" if self.missing else " reading the plan"
            self.heading.show((line((words, Tone.CHANGING)),))
            return
        plan = self.view.plan
        self.share(len(plan.nodes), max((self.size.height - 8) // 2, 4))
        place = self.desk.place
        environment = place.words
        now = self.desk.clock()
        self.heading.show(heading(plan, self.view.row, environment, now, width, approvals=self.view.approvals))
        super().refresh_body()
        lines: list[Line] = []
        beside = self.pane.size.width or width
        chosen = self.by_table.get(self.table.cursor_id or "")
        if chosen is not None:
            lines.extend(why(chosen, beside, self.desk.glyphs, full=self.full))
        lines.extend(rest(plan, beside, self.desk.glyphs))
        self.pane.show(lines)

    def crumb(self) -> tuple[Sequence[str], str]:
        below = f"{counted(self.pane.below, 'more line')} (pgdn)" if self.pane.below else ""
        return ("changes", "review"), below

    def targets(self) -> tuple[str, ...]:
        return ()

    def circumstances(self) -> ActionContext:
        found = super().circumstances()
        if self.view is None:
            return found
        plan, row, approvals, now = self.view.plan, self.view.row, self.view.approvals, self.desk.clock()
        return replace(
            found,
            has_plan=True,
            plan_open=state_of_plan(plan, row, now) or waits_for(plan, row, approvals),
            unapprovable=not_approvable(plan, row, approvals, user=self.desk.place.user, now=now),
        )

    def copy_line(self) -> str:
        return f"headgate review {self.plan_hash[:12]} --env {self.desk.place.environment}"

    def copy_text(self) -> str:
        return "\n".join(plan_lines(self.view.plan, COPIED)) if self.view else self.plan_hash

    def do_sql(self, key: str) -> None:
        self.full = not self.full

    def do_enter_row(self, key: str) -> None:
        self.full = not self.full

    def do_page_down(self, key: str) -> None:
        self.pane.scroll_by(max(self.pane.size.height - 2, 1))

    def do_page_up(self, key: str) -> None:
        self.pane.scroll_by(-max(self.pane.size.height - 2, 1))

    def do_execute(self, key: str) -> None:
        assert self.view is not None
        plan, desk, place = self.view.plan, self.desk, self.desk.place
        confirmation = confirmation_for_plan(plan)
        action = find_action("execute", self.page_name)
        assert action is not None
        question = dialog_for_plan(
            hash4=plan.hash[:4],
            summary=summary_of(plan),
            losses=losses(plan),
            environment=place.title,
            command=command_of_action(action, plan=plan.hash, environment=place.environment),
            expected=confirmation.text,
        )

        def send(typed: str) -> None:
            desk.say(f"plan {plan.hash[:4]}: sent", Tone.CHANGING)
            desk.host.perform(lambda: desk.operations.agent.apply(plan.hash, confirm=typed), self._begun)

        self.ask(question, send)

    def do_approve(self, key: str) -> None:
        assert self.view is not None
        plan, desk, place = self.view.plan, self.desk, self.desk.place
        action = find_action("approve", self.page_name)
        assert action is not None
        question = dialog_for_approval(
            hash4=plan.hash[:4],
            author=self.view.row.author,
            summary=summary_of(plan),
            losses=losses(plan),
            environment=place.title,
            command=command_of_action(action, plan=plan.hash, environment=place.environment),
            expected=desk.operations.agent.confirmation("approve", (plan.hash,)).text,
        )

        def send(typed: str) -> None:
            desk.say(f"plan {plan.hash[:4]}: sent", Tone.CHANGING)
            approve = desk.operations.agent.approve
            desk.host.perform(lambda: approve_answer(plan.hash, *approve(plan.hash, confirm=typed)), self._said)

        self.ask(question, send)

    def _begun(self, result: object) -> None:
        run_id = str(result)
        self.arrive("run", f"the run has started: :run {run_id[:10]}", run_id=run_id)
