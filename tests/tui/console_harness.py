"""The console without a terminal, with clocks that advance only on request."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

from textual.pilot import Pilot

from core.model.errors import UsageError
from tests.terminal.in_memory_backend import FakeBackend
from tests.terminal.pizzeria_values import NOW
from tui.presentation.screen_content.screen_frame import ConsoleIdentity
from tui.presentation.styling.styled_text import plain
from tui.presentation.view.ledger_view import make_ledger_view
from tui.presentation.view.statement_tree import FoldingMode
from tui.screens.application import ConsoleApp
from tui.screens.console_screen import ConsoleScreen
from tui.screens.environment_tab import OpenedEnvironment
from tui.screens.home import HomeScreen
from tui.widgets.line_widgets import FixedLines

ENVIRON = {"TERM": "xterm-256color", "LANG": "C.UTF-8"}


class Console:
    """A console over a scripted pizzeria."""

    def __init__(self, backend: FakeBackend, app: ConsoleApp, pilot: Pilot[int], clocks: dict[str, float]) -> None:
        self.backend, self.app, self.pilot, self.clocks = backend, app, pilot, clocks

    @property
    def screen(self) -> ConsoleScreen:
        page = self.app.screen
        assert isinstance(page, ConsoleScreen)
        return page

    def pass_time(self, seconds: float) -> None:
        """Advance both clocks."""
        self.clocks["tick"] += seconds
        self.clocks["now"] += seconds

    async def press(self, *keys: str) -> None:
        """Press keys a second apart, so that dialogs are armed and rows may move."""
        for key in keys:
            self.pass_time(1.0)
            await self.pilot.press(key)
        await self.pilot.pause()

    async def type(self, text: str) -> None:
        """Type a text."""
        await self.press(*("space" if letter == " " else letter for letter in text))

    async def until(self, condition: Callable[[], bool], what: str = "") -> None:
        """Wait until a condition holds."""
        for _ in range(400):
            if condition():
                return
            await self.pilot.pause(0.02)
        raise AssertionError(f"never: {what}\n{self.text()}")

    async def show_ledger(self) -> None:
        """Show the current state of the pizzeria."""
        self.app.state.view = self.app.tab.newest = make_ledger_view(self.backend.current)
        self.screen.redraw()
        await self.pilot.pause()

    async def ledger_arrives(self) -> None:
        """Let the application read the pizzeria's state, as it does twice a second."""
        self.app.tab.newest = make_ledger_view(self.backend.current)
        self.app.show_newest()
        await self.pilot.pause()

    def lines(self, widget: FixedLines) -> str:
        return "\n".join(plain(one).rstrip() for one in widget.lines)

    def dialog(self) -> str:
        return self.lines(self.screen.question)

    def status(self) -> str:
        return self.lines(self.screen.status)

    def text(self) -> str:
        """Return the text of the whole screen."""
        strips = self.app.screen._compositor.render_strips(self.app.size)
        return "\n".join("".join(segment.text for segment in strip).rstrip() for strip in strips)


def in_console(
    scenario: Callable[[Console], Awaitable[None]],
    *,
    size: tuple[int, int] = (80, 24),
    protected: bool = False,
    backend: FakeBackend | None = None,
    read_only: str = "",
    folded: bool = False,
    beside: Mapping[str, FakeBackend] | None = None,
    also: Sequence[str] = (),
) -> None:
    """Run a scenario in a console; `folded` leaves the tree as it starts, else every branch is opened.

    `beside` are other environments of the project, of which `also` are opened at once.
    """
    asked = backend or FakeBackend(protected=protected)
    clocks = {"now": NOW, "tick": 1000.0}

    def opened(name: str) -> OpenedEnvironment:
        if beside is None or name not in beside:
            raise UsageError(f"pizzeria declares no environment {name!r}", remedy="give --env one of: dev, prod")
        there = beside[name]
        return OpenedEnvironment(ConsoleIdentity("pizzeria", name, there.protected, "alice"), there)

    async def run() -> None:
        place = ConsoleIdentity("pizzeria", "prod" if protected else "dev", protected, "alice")
        app = ConsoleApp(
            asked,
            place,
            environ=ENVIRON,
            first=make_ledger_view(asked.current),
            read_only=read_only,
            clock=lambda: clocks["now"],
            monotonic=lambda: clocks["tick"],
            open_environment=opened,
            also=also,
        )
        async with app.run_test(size=size) as pilot:
            await pilot.pause()
            console = Console(asked, app, pilot, clocks)
            await console.until(lambda: "keys" in console.text(), "a first frame")
            await console.until(lambda: bool(console.screen.table.ids) or bool(asked.current.problem), "the rows")
            if not folded and isinstance(console.screen, HomeScreen):
                console.screen.folding.mode = FoldingMode.NONE
                console.screen.redraw()
            await scenario(console)

    asyncio.run(run())
