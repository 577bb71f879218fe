"""What all screens share: the view of the ledger, marks, the newest message, and the application that hosts them."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeVar

from state.ledger_snapshot import LedgerSnapshot
from tui.presentation.screen_content.banner_footer import ConsoleIdentity
from tui.presentation.styling.glyphs import Glyphs
from tui.presentation.styling.styled_text import Tone
from tui.presentation.view.ledger_view import Freshness, LedgerView, freshness, make_ledger_view
from tui.screens.backend import ConsoleBackend
from tui.widgets.textual_strips import StripPainter

T = TypeVar("T")
MESSAGE_S = 12.0


class ConsoleHost(Protocol):
    """The application, as its screens ask it: it imports them, they know it by this alone."""

    def open_screen(self, name: str, **arguments: object) -> None: ...
    def go_back(self) -> None: ...
    def go_home(self) -> None: ...
    def quit(self) -> None: ...
    def exit(self, result: int | str, /) -> None: ...
    def command(self, text: str) -> None: ...
    def read_now(self, *, progress: str = "") -> None: ...
    def resend_cells(self) -> None: ...
    def suspend_process(self) -> None: ...
    def edit_file(self, path: str) -> bool: ...
    def copy_to_clipboard(self, text: str) -> None: ...
    def run_in_thread(self, work: Callable[[], T], then: Callable[[T], object], *, progress: str = "") -> None: ...


class StatusMessage(NamedTuple):
    """What the status line shows for a while."""

    text: str
    at: float
    """Epoch seconds."""
    tone: Tone
    seconds: float
    """For how long."""


@dataclass(slots=True)
class ConsoleState:
    """Shared by reference; touched on the event loop only."""

    backend: ConsoleBackend
    identity: ConsoleIdentity
    glyphs: Glyphs
    painter: StripPainter
    clock: Callable[[], float]
    """Epoch seconds."""
    monotonic: Callable[[], float]
    """Monotonic seconds."""
    host: ConsoleHost
    view: LedgerView = field(default_factory=lambda: make_ledger_view(LedgerSnapshot(read_at=0.0)))
    marks: set[str] = field(default_factory=set)
    """Tables that are marked in the tree and in the list of statements."""
    message: StatusMessage | None = None
    frozen: bool = False
    read_only: str = ""
    histories: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """What was typed after `:` and after `/`, oldest first."""

    @property
    def freshness(self) -> Freshness:
        """Freshness of the view now."""
        return freshness(self.view.snapshot, self.clock())

    def replace_view(self, view: LedgerView) -> None:
        """Take a newer view; what is deployed no more is marked no more."""
        self.marks -= {table for table in self.marks if self.view.statement(table) and not view.statement(table)}
        self.view = view

    def notify(self, text: str, tone: Tone = Tone.PLAIN, *, seconds: float = MESSAGE_S) -> StatusMessage:
        """Show a sentence in the status line for some seconds."""
        self.message = StatusMessage(text, self.clock(), tone, seconds)
        return self.message

    def end_message(self, message: StatusMessage | None) -> None:
        """Take a message away where it is still the one that is shown."""
        if message is not None and self.message is message:
            self.message = None
