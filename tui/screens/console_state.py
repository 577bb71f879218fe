"""What all screens share: the world as read last, marks, what was said last, and the host that runs work."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from state.ledger_snapshot import LedgerSnapshot
from tui.presentation.screen_content.banner_footer import ConsoleIdentity
from tui.presentation.styling.glyphs import Glyphs
from tui.presentation.styling.styled_text import Tone
from tui.presentation.view.ledger_view import Freshness, LedgerView, freshness, make_ledger_view
from tui.screens.backend_protocol import ConsoleBackendProtocol
from tui.widgets.textual_strips import StripPainter


class ScreenHost(Protocol):
    """What the application does for its screens."""

    def perform(self, work: Callable[[], object], then: Callable[[object], None]) -> None:
        """Run work in a thread, then hand its result to `then` on the loop; an expected error is said, not raised."""

    def go(self, name: str, **arguments: object) -> None:
        """Open a screen by name."""

    def command(self, text: str) -> None:
        """Run a `:` command on the screen in front."""

    def go_home(self) -> None:
        """Close every screen above the tree."""

    def leave(self) -> None:
        """Go back one screen; on the first one, quit."""

    def quit(self) -> None: ...
    def switch(self, environment: str) -> None:
        """Leave for another environment of the project."""

    def kick(self) -> None:
        """Read everything again now."""

    def copy(self, text: str) -> None: ...
    def redraw(self) -> None:
        """Send every cell again."""


@dataclass(slots=True)
class ConsoleState:
    """Shared by reference; touched on the event loop only."""

    operations: ConsoleBackendProtocol
    place: ConsoleIdentity
    glyphs: Glyphs
    painter: StripPainter
    clock: Callable[[], float]
    """Epoch seconds."""
    tick: Callable[[], float]
    """Monotonic seconds."""
    host: ScreenHost
    world: LedgerView = field(default_factory=lambda: make_ledger_view(LedgerSnapshot(read_at=0.0)))
    marks: set[str] = field(default_factory=set)
    said: tuple[str, float, Tone] | None = None
    """Text, when, tone."""
    frozen: bool = False
    read_only: str = ""
    histories: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def fresh(self) -> Freshness:
        """Freshness of the world now."""
        return freshness(self.world.snapshot, self.clock())

    def take(self, world: LedgerView) -> None:
        """Take a newer world; what is deployed no more is marked no more."""
        self.marks -= {table for table in self.marks if self.world.statement(table) and not world.statement(table)}
        self.world = world

    def say(self, text: str, tone: Tone = Tone.PLAIN) -> None:
        """Put a sentence on the flash line."""
        self.said = (text, self.clock(), tone)

    def remember(self, sign: str, text: str) -> None:
        """Keep what was typed, newest last, without repeats."""
        if text:
            kept = tuple(old for old in self.histories.get(sign, ()) if old != text)
            self.histories[sign] = (*kept[-49:], text)
