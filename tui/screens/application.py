"""The console as an application: one poller reads in a thread, one flush shows, one override sends the cells.

Nothing on the event loop waits for a file or a socket. Leaving a console that may stop everything behind it is asked
about here: leaving it running is the answer of Enter alone.
"""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from textual._compositor import ChopsUpdate, LayoutUpdate
from textual.app import App
from textual.message import Message
from textual.screen import Screen

from core.model.errors import HeadgateError
from tui.presentation.interaction.confirmation_dialogs import ConfirmationDialog
from tui.presentation.screen_content.banner_footer import ConsoleIdentity
from tui.presentation.styling.glyphs import choose_glyphs
from tui.presentation.styling.palette import choose_palette
from tui.presentation.styling.styled_text import Tone, line
from tui.presentation.view.ledger_view import LedgerView, make_ledger_view
from tui.screens.backend_protocol import ConsoleBackendProtocol
from tui.screens.console_screen import ConsoleScreen
from tui.screens.console_state import ConsoleState
from tui.screens.home import HomeScreen
from tui.terminal.cell_diff import ShadowScreen
from tui.terminal.driver import ConsoleDriver
from tui.terminal.first_picture import FirstPicture
from tui.widgets.textual_strips import StripPainter, put_update

STOP_ALL = 7001
"""What the application returns when everything is to be stopped."""


def ask_to_leave(page: ConsoleScreen, leave: Callable[[int], None]) -> None:
    """Ask whether everything goes on without the console; Enter alone leaves it running, esc stays here."""
    question = ConfirmationDialog(
        title="LEAVE: everything keeps running without this console",
        body=(
            line("statements, agent and the demo's generator keep running; `headgate` opens the console again"),
            line(("to stop them later: headgate down", Tone.DIM)),
        ),
        expected="stop",
        verb="stop everything",
        safe="leave it running",
    )
    page.ask(question, lambda _: leave(STOP_ALL), lambda: leave(0))


FLUSH_S = 0.5
"""Frames from data: two a second."""


class LedgerRead(Message):
    """The ledger was read."""

    def __init__(self, world: LedgerView) -> None:
        super().__init__()
        self.world = world


@dataclass(frozen=True, slots=True)
class ReadFailure:
    """Why something could not be read; said once as long as it is the same."""

    words: str


class ScreenDataRead(Message):
    """What one screen alone needs was read."""

    def __init__(self, page: ConsoleScreen, what: object) -> None:
        super().__init__()
        self.page = page
        self.what = what


class WorkFinished(Message):
    """Work in a thread is over."""

    def __init__(self, then: Callable[[object], None], result: object, error: HeadgateError | None) -> None:
        super().__init__()
        self.then = then
        self.result = result
        self.error = error


class WorkerCrashed(Message):
    """A thread met a bug of ours: it is raised on the loop, where it ends the console with its place."""

    def __init__(self, bug: Exception) -> None:
        super().__init__()
        self.bug = bug


class ConsoleApp(App[int | str], inherit_bindings=False):
    """One console over one environment."""

    CSS_PATH = "console.tcss"
    ENABLE_COMMAND_PALETTE: ClassVar[bool] = False
    DEFAULT_MODE: ClassVar[str] = "_default"

    def __init__(
        self,
        operations: ConsoleBackendProtocol,
        place: ConsoleIdentity,
        *,
        environ: Mapping[str, str],
        first: LedgerView | None = None,
        opening: FirstPicture | None = None,
        read_only: str = "",
        clock: Callable[[], float] = time.time,
        tick: Callable[[], float] = time.monotonic,
        offer_down: bool = False,
    ) -> None:
        if opening is not None:
            ConsoleDriver.opening = opening
        super().__init__(driver_class=ConsoleDriver, ansi_color=True, watch_css=False)
        self.animation_level = "none"
        self.title = f"Headgate {place.project} {place.environment}"
        self.operations = operations
        self.offer_down = offer_down
        self.desk = ConsoleState(
            operations=operations,
            place=place,
            glyphs=choose_glyphs(environ),
            painter=StripPainter(choose_palette(environ)),
            clock=clock,
            tick=tick,
            host=self,
            read_only=read_only,
        )
        if first is not None:
            self.desk.world = first
        self._newest: LedgerView | None = None
        self._fetched: ScreenDataRead | None = None
        """What was read and is not shown, because the screen is frozen."""
        self._holding = opening is not None and opening.shadow is not None
        """Whether the first picture stays until Home has drawn its rows."""
        self._shadow = opening.shadow if opening is not None else None
        self._poller = threading.Thread(target=self._poll, name="console-poller", daemon=True)
        self._kick = threading.Event()
        self._over = threading.Event()
        self._page: ConsoleScreen | None = None

    # Screens.

    def get_default_screen(self) -> Screen[object]:
        return HomeScreen(self.desk)  # type: ignore[return-value]  # Screen is invariant in what it returns

    def on_mount(self) -> None:
        self.set_interval(FLUSH_S, self._show_newest)
        self._poller.start()

    def on_unmount(self) -> None:
        self._over.set()
        self.kick()

    def go(self, name: str, **arguments: object) -> None:
        """Open a screen by name; its module is imported when it is first needed."""
        from tui.screens.screen_registry import make_screen

        self._page = make_screen(name, self.desk, arguments)
        self.push_screen(self._page)
        self.kick()

    def command(self, text: str) -> None:
        """Run a `:` command on the screen in front."""
        from tui.screens.colon_commands import run_command

        if isinstance(self.screen, ConsoleScreen):
            run_command(self.screen, text)

    def go_home(self) -> None:
        """Close every screen above the tree."""
        while len(self.screen_stack) > 1:
            self.pop_screen()

    def leave(self) -> None:
        """Go back one screen; on the first one, quit."""
        if len(self.screen_stack) > 1:
            self.pop_screen()
        else:
            self.quit()

    def quit(self) -> None:
        """Leave; whatever runs goes on."""
        if self.offer_down and isinstance(self.screen, ConsoleScreen):
            ask_to_leave(self.screen, self.exit)
        else:
            self.exit(0)

    def switch(self, environment: str) -> None:
        """Leave for another environment of the project: what is returned is its name."""
        self.exit(environment)

    def copy(self, text: str) -> None:
        """Hand text to the terminal's clipboard (OSC 52)."""
        self.copy_to_clipboard(text)

    def redraw(self) -> None:
        """Send every cell again."""
        if self._shadow is not None:
            self._shadow.forget()
        self.refresh(layout=True)

    # Reading.

    def kick(self) -> None:
        """Read everything again now."""
        self._kick.set()

    def _poll(self) -> None:
        try:
            self._read_for_ever()
        except Exception as bug:
            self.post_message(WorkerCrashed(bug))

    def on_worker_crashed(self, message: WorkerCrashed) -> None:
        raise message.bug

    def _read_for_ever(self) -> None:
        world, shown = self.desk.world, False
        fetched: tuple[ConsoleScreen, object] | None = None
        while not self._over.is_set():
            newer = make_ledger_view(self.operations.snapshot(world.snapshot), world)
            if newer is not world or not shown:
                world, shown = newer, True
                self.post_message(LedgerRead(world))
            page = self._page
            if page is not None:
                what = self._fetch(page)
                if what is not None and (fetched is None or fetched[0] is not page or fetched[1] != what):
                    fetched = (page, what)
                    self.post_message(ScreenDataRead(page, what))
            self._kick.wait(FLUSH_S)
            self._kick.clear()

    def _fetch(self, page: ConsoleScreen) -> object:
        try:
            return page.fetch()
        except HeadgateError as error:
            return ReadFailure(f"{error.summary}. {error.remedy}".strip())

    def on_ledger_read(self, message: LedgerRead) -> None:
        first = self._newest is None
        self._newest = message.world
        if first:
            self._show_newest()

    def on_screen_data_read(self, message: ScreenDataRead) -> None:
        self._fetched = message
        if not self.desk.frozen:
            self._take_fetched(message)
            message.page.flush()

    def _take_fetched(self, message: ScreenDataRead) -> None:
        self._fetched = None
        if isinstance(message.what, ReadFailure):
            self.desk.say(message.what.words, Tone.BAD)
        else:
            message.page.take(message.what)

    def _show_newest(self) -> None:
        """Show the newest world on the screen in front, in one frame; a timer may come when all screens are gone."""
        page = self.screen if self.screen_stack else None
        if not isinstance(page, ConsoleScreen):
            return
        self._page = page
        if self.desk.frozen:
            return
        if self._newest is not None:
            self.desk.take(self._newest)
        if self._fetched is not None:
            self._take_fetched(self._fetched)
        page.flush()
        # In a terminal that shrank meanwhile the rows of Home are never drawn: nothing is waited for then.
        drawn = not isinstance(page, HomeScreen) or page.has_class("-small") or page.table.size.width
        if self._holding and drawn:
            self.call_after_refresh(self._release)

    def _release(self) -> None:
        self._holding = False
        self.screen.refresh()

    # Work.

    def perform(self, work: Callable[[], object], then: Callable[[object], None]) -> None:
        """Run work in a daemon thread, so that nothing it waits for keeps the console from leaving."""

        def run() -> None:
            try:
                result, error = work(), None
            except HeadgateError as refused:
                result, error = None, refused
            except Exception as bug:
                self.post_message(WorkerCrashed(bug))
                return
            self.post_message(WorkFinished(then, result, error))

        threading.Thread(target=run, name="console-work", daemon=True).start()

    def on_work_finished(self, message: WorkFinished) -> None:
        if message.error is not None:
            self.desk.say(f"{message.error.summary}. {message.error.remedy}".strip(), Tone.BAD)
            self.kick()
        else:
            message.then(message.result)
        self._show_newest()

    # Frames.

    def _display(self, screen: Screen[object], renderable: object) -> None:
        """Send only the cells that changed; Textual would send whole dirty regions with full styles."""
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
