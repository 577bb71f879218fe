"""An environment that the console has open: its state, its polling thread, its screens, and what they request.

A screen reaches only the backend of its own tab, so nothing typed in one environment can apply to another.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, TypeVar

from core.model.errors import HeadgateError, InvalidProject
from core.model.states import ALIVE, State
from tui.presentation.screen_content.screen_frame import ConsoleIdentity, EnvironmentBadge, failure_words
from tui.presentation.styling.styled_text import Tone
from tui.presentation.view.ledger_view import LedgerView, pool_fault
from tui.screens.backend import ConsoleBackend
from tui.screens.console_screen import ConsoleScreen
from tui.screens.console_state import ConsoleState, StatusMessage
from tui.screens.home import HomeScreen
from tui.screens.poller import Poller, ReadFailure
from tui.screens.statement_actions import StatementActionsScreen

if TYPE_CHECKING:
    from tui.screens.application import ConsoleApp

T = TypeVar("T")

SCREENS = {
    "statements": ("statements", "StatementsScreen"),
    "detail": ("statement_detail", "DetailScreen"),
    "changes": ("changes", "ChangesScreen"),
    "review": ("review", "ReviewScreen"),
    "run": ("runs", "RunScreen"),
    "runs": ("runs", "RunsScreen"),
    "pools": ("pools", "PoolsScreen"),
    "audit": ("audit_log_events", "AuditScreen"),
    "log": ("audit_log_events", "LogScreen"),
    "events": ("audit_log_events", "EventsScreen"),
    "rows": ("text_screen", "RowsScreen"),
    "report": ("text_screen", "ReportScreen"),
    "help": ("text_screen", "HelpScreen"),
}
"""Module and class of each screen by name. A module is imported when its screen is first opened, to start quickly."""


@dataclass(frozen=True, slots=True)
class OpenedEnvironment:
    """An environment that has been opened: its identity, and the backend that reads it and acts on it."""

    identity: ConsoleIdentity
    backend: ConsoleBackend


class EnvironmentTab:
    """One open environment. It is the host of its screens; the application shows one tab at a time."""

    def __init__(
        self,
        app: "ConsoleApp",
        opened: OpenedEnvironment,
        *,
        mode: str,
        state: Callable[..., ConsoleState],
        first: LedgerView | None = None,
    ) -> None:
        self.mode = mode
        """Textual's name for the stack of this tab's screens."""
        self.state = state(backend=opened.backend, identity=opened.identity, host=self)
        if first is not None:
            self.state.view = first
        self.newest: LedgerView | None = None
        """The view read last; it is not shown yet if the display is frozen."""
        self.files_checked = False
        """True once the project's files have been read for this environment."""
        self._app = app
        self._fetched: tuple[ConsoleScreen, object] | None = None
        """Data read for a screen but not shown yet, for example while the display is frozen."""
        self._poller = Poller(opened.backend, self.state.view, self, app.call_later)
        self._reloading: StatusMessage | None = None

    @property
    def name(self) -> str:
        """The name of the environment."""
        return self.state.identity.environment

    @property
    def is_shown(self) -> bool:
        """True if this is the environment on the screen."""
        return self._app.tab is self

    @property
    def badge(self) -> EnvironmentBadge:
        """How the first line of every tab shows this environment."""
        identity, view, fresh = self.state.identity, self.state.view, self.state.freshness
        faults = view.faults or int(bool(pool_fault(view.snapshot)))
        return EnvironmentBadge(identity.words, identity.tone, self.is_shown, None if fresh.stale else faults)

    # Showing and closing.

    def start(self) -> None:
        """Begin to read the environment."""
        self._poller.start()

    def first_screen(self) -> HomeScreen:
        """Make the screen at the bottom of this tab's stack."""
        return HomeScreen(self.state)

    def came_to_front(self, screen: object) -> None:
        """Read everything now and the data of `screen`, because this environment is on the screen from now on."""
        self.state.shown_at = self.state.monotonic()
        self._poller.screen = screen if isinstance(screen, ConsoleScreen) else None
        self._poller.read_now()

    def was_hidden(self) -> None:
        """Read only the ledger, and rarely, because another environment is on the screen from now on."""
        self._poller.screen = None

    def close(self) -> None:
        """Stop reading the environment, without waiting for it."""
        self._poller.stop()

    def release(self) -> None:
        """Close the ledger of a closed tab, in a thread, because a dead disk must not stop the console."""
        threading.Thread(target=self.state.backend.close, name="console-close", daemon=True).start()

    # What screens request.

    def badges(self) -> tuple[EnvironmentBadge, ...]:
        return self._app.badges()

    def environment_names(self) -> tuple[str, ...]:
        return self._app.environment_names()

    def learn_environments(self) -> None:
        self._app.learn_environments()

    def open_environment(self, name: str, asked_by: ConsoleScreen) -> None:
        self._app.open_environment(name, asked_by)

    def close_environment(self, name: str) -> None:
        self._app.close_environment(name)

    def next_environment(self, step: int) -> None:
        self._app.next_environment(step)

    def relay(self, message: StatusMessage) -> None:
        """Show a message of a hidden tab in the status line on the screen, which names the environment."""
        if not self.is_shown:
            self._app.tab.state.message = message

    def open_screen(self, name: str, **arguments: object) -> None:
        """Open a screen by its name, passing `arguments` to it."""
        module, kind = SCREENS[name]
        screen: ConsoleScreen = getattr(import_module(f"tui.screens.{module}"), kind)(self.state, **arguments)
        self._poller.screen = screen
        self._app.push_screen(screen, mode=self.mode)
        self.read_now()

    def command(self, text: str) -> None:
        """Run a `:` command on the screen in front."""
        from tui.screens.colon_commands import run_command

        if isinstance(self._app.screen, StatementActionsScreen):
            run_command(self._app.screen, text)

    def go_home(self) -> None:
        """Close all screens except the home screen."""
        while len(self._app.screen_stack) > 1:
            self._app.pop_screen()

    def go_back(self) -> None:
        """Go back to the previous screen. On the first screen, quit."""
        if len(self._app.screen_stack) > 1:
            self._app.pop_screen()
        else:
            self.quit()

    def quit(self) -> None:
        self._app.quit()

    def resend_cells(self) -> None:
        self._app.resend_cells()

    def suspend_process(self) -> None:
        self._app.suspend_process()

    def edit_file(self, path: str) -> bool:
        """Open a file in the user's editor and wait until the editor exits; return False if it could not be started."""
        problem = self._app.edit_file(path)
        if problem:
            self.state.notify(problem, Tone.BAD)
        return not problem

    def copy_to_clipboard(self, text: str) -> None:
        self._app.copy_to_clipboard(text)

    def anything_runs(self) -> bool:
        """True if a statement or an agent of the environment may be running."""
        snapshot = self.state.view.snapshot
        if snapshot.facts is None or self.state.freshness.agent:
            return True
        may_run = {*ALIVE, State.STOPPING, State.UNKNOWN}
        return any(one.state in may_run for one in snapshot.statements if not one.external)

    # Reading.

    def read_now(self, *, progress: str = "") -> None:
        """Reread all data now, showing the message `progress` until the data has been read."""
        if progress:
            self._reloading = self.state.notify(progress, Tone.DIM)
        self._poller.read_now()

    def check_files(self) -> None:
        """Look for errors in the project's files, in a thread."""
        self.files_checked = True
        threading.Thread(target=self.state.backend.check_files, name="console-files", daemon=True).start()

    def take_view(self, view: LedgerView, *, asked: bool) -> None:
        """Take a view of the ledger. The first one is shown at once, as is one that was `asked` for."""
        first = self.newest is None
        self.newest = view
        if first or asked:
            self._app.show_newest()

    def end_reload(self) -> None:
        """Remove the message of a reload, and show what it has read."""
        self.state.end_message(self._reloading)
        self._app.show_newest()

    def take_screen_data(self, screen: ConsoleScreen, what: object) -> None:
        """Take the data that was read for a screen, and show it unless the display is frozen."""
        self._fetched = (screen, what)
        if not self.state.frozen:
            self._show_fetched()
            screen.redraw()

    def _show_fetched(self) -> None:
        if self._fetched is None:
            return
        (screen, what), self._fetched = self._fetched, None
        if isinstance(what, ReadFailure):
            self.state.notify(what.words, Tone.BAD)
        else:
            screen.was_read = True
            screen.receive(what)

    def crash(self, bug: Exception) -> None:
        """Raise a bug of a thread on the event loop, which ends the console."""
        raise bug

    def show_newest(self, screen: ConsoleScreen | None) -> None:
        """Put what was read last into the state, and into `screen` if this tab is shown."""
        if screen is not None:
            self._poller.screen = screen
        if self.state.frozen:
            return
        if self.newest is not None:
            self._tell_failed(self.newest)
            self.state.replace_view(self.newest)
        self._show_fetched()

    def _tell_failed(self, view: LedgerView) -> None:
        known = {run.id for run in self.state.view.snapshot.failed_runs}
        seen_before = self.state.view.snapshot.facts is not None
        for run in view.snapshot.failed_runs:
            if seen_before and run.id not in known:
                self.state.notify(failure_words(run), Tone.BAD)

    # Work.

    def run_in_thread(self, work: Callable[[], T], then: Callable[[T], object], *, progress: str = "") -> None:
        """Run `work` in a daemon thread, which cannot delay the exit.

        The result of `work` is passed to `then` on the event loop.
        """
        message = self.state.notify(progress, Tone.CHANGING) if progress else None
        deliver = self._app.call_later

        def run() -> None:
            try:
                result = work()
            except HeadgateError as refused:
                deliver(partial(self._work_refused, refused, message))
            except Exception as bug:
                deliver(partial(self.crash, bug))
            else:
                deliver(partial(self._work_finished, then, result, message))

        threading.Thread(target=run, name="console-work", daemon=True).start()

    def _work_refused(self, error: HeadgateError, progress: StatusMessage | None) -> None:
        self.state.end_message(progress)
        self.state.notify(_error_text(error), Tone.BAD)
        self.read_now()
        self._app.show_newest()

    def _work_finished(self, then: Callable[[T], object], result: T, progress: StatusMessage | None) -> None:
        self.state.end_message(progress)
        then(result)
        self._app.show_newest()


def _error_text(error: HeadgateError) -> str:
    """Return an error with its remedy or, for a project with problems, with the first of them."""
    first = error.problems[0] if isinstance(error, InvalidProject) and error.problems else None
    if first is None:
        return f"{error.summary}. {error.remedy}".strip()
    place = f"{first['file']}:{first.get('line') or 1}: " if first.get("file") else ""
    return f"{error.summary}. {place}{first['summary']}. {first['remedy']}"
