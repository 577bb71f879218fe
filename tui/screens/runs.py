"""The list of runs, newest first, and the progress of one run. Leaving a screen does not affect the run."""

from collections.abc import Sequence
from dataclasses import replace

from textual.widget import Widget

from core.run.records import RunRow, halted
from core.run.release import ReleaseState, halted_release
from core.run.stopped_statement_sentences import stopped_serving, stopped_serving_words
from core.text.sentence import Sentence
from tui.presentation.interaction.action_availability import ActionContext
from tui.presentation.interaction.confirmation_dialogs import dialog_for_run
from tui.presentation.interaction.keymap import find_action
from tui.presentation.screen_content.releases import pairs_lines
from tui.presentation.screen_content.runs import (
    EFFECTS,
    RUNS,
    first_open,
    heading,
    run_row,
    step_columns,
    step_detail,
    step_row,
    step_width,
    why_author_may_not_override,
    why_frozen,
)
from tui.presentation.screen_content.statement_rows import RowContext
from tui.presentation.styling.styled_text import Line, Tone, line
from tui.presentation.styling.table_layout import header
from tui.screens.backend import RunView
from tui.screens.colon_commands import plan_and_review
from tui.screens.console_screen import acknowledge
from tui.screens.console_state import ConsoleState
from tui.screens.table_screen import SplitScreen, TableScreen
from tui.widgets.line_widgets import GrowingLines

CONFIRMED_AS = {"pause": "stop", "resume": "start", "retry": "restart", "cancel": "cancel", "skip": "skip"}
"""Maps an action on a run to the action that requires the same confirmation."""


class RunScreen(SplitScreen):
    """The screen of one run, with its steps."""

    screen_name = "run"

    def __init__(self, state: ConsoleState, *, run_id: str, then: str = "") -> None:
        super().__init__(state)
        self.run_id = run_id
        self.then = then
        """Id of the action to perform once the run has been read."""
        self.run_view: RunView | None = None
        self.missing = False
        self.acknowledged: set[str] = set()
        self.following = True
        self.heading = GrowingLines(state.painter, id="heading")

    def body(self) -> Sequence[Widget]:
        return (self.heading, *super().body())

    def fetch(self) -> object:
        return self.state.backend.run(self.run_id) or "missing"

    def receive(self, fetched: object) -> None:
        if isinstance(fetched, RunView):
            self.run_view = fetched
            self.run_id = fetched.run.id
            self._acknowledge(fetched.run)
            action, self.then = find_action(self.then, self.screen_name), ""
            if action is not None and self.is_free:
                self.perform_action(action, f":{action.typed}")
        else:
            self.missing = True

    def _shown(self, found: RunView) -> RunView:
        """Return a run and its release, as halted while no agent is alive."""
        if not self.state.freshness.no_agent:
            return found
        release = halted_release(found.release) if found.release is not None else None
        return replace(found, run=halted(found.run), release=release)

    def _acknowledge(self, run: RunRow) -> None:
        """Acknowledge a failed run the first time it is shown, unless the console is read-only."""
        if run.id in {one.id for one in self.state.view.snapshot.failed_runs} - self.acknowledged:
            self.acknowledged.add(run.id)
            acknowledge(self.state, run.id)

    def row_ids(self) -> Sequence[str]:
        return [str(step.n) for step in self.run_view.run.steps] if self.run_view else ()

    def head(self, width: int) -> Line:
        return header(step_columns(width, self._step_width(width)), width)

    def _step_width(self, width: int) -> int:
        if self.run_view is None:
            return 0
        planned = self.run_view.plan.plan.steps if self.run_view.plan else ()
        return step_width(self.run_view.run.steps, {one.n: one.tables for one in planned}, width)

    def picture(self, row: str, width: int) -> Line:
        assert self.run_view is not None
        step = self._shown(self.run_view).run.steps[self.row_ids().index(row)]
        planned = {one.n: one for one in self.run_view.plan.plan.steps} if self.run_view.plan else {}
        needs = planned[step.n].after if step.n in planned else ()
        names = planned[step.n].tables if step.n in planned else ()
        look = RowContext(self.state.glyphs, self.state.clock())
        return step_row(step, needs, names, width, look, cells=self._step_width(width))

    def refresh_body(self) -> None:
        if self.run_view is None:
            words = f" there is no run {self.run_id}" if self.missing else " reading the run"
            self.heading.show((line((words, Tone.CHANGING)),))
            return
        run = self._shown(self.run_view).run
        width = self.size.width
        planned = self.run_view.plan.plan.steps if self.run_view.plan else ()
        now, glyphs = self.state.clock(), self.state.glyphs
        no_agent = self.state.freshness.no_agent
        above = heading(run, self.state.identity.words, now, width, glyphs, planned=planned, no_agent=no_agent)
        pairs = self._pairs(width)
        self.heading.show((*above, *pairs))
        self.fit_table_height(len(run.steps), max(self.size.height - 12 - len(pairs), 4))
        super().refresh_body()
        if self.following and (step := first_open(run)) is not None:
            self.table.choose(str(step.n))
        chosen = next((step for step in run.steps if str(step.n) == self.table.cursor_id), None)
        if chosen is not None:
            reason = next((str(one.why) for one in planned if one.n == chosen.n), "")
            self.pane.show(step_detail(chosen, reason, self.pane.size.width or width, RowContext(glyphs, now)))

    def _pairs(self, width: int) -> tuple[Line, ...]:
        release = self._shown(self.run_view).release if self.run_view else None
        if release is None:
            return ()
        look = RowContext(self.state.glyphs, self.state.clock())
        lags = self.run_view.lags if self.run_view else {}
        return pairs_lines(release, width, max((self.size.height - 16) // 2, 2), look, lags)

    def action_context(self) -> ActionContext:
        run = self.run_view.run if self.run_view else None
        failed = run is not None and any(step.state == "failed" for step in run.steps)
        state = "" if run is None else f"continued by {run.continued_by[:10]}" if run.continued_by else run.state
        release = self.run_view.release if self.run_view else None
        held = release is not None and release.state is ReleaseState.HELD
        not_back = release.blocked if release is not None else Sentence("it replaces no version")
        found = super().action_context()
        found = replace(found, run_state=state, run_failed=failed, held=held, not_back=not_back)
        if run is None or self.run_view is None or self.run_view.plan is None:
            return found
        kept, user = self.run_view.plan, self.state.identity.user
        step = next((one.do for one in run.steps if one.state == "failed"), "")
        return replace(
            found,
            frozen=why_frozen(kept.plan, run, kept.frozen),
            not_swapped=why_author_may_not_override(kept.plan, kept.row, "swap", "", user=user),
            not_skipped=why_author_may_not_override(kept.plan, kept.row, "skip", step, user=user),
        )

    def under_cursor(self) -> tuple[str, ...]:
        steps = self.run_view.run.steps if self.run_view else ()
        return tuple(step.table for step in steps if str(step.n) == self.table.cursor_id and step.table)

    def rolled_back_by_default(self) -> tuple[str, ...]:
        return (self.run_id,)

    def undone_by_default(self) -> str:
        return self.run_id

    def path_and_counts(self) -> tuple[Sequence[str], str]:
        return ("runs", self.run_id[:10]), self.with_below()

    def copy_line(self) -> str:
        return f"headgate runs {self.run_id[:12]} --env {self.state.identity.environment}"

    def move_cursor(self, place: int) -> None:
        self.following = False
        super().move_cursor(place)

    def do_enter_row(self, key: str) -> None:
        self.following = not self.following
        self.state.notify("the cursor follows the run" if self.following else "the cursor stays where it is", Tone.DIM)

    def _ask_about_run(self, verb: str) -> None:
        assert self.run_view is not None
        run, state, identity = self.run_view.run, self.state, self.state.identity
        confirmation = state.backend.agent.confirmation(CONFIRMED_AS[verb], (run.id,))
        command, skipped = f"headgate runs {verb} {run.id}", 0
        if verb == "skip":
            skipped = next(step.n for step in run.steps if step.state == "failed")
            command += f" --step {skipped}"
        rests = stopped_serving(state.view.snapshot.statements, {step.table for step in run.steps})
        stays = f" {stopped_serving_words(rests)}." if verb == "cancel" and rests else ""
        question = dialog_for_run(
            verb=verb,
            run=run.id,
            effect=f"{EFFECTS[verb]}{stays}",
            environment=identity.title,
            command=f"{command} --env {identity.environment}",
            expected=confirmation.text,
        )

        def control(typed: str) -> str:
            state.backend.agent.run_control(run.id, verb, step=skipped, confirm=typed)
            return f"run {run.id[:10]}: {verb} sent"

        self.question.ask(question, lambda typed: state.host.run_in_thread(lambda: control(typed), self.show_answer))

    def do_swap(self, key: str) -> None:
        """Ask for confirmation before swapping the versions of a held run."""
        assert self.run_view is not None and self.run_view.release is not None
        release, state, identity = self.run_view.release, self.state, self.state.identity
        moves = ", ".join(f"{pair.table} v{pair.old.version} to v{pair.new.version}" for pair in release.pairs)
        question = dialog_for_run(
            verb="swap",
            run=release.run,
            effect=f"The pointers move: {moves}.",
            environment=identity.title,
            command=f"headgate release swap {release.run} --env {identity.environment}",
            expected=state.backend.agent.confirmation_of_swap(release.run).text,
            safe="keep it held",
        )

        def swap(typed: str) -> str:
            state.backend.agent.swap(release.run, confirm=typed)
            return f"run {release.run[:10]}: swap requested"

        self.question.ask(question, lambda typed: state.host.run_in_thread(lambda: swap(typed), self.show_answer))

    def do_rollback(self, key: str) -> None:
        plan_and_review(self, "rollback", (self.run_id,))

    def do_pause(self, key: str) -> None:
        paused = self.run_view is not None and self.run_view.run.state == "paused"
        self._ask_about_run("resume" if paused else "pause")

    def do_cancel(self, key: str) -> None:
        self._ask_about_run("cancel")

    def do_retry(self, key: str) -> None:
        """Review a plan that continues the run with edited files.

        If no file was edited, ask to retry the run's steps.
        """
        assert self.run_view is not None
        run_id, state = self.run_view.run.id, self.state

        def found(plan_hash: str) -> None:
            if plan_hash:
                words = f"the files were edited: plan {plan_hash[:12]} continues run {run_id[:10]}"
                state.notify(words, Tone.CHANGING)
                self.open_when_free("review", f"{words}: :review {plan_hash[:12]}", plan_hash=plan_hash)
            elif self.is_free:
                self._ask_about_run("retry")

        state.host.run_in_thread(lambda: state.backend.continuation(run_id), found)

    def do_skip(self, key: str) -> None:
        self._ask_about_run("skip")


class RunsScreen(TableScreen):
    """The screen that lists runs, newest first."""

    screen_name = "runs"

    def __init__(self, state: ConsoleState) -> None:
        super().__init__(state)
        self.runs: dict[str, RunRow] = {}

    def fetch(self) -> object:
        return self.state.backend.reader.runs()

    def receive(self, fetched: object) -> None:
        if isinstance(fetched, tuple):
            self.runs = {run.id: run for run in fetched}

    def _shown(self, run: RunRow) -> RunRow:
        return halted(run) if self.state.freshness.no_agent else run

    def row_ids(self) -> Sequence[str]:
        needle = self.typed.filter_text.lower()
        runs = map(self._shown, self.runs.values())
        words = {run.id: f"{run.id} {run.plan_hash} {run.state} {run.actor}".lower() for run in runs}
        return [run_id for run_id, said in words.items() if needle in said]

    def is_gone(self, row: str) -> bool:
        return row not in self.runs

    def head(self, width: int) -> Line:
        return header(RUNS, width)

    def picture(self, row: str, width: int) -> Line:
        return run_row(self._shown(self.runs[row]), width, self.state.clock())

    def path_and_counts(self) -> tuple[Sequence[str], str]:
        return ("runs",), self.with_below(f"{len(self.table.ids)} of {len(self.runs)}" if self.was_read else "")

    def do_enter_row(self, key: str) -> None:
        if self.table.cursor_id is not None:
            self.state.host.open_screen("run", run_id=self.table.cursor_id)
