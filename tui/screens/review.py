"""The review of a plan, which can then be executed or approved exactly as shown."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from textual.widget import Widget

from core.plan.confirmation import confirmation_for_plan
from core.plan.model import PlanNode
from core.plan.rendering import ColumnWidths, column_widths, judged_at, plan_lines
from tui.presentation.interaction.action_availability import ActionContext
from tui.presentation.interaction.confirmation_dialogs import dialog_for_approval, dialog_for_plan
from tui.presentation.interaction.keymap import command_of_action, find_action
from tui.presentation.screen_content.plan_review import (
    columns,
    heading,
    losses,
    node_row,
    not_approvable,
    sections_below_rows,
    state_of_plan,
    summary_of,
    waits_for,
    why,
)
from tui.presentation.screen_content.screen_frame import accepted_words, approve_answer
from tui.presentation.styling.styled_text import Line, Tone, line
from tui.screens.backend import PlanView
from tui.screens.console_state import ConsoleState
from tui.screens.table_screen import SplitScreen
from tui.widgets.line_widgets import GrowingLines

COPIED = 100
"""Width of the text that is copied from a plan, in characters."""


class ReviewScreen(SplitScreen):
    """The screen that reviews one plan."""

    screen_name = "review"

    def __init__(self, state: ConsoleState, *, plan_hash: str) -> None:
        super().__init__(state)
        self.plan_hash = plan_hash
        self.plan_view: PlanView | None = None
        self.by_table: dict[str, PlanNode] = {}
        self.shared: tuple[int, ColumnWidths] | None = None
        self.missing = False
        self.full = False
        self.heading = GrowingLines(state.painter, id="heading")

    def body(self) -> Sequence[Widget]:
        return (self.heading, *super().body())

    def fetch(self) -> object:
        return self.state.backend.plan(self.plan_hash) or "missing"

    def receive(self, fetched: object) -> None:
        if isinstance(fetched, PlanView):
            if self.plan_view is None and fetched.plan.order:
                # Start at the table that is changed first; kept tables are above it.
                self.table.cursor_id = fetched.plan.order[0]
            self.plan_view = fetched
            self.by_table = {str(node.table): node for node in fetched.plan.nodes}
            self.shared = None
        else:
            self.missing = True

    def row_ids(self) -> Sequence[str]:
        return [node.table for node in self.plan_view.plan.nodes] if self.plan_view else ()

    def head(self, width: int) -> Line:
        return columns(self._widths(width))

    def picture(self, row: str, width: int) -> Line:
        assert self.plan_view is not None
        return node_row(self.by_table[row], self._widths(width))

    def _widths(self, width: int) -> ColumnWidths:
        """Return the column widths, which are cached because every row needs them and the plan never changes."""
        if self.shared is None or self.shared[0] != width:
            self.shared = (width, column_widths(tuple(self.by_table.values()), width - 1))
        return self.shared[1]

    def refresh_body(self) -> None:
        width = self.size.width
        if self.plan_view is None:
            words = f" there is no plan {self.plan_hash[:12]}" if self.missing else " reading the plan"
            self.heading.show((line((words, Tone.CHANGING)),))
            return
        plan, row, approvals = self.plan_view.plan, self.plan_view.row, self.plan_view.approvals
        self.fit_table_height(len(plan.nodes), max((self.size.height - 8) // 2, 4))
        environment, now = self.state.identity.words, self.state.clock()
        self.heading.show(heading(plan, row, environment, now, width, approvals=approvals))
        super().refresh_body()
        lines: list[Line] = []
        beside = self.pane.size.width or width
        chosen = self.by_table.get(self.table.cursor_id or "")
        if chosen is not None:
            lines.extend(why(chosen, beside, self.state.glyphs, full=self.full, warnings=plan.warnings))
        lines.extend(sections_below_rows(judged_at(plan, now), beside, self.state.glyphs))
        self.pane.show(lines)

    def under_cursor(self) -> tuple[str, ...]:
        return (self.table.cursor_id,) if self.table.cursor_id in self.by_table else ()

    def undone_by_default(self) -> str:
        return self.plan_hash

    def path_and_counts(self) -> tuple[Sequence[str], str]:
        return ("changes", "review"), self.with_below()

    def action_context(self) -> ActionContext:
        found = super().action_context()
        if self.plan_view is None:
            return found
        plan, row, approvals = self.plan_view.plan, self.plan_view.row, self.plan_view.approvals
        now = self.state.clock()
        return replace(
            found,
            has_plan=True,
            not_executable=state_of_plan(plan, row, now, self.plan_view.frozen) or waits_for(plan, row, approvals),
            unapprovable=not_approvable(plan, row, approvals, user=self.state.identity.user, now=now),
        )

    def copy_line(self) -> str:
        return f"headgate review {self.plan_hash[:12]} --env {self.state.identity.environment}"

    def copy_text(self) -> str:
        if self.plan_view is None:
            return self.plan_hash
        return "\n".join(plan_lines(judged_at(self.plan_view.plan, self.state.clock()), COPIED))

    def do_sql(self, key: str) -> None:
        self.full = not self.full

    def do_enter_row(self, key: str) -> None:
        self.full = not self.full

    def do_execute(self, key: str) -> None:
        assert self.plan_view is not None
        plan, state, identity = self.plan_view.plan, self.state, self.state.identity
        confirmation = confirmation_for_plan(plan)
        action = find_action("execute", self.screen_name)
        assert action is not None
        question = dialog_for_plan(
            hash4=plan.hash[:4],
            summary=summary_of(plan),
            losses=losses(plan),
            environment=identity.title,
            command=command_of_action(action, plan=plan.hash, environment=identity.environment),
            expected=confirmation.text,
        )

        def begun(run_id: str) -> None:
            state.notify(accepted_words(run_id), Tone.CHANGING)
            self.open_when_free("run", f"the run has started: :run {run_id[:10]}", run_id=run_id)

        def send(typed: str) -> None:
            apply = partial(state.backend.apply, plan.hash, confirm=typed)
            state.host.run_in_thread(apply, begun, progress=f"plan {plan.hash[:4]}: sent")

        self.question.ask(question, send)

    def do_approve(self, key: str) -> None:
        assert self.plan_view is not None
        plan, state, identity = self.plan_view.plan, self.state, self.state.identity
        action = find_action("approve", self.screen_name)
        assert action is not None
        question = dialog_for_approval(
            hash4=plan.hash[:4],
            author=self.plan_view.row.author,
            summary=summary_of(plan),
            losses=losses(plan),
            environment=identity.title,
            command=command_of_action(action, plan=plan.hash, environment=identity.environment),
            expected=state.backend.agent.confirmation("approve", (plan.hash,)).text,
        )

        def send(typed: str) -> None:
            state.host.run_in_thread(
                partial(state.backend.agent.approve, plan.hash, confirm=typed),
                lambda approvals: self.show_answer(approve_answer(plan.hash, *approvals)),
                progress=f"plan {plan.hash[:4]}: sent",
            )

        self.question.ask(question, send)
