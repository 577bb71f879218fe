"""The console as an application: one poller reads in a thread, one flush shows, one override sends the cells.

Nothing on the event loop waits for a file or a socket.
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

from core.errors import HeadgateError
from tui.display import Shadow
from tui.presentation.banner import Place
from tui.presentation.glyphs import choose_glyphs
from tui.presentation.palette import choose_palette
from tui.presentation.snapshot import Snapshot, World, make_world
from tui.presentation.text import Tone
from tui.screens.asks import Operations
from tui.screens.desk import Desk
from tui.screens.home import HomePage
from tui.screens.leaving import ask_to_leave
from tui.screens.page import Page
from tui.widgets.driver import ConsoleDriver
from tui.widgets.frames import put_update
from tui.widgets.opening import Opening
from tui.widgets.strips import Painter

FLUSH_S = 0.5
"""Frames from data: two a second."""


class WorldRead(Message):
    """The ledger was read."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world


@dataclass(frozen=True, slots=True)
class Unread:
    """Why something could not be read; said once as long as it is the same."""

    words: str


class Fetched(Message):
    """What one screen alone needs was read."""

    def __init__(self, page: Page, what: object) -> None:
        super().__init__()
        self.page = page
        self.what = what


class Finished(Message):
    """Work in a thread is over."""

    def __init__(self, then: Callable[[object], None], result: object, error: HeadgateError | None) -> None:
        super().__init__()
        self.then = then
        self.result = result
        self.error = error


class Broken(Message):
    """A thread met a bug of ours: it is raised on the loop, where it ends the console with its place."""

    def __init__(self, bug: Exception) -> None:
        super().__init__()
        self.bug = bug


class ConsoleApp(App[int | str], inherit_bindings=False):
    """One console over one environment."""

    CSS_PATH = "../console.tcss"
    ENABLE_COMMAND_PALETTE: ClassVar[bool] = False
    DEFAULT_MODE: ClassVar[str] = "_default"

    def __init__(
        self,
        operations: Operations,
        place: Place,
        *,
        environ: Mapping[str, str],
        first: World | None = None,
        opening: Opening | None = None,
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
        self.desk = Desk(
            operations=operations,
            place=place,
            glyphs=choose_glyphs(environ),
            painter=Painter(choose_palette(environ)),
            clock=clock,
            tick=tick,
            host=self,
            read_only=read_only,
        )
        if first is not None:
            self.desk.world = first
        self._newest: World | None = None
        self._fetched: Fetched | None = None
        """What was read and is not shown, because the screen is frozen."""
        self._holding = opening is not None and opening.shadow is not None
        """Whether the first picture stays until Home has drawn its rows."""
        self._shadow = opening.shadow if opening is not None else None
        self._poller = threading.Thread(target=self._poll, name="console-poller", daemon=True)
        self._kick = threading.Event()
        self._over = threading.Event()
        self._page: Page | None = None

    # Screens.

    def get_default_screen(self) -> Screen[object]:
        return HomePage(self.desk)  # type: ignore[return-value]  # Screen is invariant in what it returns

    def on_mount(self) -> None:
        self.set_interval(FLUSH_S, self._show_newest)
        self._poller.start()

    def on_unmount(self) -> None:
        self._over.set()
        self.kick()

    def go(self, name: str, **arguments: object) -> None:
        """Open a screen by name; its module is imported when it is first needed."""
        from tui.screens.names import make_page

        self._page = make_page(name, self.desk, arguments)
        self.push_screen(self._page)
        self.kick()

    def command(self, text: str) -> None:
        """Run a `:` command on the screen in front."""
        from tui.screens.commands import run_command

        if isinstance(self.screen, Page):
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
        if self.offer_down and isinstance(self.screen, Page):
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
            self.post_message(Broken(bug))

    def on_broken(self, message: Broken) -> None:
        raise message.bug

    def _read_for_ever(self) -> None:
        snapshot: Snapshot | None = None
        world: World | None = None
        fetched: tuple[Page, object] | None = None
        while not self._over.is_set():
            newer = self.operations.snapshot(snapshot)
            if newer is not snapshot or world is None:
                snapshot, world = newer, make_world(newer, world)
                self.post_message(WorldRead(world))
            page = self._page
            if page is not None:
                what = self._fetch(page)
                if what is not None and (fetched is None or fetched[0] is not page or fetched[1] != what):
                    fetched = (page, what)
                    self.post_message(Fetched(page, what))
            self._kick.wait(FLUSH_S)
            self._kick.clear()

    def _fetch(self, page: Page) -> object:
        try:
            return page.fetch()
        except HeadgateError as error:
            return Unread(f"{error.summary}. {error.remedy}".strip())

    def on_world_read(self, message: WorldRead) -> None:
        first = self._newest is None
        self._newest = message.world
        if first:
            self._show_newest()

    def on_fetched(self, message: Fetched) -> None:
        self._fetched = message
        if not self.desk.frozen:
            self._take_fetched(message)
            message.page.flush()

    def _take_fetched(self, message: Fetched) -> None:
        self._fetched = None
        if isinstance(message.what, Unread):
            self.desk.say(message.what.words, Tone.BAD)
        else:
            message.page.take(message.what)

    def _show_newest(self) -> None:
        """Show the newest world on the screen in front, in one frame; a timer may come when all screens are gone."""
        page = self.screen if self.screen_stack else None
        if not isinstance(page, Page):
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
        drawn = not isinstance(page, HomePage) or page.has_class("-small") or page.table.size.width
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
                self.post_message(Broken(bug))
                return
            self.post_message(Finished(then, result, error))

        threading.Thread(target=run, name="console-work", daemon=True).start()

    def on_finished(self, message: Finished) -> None:
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
            shadow = self._shadow = Shadow(width, height)
        put_update(shadow, renderable)
        if self._holding:
            return
        data = shadow.flush()
        if data:
            self._begin_update()
            driver.write(data)
            self._end_update()
            driver.flush()
