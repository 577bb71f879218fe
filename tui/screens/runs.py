"""Runs, newest first, and one run as it goes; leaving the screen leaves the run alone."""

from collections.abc import Sequence
from dataclasses import replace

from textual.containers import Container
from textual.widget import Widget

from state.row_types import RunRow
from tui.presentation.interaction.action_availability import ActionContext
from tui.presentation.interaction.confirmation_dialogs import dialog_for_run
from tui.presentation.screen_content.runs import (
    EFFECTS,
    columns,
    first_open,
    heading,
    run_row,
    runs_columns,
    step_detail,
    step_row,
)
from tui.presentation.screen_content.statement_rows import RowContext
from tui.presentation.styling.styled_text import Line, Tone, line
from tui.screens.backend_protocol import RunView
from tui.screens.console_state import ConsoleState
from tui.screens.table_screen import TableScreen
from tui.widgets.line_widgets import GrowingLines, ScrollingLines

CONFIRMED_AS = {"pause": "stop", "resume": "start", "retry": "restart", "cancel": "cancel", "skip": "skip"}
"""The act on statements whose confirmation an act on a run takes."""


class RunScreen(TableScreen):
    """One run."""

    page_name = "run"

    def __init__(self, desk: ConsoleState, *, run_id: str) -> None:
        super().__init__(desk)
        self.run_id = run_id
        self.view: RunView | None = None
        self.missing = False
        self.following = True
        self.heading = GrowingLines(desk.painter, id="heading")
        self.pane = ScrollingLines(desk.painter, id="under")

    def body(self) -> Sequence[Widget]:
        return (self.heading, Container(self.table, self.pane, id="split"))

    def fetch(self) -> object:
        return self.desk.operations.run(self.run_id) or "missing"

    def take(self, fetched: object) -> None:
        if isinstance(fetched, RunView):
            self.view = fetched
            self.run_id = fetched.run.id
        else:
            self.missing = True

    def row_ids(self) -> Sequence[str]:
        return [str(step.n) for step in self.view.run.steps] if self.view else ()

    def head(self, width: int) -> Line:
        return columns(width)

    def picture(self, row: str, width: int) -> Line:
        assert self.view is not None
        step = self.view.run.steps[self.row_ids().index(row)]
        planned = {one.n: one for one in self.view.plan.plan.steps} if self.view.plan else {}
        needs = planned[step.n].after if step.n in planned else ()
        names = planned[step.n].tables if step.n in planned else ()
        return step_row(step, needs, names, width, RowContext(self.desk.glyphs, self.desk.clock()))

    def refresh_body(self) -> None:
        if self.view is None:
            words = f" there is no run {self.run_id}" if self.missing else " reading the run"
            self.heading.show((line((words, Tone.CHANGING)),))
            return
        run = self.view.run
        width = self.size.width
        self.share(len(run.steps), max(self.size.height - 12, 4))
        place = self.desk.place
        environment = place.words
        self.heading.show(heading(run, environment, self.desk.clock(), width, self.desk.glyphs))
        super().refresh_body()
        if self.following and (step := first_open(run)) is not None:
            self.table.choose(str(step.n))
        chosen = next((step for step in run.steps if str(step.n) == self.table.cursor_id), None)
        if chosen is not None:
            steps = self.view.plan.plan.steps if self.view.plan else ()
            reason = next((one.why for one in steps if one.n == chosen.n), "")
            self.pane.show(step_detail(chosen, reason, self.pane.size.width or width, self.desk.glyphs))

    def targets(self) -> tuple[str, ...]:
        return ()

    def is_marked(self, row: str) -> bool:
        return False

    def circumstances(self) -> ActionContext:
        run = self.view.run if self.view else None
        failed = run is not None and any(step.state == "failed" for step in run.steps)
        state = "" if run is None else f"continued by {run.continued_by[:10]}" if run.continued_by else run.state
        return replace(super().circumstances(), run_state=state, run_failed=failed)

    def crumb(self) -> tuple[Sequence[str], str]:
        return ("runs", self.run_id[:10]), ""

    def copy_line(self) -> str:
        return f"headgate runs {self.run_id[:12]} --env {self.desk.place.environment}"

    def do_down(self, key: str) -> None:
        self.following = False
        super().do_down(key)

    def do_up(self, key: str) -> None:
        self.following = False
        super().do_up(key)

    def do_enter_row(self, key: str) -> None:
        self.following = not self.following
        self.desk.say("the cursor follows the run" if self.following else "the cursor stays where it is", Tone.DIM)

    def _ask_about_run(self, verb: str) -> None:
        assert self.view is not None
        run, desk, place = self.view.run, self.desk, self.desk.place
        confirmation = desk.operations.agent.confirmation(CONFIRMED_AS[verb], (run.id,))
        command, skipped = f"headgate runs {verb} {run.id}", 0
        if verb == "skip":
            skipped = next(step.n for step in run.steps if step.state == "failed")
            command += f" --step {skipped}"
        question = dialog_for_run(
            verb=verb,
            run=run.id,
            effect=EFFECTS[verb],
            environment=place.title,
            command=f"{command} --env {place.environment}",
            expected=confirmation.text,
        )

        def control(typed: str) -> str:
            desk.operations.agent.run_control(run.id, verb, step=skipped, confirm=typed)
            return f"run {run.id[:10]}: {verb} sent"

        self.ask(question, lambda typed: desk.host.perform(lambda: control(typed), self._said))

    def do_pause(self, key: str) -> None:
        paused = self.view is not None and self.view.run.state == "paused"
        self._ask_about_run("resume" if paused else "pause")

    def do_cancel(self, key: str) -> None:
        self._ask_about_run("cancel")

    def do_retry(self, key: str) -> None:
        """Review the plan that goes on with edited texts; where nothing was edited, ask to try the same again."""
        assert self.view is not None
        run_id, desk = self.view.run.id, self.desk

        def found(plan_hash: object) -> None:
            if plan_hash:
                words = f"the files were edited: plan {str(plan_hash)[:12]} continues run {run_id[:10]}"
                desk.say(words, Tone.CHANGING)
                self.arrive("review", f"{words}: :review {str(plan_hash)[:12]}", plan_hash=str(plan_hash))
            elif self.is_current and self.answering is None and self.entry is None:
                self._ask_about_run("retry")

        desk.host.perform(lambda: desk.operations.continuation(run_id), found)

    def do_skip(self, key: str) -> None:
        self._ask_about_run("skip")


class RunsScreen(TableScreen):
    """The list of runs."""

    page_name = "runs"

    def __init__(self, desk: ConsoleState) -> None:
        super().__init__(desk)
        self.runs: dict[str, RunRow] = {}

    def fetch(self) -> object:
        return self.desk.operations.reader.runs()

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
