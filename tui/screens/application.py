"""The Textual application: a thread polls the ledger, a timer redraws, and only changed cells are sent.

Nothing on the event loop waits for a file or a socket.
"""

import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, ClassVar, TypeVar

from textual._compositor import ChopsUpdate, LayoutUpdate
from textual.app import App
from textual.message import Message
from textual.screen import Screen

from core.model.errors import HeadgateError, InvalidProject
from core.model.states import ALIVE, State
from tui.presentation.interaction.confirmation_dialogs import ConfirmationDialog
from tui.presentation.screen_content.screen_frame import ConsoleIdentity, LaterCommands, failure_words
from tui.presentation.styling.styled_text import Tone, line
from tui.presentation.styling.theme import choose_glyphs, choose_palette
from tui.presentation.view.ledger_view import LedgerView
from tui.screens.backend import ConsoleBackend
from tui.screens.console_screen import ConsoleScreen
from tui.screens.console_state import ConsoleState, StatusMessage
from tui.screens.home import HomeScreen
from tui.screens.poller import POLL_S, LedgerRead, Poller, ReadFailure, ReloadFinished, ScreenDataRead, WorkerCrashed
from tui.screens.statement_actions import StatementActionsScreen
from tui.terminal.cell_diff import ShadowScreen
from tui.terminal.driver import ConsoleDriver
from tui.terminal.first_frame import FirstFrame
from tui.widgets.textual_strips import StripPainter, put_update

T = TypeVar("T")

SCREENS = {
    "statements": ("statements", "StatementsScreen"),
    "detail": ("statement_detail", "DetailScreen"),
    "changes": ("changes", "ChangesScreen"),
    "review": ("review", "ReviewScreen"),
    "run": ("runs", "RunScreen"),
    "runs": ("runs", "RunsScreen"),
    "audit": ("audit_log_events", "AuditScreen"),
    "log": ("audit_log_events", "LogScreen"),
    "events": ("audit_log_events", "EventsScreen"),
    "rows": ("text_screen", "RowsScreen"),
    "help": ("text_screen", "HelpScreen"),
}
"""Module and class of each screen by name. A module is imported when its screen is first opened, to start quickly."""

FIRST_CHECK_S, CHECK_S = 5.0, 60.0
"""Seconds before the first check of the project's files for errors, and between checks.

An earlier check would slow typing. A check that finds no edited file takes 0.26 s for 10,000 tables.
"""

STOP_ALL = 7001
"""Exit code of the application when the user chose to stop everything."""


def ask_to_leave(screen: ConsoleScreen, leave: Callable[[int], None], commands: LaterCommands) -> None:
    """Ask whether to keep everything running (Enter) or stop it (`stop`); esc returns to the console."""
    question = ConfirmationDialog(
        title="LEAVE the console of",
        body=(
            line("You lose only what this screen remembers: marks, filters, what was typed."),
            line("Statements and runs continue, sample data keeps arriving, and staged tables stay staged."),
            line(
                ("Stopping everything keeps tables and checkpoints: statements continue where they stopped.", Tone.DIM)
            ),
            line((f"`{commands.console}` opens the console again;", Tone.DIM)),
            line((f"`{commands.down}` stops everything later", Tone.DIM)),
        ),
        expected="stop",
        verb="stop everything",
        safe="leave it running",
        escape="stay here",
        place=screen.state.identity.title,
    )
    screen.question.ask(question, lambda _: leave(STOP_ALL), lambda: leave(0))


class WorkFinished(Message):
    """Posted when a worker thread has finished, so that its progress message is removed."""

    def __init__(
        self,
        then: Callable[[Any], object],
        result: object,
        error: HeadgateError | None,
        progress: StatusMessage | None,
    ) -> None:
        super().__init__()
        self.then = then
        self.result = result
        self.error = error
        self.progress = progress


class ConsoleApp(App[int | str], inherit_bindings=False):
    """The console for one environment, as a Textual application."""

    CSS_PATH = "console.tcss"
    ENABLE_COMMAND_PALETTE: ClassVar[bool] = False
    DEFAULT_MODE: ClassVar[str] = "_default"

    def __init__(
        self,
        backend: ConsoleBackend,
        identity: ConsoleIdentity,
        *,
        environ: Mapping[str, str],
        first: LedgerView | None = None,
        opening: FirstFrame | None = None,
        read_only: str = "",
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        offer_down: bool = False,
        later: LaterCommands | None = None,
    ) -> None:
        if opening is not None:
            ConsoleDriver.opening = opening
        super().__init__(driver_class=ConsoleDriver, ansi_color=True, watch_css=False)
        self.animation_level = "none"
        self.title = f"Headgate {identity.project} {identity.environment}"
        self.backend = backend
        self.environ = environ
        self.offer_down = offer_down
        self.later = later or LaterCommands()
        self.state = ConsoleState(
            backend=backend,
            identity=identity,
            glyphs=choose_glyphs(environ),
            painter=StripPainter(choose_palette(environ)),
            clock=clock,
            monotonic=monotonic,
            host=self,
            read_only=read_only,
        )
        if first is not None:
            self.state.view = first
        self._newest: LedgerView | None = None
        self._fetched: ScreenDataRead | None = None
        """Data read for a screen but not shown yet, for example while the display is frozen."""
        self._holding = opening is not None and opening.shadow is not None
        """True while the first frame stays on screen, until Home has drawn its rows."""
        self._shadow = opening.shadow if opening is not None else None
        self._poller = Poller(backend, self.state.view, self.post_message)
        self._reloading: StatusMessage | None = None

    # Screens.

    def get_default_screen(self) -> Screen[object]:
        return HomeScreen(self.state)  # type: ignore[return-value]  # Screen is invariant in what it returns

    def on_mount(self) -> None:
        self.app_resume_signal.subscribe(self, lambda _: self.resend_cells())
        self.set_interval(POLL_S, self._show_newest)
        self._poller.start()
        self.set_timer(FIRST_CHECK_S, self._check_files)
        self.set_interval(CHECK_S, self._check_files)

    def _check_files(self) -> None:
        threading.Thread(target=self.state.backend.check_files, name="console-files", daemon=True).start()

    def on_unmount(self) -> None:
        self._poller.stop()

    def open_screen(self, name: str, **arguments: object) -> None:
        """Open a screen by its name, passing `arguments` to it."""
        module, kind = SCREENS[name]
        screen: ConsoleScreen = getattr(import_module(f"tui.screens.{module}"), kind)(self.state, **arguments)
        self._poller.screen = screen
        self.push_screen(screen)
        self.read_now()

    def command(self, text: str) -> None:
        """Run a `:` command on the screen in front."""
        from tui.screens.colon_commands import run_command

        if isinstance(self.screen, StatementActionsScreen):
            run_command(self.screen, text)

    def go_home(self) -> None:
        """Close all screens except the home screen."""
        while len(self.screen_stack) > 1:
            self.pop_screen()

    def go_back(self) -> None:
        """Go back to the previous screen. On the first screen, quit."""
        if len(self.screen_stack) > 1:
            self.pop_screen()
        else:
            self.quit()

    def quit(self) -> None:
        """Leave the console.

        If anything may be running and stopping is offered, the user is first asked whether to stop it.
        """
        if self.offer_down and isinstance(self.screen, ConsoleScreen) and self._anything_runs():
            ask_to_leave(self.screen, self.exit, self.later)
        else:
            self.exit(0)

    def _anything_runs(self) -> bool:
        snapshot = self.state.view.snapshot
        if snapshot.facts is None or self.state.freshness.agent:
            return True
        may_run = {*ALIVE, State.STOPPING, State.UNKNOWN}
        return any(one.state in may_run for one in snapshot.statements if not one.external)

    def resend_cells(self) -> None:
        """Redraw the whole terminal by sending every cell again."""
        if self._shadow is not None:
            self._shadow.forget()
        self.refresh(layout=True)

    # Lending the terminal.

    def suspend_process(self) -> None:
        """Suspend this process until the shell resumes it. The agent and the statements keep running."""
        self.action_suspend_process()

    def edit_file(self, path: str) -> bool:
        """Open a file in the user's editor and wait until the editor exits; return False if it could not be started."""
        with self.suspend():
            problem = _run_editor(self.environ, path)
        if problem:
            self.state.notify(problem, Tone.BAD)
        return not problem

    # Reading.

    def read_now(self, *, progress: str = "") -> None:
        """Reread all data now, showing the message `progress` until the data has been read."""
        if progress:
            self._reloading = self.state.notify(progress, Tone.DIM)
        self._poller.read_now()

    def on_worker_crashed(self, message: WorkerCrashed) -> None:
        raise message.bug

    def on_ledger_read(self, message: LedgerRead) -> None:
        first = self._newest is None
        self._newest = message.view
        if first or message.asked:
            self._show_newest()

    def on_reload_finished(self, message: ReloadFinished) -> None:
        self.state.end_message(self._reloading)
        self._show_newest()

    def on_screen_data_read(self, message: ScreenDataRead) -> None:
        self._fetched = message
        if not self.state.frozen:
            self._take_fetched(message)
            message.screen.redraw()

    def _take_fetched(self, message: ScreenDataRead) -> None:
        self._fetched = None
        if isinstance(message.what, ReadFailure):
            self.state.notify(message.what.words, Tone.BAD)
        else:
            message.screen.was_read = True
            message.screen.receive(message.what)

    def _show_newest(self) -> None:
        screen = self.screen if self.screen_stack else None
        if not isinstance(screen, ConsoleScreen):
            return
        self._poller.screen = screen
        if self.state.frozen:
            return
        if self._newest is not None:
            self._tell_failed(self._newest)
            self.state.replace_view(self._newest)
        if self._fetched is not None:
            self._take_fetched(self._fetched)
        screen.redraw()
        # If the terminal has become too small, Home never draws its rows, so there is nothing to wait for.
        drawn = not isinstance(screen, HomeScreen) or screen.has_class("-small") or screen.table.size.width
        if self._holding and drawn:
            self.call_after_refresh(self._release)

    def _tell_failed(self, view: LedgerView) -> None:
        known = {run.id for run in self.state.view.snapshot.failed_runs}
        seen_before = self.state.view.snapshot.facts is not None
        for run in view.snapshot.failed_runs:
            if seen_before and run.id not in known:
                self.state.notify(failure_words(run), Tone.BAD)

    def _release(self) -> None:
        self._holding = False
        self.screen.refresh()

    # Work.

    def run_in_thread(self, work: Callable[[], T], then: Callable[[T], object], *, progress: str = "") -> None:
        """Run `work` in a daemon thread, which cannot delay the exit.

        The result of `work` is passed to `then` on the event loop.
        """
        message = self.state.notify(progress, Tone.CHANGING) if progress else None

        def run() -> None:
            result, error = None, None
            try:
                result = work()
            except HeadgateError as refused:
                error = refused
            except Exception as bug:
                self.post_message(WorkerCrashed(bug))
                return
            self.post_message(WorkFinished(then, result, error, message))

        threading.Thread(target=run, name="console-work", daemon=True).start()

    def on_work_finished(self, message: WorkFinished) -> None:
        self.state.end_message(message.progress)
        if message.error is not None:
            self.state.notify(_error_text(message.error), Tone.BAD)
            self.read_now()
        else:
            message.then(message.result)
        self._show_newest()

    # Frames.

    def _display(self, screen: Screen[object], renderable: object) -> None:
        """Send only the changed cells. Textual would send whole dirty regions with full styles."""
        driver = self._driver
        if not isinstance(renderable, ChopsUpdate | LayoutUpdate) or self.is_headless:
            super()._display(screen, renderable)  # type: ignore[arg-type]  # Rich renderables have no one type
            return
        if self._batch_count or not self._running or self._closed or driver is None:
            return
        width, height = self.size
        shadow = self._shadow
        if shadow is None or (shadow.width, shadow.height) != (width, height):
            shadow = self._shadow = ShadowScreen(width, height)
        put_update(shadow, renderable)
        if self._holding:
            return
        data = shadow.flush()
        if data:
            self._begin_update()
            driver.write(data)
            self._end_update()
            driver.flush()


def _error_text(error: HeadgateError) -> str:
    """Return an error with its remedy or, for a project with problems, with the first of them."""
    first = error.problems[0] if isinstance(error, InvalidProject) and error.problems else None
    if first is None:
        return f"{error.summary}. {error.remedy}".strip()
    place = f"{first['file']}:{first.get('line') or 1}: " if first.get("file") else ""
    return f"{error.summary}. {place}{first['summary']}. {first['remedy']}"


def _run_editor(environ: Mapping[str, str], path: str) -> str:
    """Run $VISUAL, $EDITOR or vi until it exits.

    Returns why the editor could not be started, or an empty string.
    """
    named = environ.get("VISUAL") or environ.get("EDITOR") or "vi"
    # Ctrl-C belongs to the editor. A handler, unlike SIG_IGN, is reset to the default in the child process.
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        subprocess.run([*shlex.split(named), path])
    except (OSError, ValueError) as error:
        return f"the editor {named!r} cannot be started: {getattr(error, 'strerror', None) or error}; set EDITOR"
    finally:
        signal.signal(signal.SIGINT, before)
    return ""
