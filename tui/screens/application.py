"""The Textual application: it shows one of the open environments, a timer redraws, and only changed cells are sent.

Nothing on the event loop waits for a file or a socket.
"""

import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import ClassVar

from textual._compositor import ChopsUpdate, LayoutUpdate
from textual.app import App
from textual.screen import Screen

from core.model.errors import HeadgateError, UsageError
from tui.presentation.interaction.confirmation_dialogs import ConfirmationDialog
from tui.presentation.screen_content.screen_frame import (
    ConsoleIdentity,
    EnvironmentBadge,
    LaterCommands,
    environments_answer,
)
from tui.presentation.styling.styled_text import Tone, line
from tui.presentation.styling.theme import choose_glyphs, choose_palette
from tui.presentation.view.ledger_view import LedgerView
from tui.screens.backend import ConsoleBackend
from tui.screens.console_screen import ConsoleScreen
from tui.screens.console_state import ConsoleState
from tui.screens.environment_tab import EnvironmentTab, OpenedEnvironment
from tui.screens.home import HomeScreen
from tui.screens.poller import POLL_S
from tui.terminal.cell_diff import ShadowScreen
from tui.terminal.driver import ConsoleDriver
from tui.terminal.first_frame import FirstFrame
from tui.widgets.textual_strips import StripPainter, put_update

FIRST_CHECK_S, CHECK_S = 5.0, 60.0
"""Seconds before the first check of the project's files for errors, and between checks.

An earlier check would slow typing. A check that finds no edited file takes 0.26 s for 10,000 tables.
"""

STOP_ALL = 7001
"""Exit code of the application when the user chose to stop everything."""


def ask_to_leave(screen: ConsoleScreen, leave: Callable[[int], None], commands: LaterCommands, title: str) -> None:
    """Ask whether to keep everything running (Enter) or stop it (`stop`); esc returns to the console.

    `title` is project and name of the environment that would be stopped.
    """
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
        place=title,
    )
    screen.question.ask(question, lambda _: leave(STOP_ALL), lambda: leave(0))


class ConsoleApp(App[int], inherit_bindings=False):
    """The console as a Textual application: one tab for each open environment, of which one is shown."""

    CSS_PATH = "console.tcss"
    ENABLE_COMMAND_PALETTE: ClassVar[bool] = False
    DEFAULT_MODE: ClassVar[str] = "environment 1"

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
        open_environment: Callable[[str], OpenedEnvironment] | None = None,
        also: Sequence[str] = (),
    ) -> None:
        if opening is not None:
            ConsoleDriver.opening = opening
        super().__init__(driver_class=ConsoleDriver, ansi_color=True, watch_css=False)
        self.animation_level = "none"
        self.environ = environ
        self.offer_down = offer_down
        self.later = later or LaterCommands()
        self._make_state = partial(
            ConsoleState,
            glyphs=choose_glyphs(environ),
            painter=StripPainter(choose_palette(environ)),
            clock=clock,
            monotonic=monotonic,
            read_only=read_only,
        )
        self._open = open_environment
        self._also = also
        """Names of the environments to open once the first one is on screen."""
        self._known: tuple[str, ...] = ()
        """Names of the project's environments, as far as they have been read."""
        self._opened = 0
        self.tab = self._first = self._make_tab(OpenedEnvironment(identity, backend), first)
        """The environment that is shown."""
        self.tabs: dict[str, EnvironmentTab | None] = {identity.environment: self.tab}
        """All open environments by name, in the order in which they were asked for; None while one is being opened."""
        self.title = f"Headgate {identity.project} {identity.environment}"
        self._holding = opening is not None and opening.shadow is not None
        """True while the first frame stays on screen, until Home has drawn its rows."""
        self._shadow = opening.shadow if opening is not None else None

    @property
    def state(self) -> ConsoleState:
        """The state of the environment that is shown."""
        return self.tab.state

    def on_mount(self) -> None:
        self.app_resume_signal.subscribe(self, lambda _: self.resend_cells())
        self.set_interval(POLL_S, self.show_newest)
        self.tab.came_to_front(self.screen)
        self.tab.state.shown_at = float("-inf")
        self.tab.start()
        self.set_timer(FIRST_CHECK_S, self._check_files)
        self.set_interval(CHECK_S, self._check_files)
        for name in self._also:
            self._open_in_thread(name, None)

    def _check_files(self) -> None:
        self.tab.check_files()

    def on_unmount(self) -> None:
        for tab in self._open_tabs():
            tab.close()

    # Environments.

    def _make_tab(self, opened: OpenedEnvironment, first: LedgerView | None = None) -> EnvironmentTab:
        self._opened += 1
        tab = EnvironmentTab(self, opened, mode=f"environment {self._opened}", state=self._make_state, first=first)
        self.add_mode(tab.mode, tab.first_screen)
        return tab

    def _open_tabs(self) -> list[EnvironmentTab]:
        return [tab for tab in self.tabs.values() if tab is not None]

    def badges(self) -> tuple[EnvironmentBadge, ...]:
        """Return all open environments as the first line shows them; none if only one is open."""
        if len(self.tabs) == 1:
            return ()
        return tuple(EnvironmentBadge(name) if tab is None else tab.badge for name, tab in self.tabs.items())

    def environment_names(self) -> tuple[str, ...]:
        """Return the names of the project's environments, as far as they have been read, and of those that are open."""
        return tuple(dict.fromkeys((*self._known, *self.tabs)))

    def learn_environments(self) -> None:
        """Read the names of the project's environments in a thread; errors are left to whoever opens one."""

        def read() -> None:
            try:
                self._known = tuple(self._first.state.backend.environments())
            except HeadgateError:
                self._known = ()

        threading.Thread(target=read, name="console-environments", daemon=True).start()

    def next_environment(self, step: int) -> None:
        """Show the next open environment or, if `step` is -1, the previous one."""
        tabs = self._open_tabs()
        self.show_tab(tabs[(tabs.index(self.tab) + step) % len(tabs)])

    def show_tab(self, tab: EnvironmentTab) -> None:
        """Show another open environment, with its screens as they were left."""
        if tab is self.tab:
            return
        self.tab.was_hidden()
        self.tab = tab
        self.switch_mode(tab.mode)
        tab.came_to_front(self.screen)
        if not tab.files_checked:
            self.set_timer(FIRST_CHECK_S, tab.check_files)
        self.show_newest()

    def open_environment(self, name: str, asked_by: ConsoleScreen) -> None:
        """Show an environment, and open it first if it is not open. Without a name, list the environments.

        An environment that has to be opened is shown only if the user has not begun something else meanwhile.
        """
        tab = self.tabs.get(name)
        if tab is not None and tab is not self.tab:
            self.show_tab(tab)
        elif name in self.tabs:
            words = f"env: this is {name}" if tab else f"env: {name} is still being opened"
            self.state.notify(words, Tone.CHANGING)
        elif name:
            self._open_in_thread(name, asked_by)
        else:
            self._list_environments("")

    def _list_environments(self, unknown: str) -> None:
        state = self.state

        def answer(declared: Mapping[str, bool]) -> None:
            state.notify(environments_answer(unknown, declared, tuple(self.tabs)), Tone.CHANGING)

        self.tab.run_in_thread(self._first.state.backend.environments, answer)

    def _open_in_thread(self, name: str, asked_by: ConsoleScreen | None) -> None:
        if self._open is None or name in self.tabs:
            return
        tab, open_environment = self.tab, self._open
        self.tabs[name] = None

        def work() -> OpenedEnvironment | HeadgateError:
            try:
                return open_environment(name)
            except HeadgateError as error:
                return error

        def opened(found: OpenedEnvironment | HeadgateError) -> None:
            if isinstance(found, HeadgateError):
                del self.tabs[name]
                if isinstance(found, UsageError):
                    self._list_environments(name)
                else:
                    tab.state.notify(f"{name} cannot be opened: {found.sentence}", Tone.BAD)
                return
            self.tabs[name] = new = self._make_tab(found)
            new.start()
            if asked_by is None:
                return
            if asked_by.is_free:
                self.show_tab(new)
            else:
                tab.state.notify(f"{new.state.identity.words} is open: n shows it", Tone.CHANGING)

        tab.run_in_thread(work, opened, progress=f"opening {name}" if asked_by else "")

    def close_environment(self, name: str) -> None:
        """Close an open environment of the console, by default the one that is shown. It keeps running."""
        name = name or self.tab.name
        tab = self.tabs.get(name)
        if tab is None:
            self.state.notify(f"env: {name} is not open", Tone.CHANGING)
        elif len(self._open_tabs()) == 1:
            self.state.notify(f"env: {name} is the only one open; :quit leaves the console", Tone.CHANGING)
        else:
            if tab is self.tab:
                self.next_environment(1)
            del self.tabs[name]
            tab.close()
            tab.release()
            self.remove_mode(tab.mode)
            self.state.notify(f"env: {tab.state.identity.words} is closed in this console; nothing was stopped")

    def quit(self) -> None:
        """Leave the console.

        If anything may be running and stopping is offered, the user is first asked whether to stop it.
        """
        if self.offer_down and isinstance(self.screen, ConsoleScreen) and self._first.anything_runs():
            ask_to_leave(self.screen, self.exit, self.later, self._first.state.identity.title)
        else:
            self.exit(0)

    def resend_cells(self) -> None:
        """Redraw the whole terminal by sending every cell again."""
        if self._shadow is not None:
            self._shadow.forget()
        self.refresh(layout=True)

    # Lending the terminal.

    def suspend_process(self) -> None:
        """Suspend this process until the shell resumes it. The agent and the statements keep running."""
        self.action_suspend_process()

    def edit_file(self, path: str) -> str:
        """Open a file in the user's editor and wait until the editor exits.

        Returns why the editor could not be started, or an empty string.
        """
        with self.suspend():
            return _run_editor(self.environ, path)

    # Showing.

    def show_newest(self) -> None:
        """Show what was read last, of all open environments."""
        screen = self.screen if self.screen_stack else None
        if not isinstance(screen, ConsoleScreen):
            return
        for tab in self._open_tabs():
            tab.show_newest(screen if tab is self.tab else None)
        if self.state.frozen:
            return
        screen.redraw()
        # If the terminal has become too small, Home never draws its rows, so there is nothing to wait for.
        drawn = not isinstance(screen, HomeScreen) or screen.has_class("-small") or screen.table.size.width
        if self._holding and drawn:
            self.call_after_refresh(self._release)

    def _release(self) -> None:
        self._holding = False
        self.screen.refresh()

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
