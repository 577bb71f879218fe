"""The state that all screens of an environment share, the line typed after `/` or `:`, and the confirmation dialog."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from state.ledger_snapshot import LedgerSnapshot
from tui.presentation.interaction import confirmation_dialogs, input_line
from tui.presentation.interaction.action_availability import ActionContext
from tui.presentation.interaction.confirmation_dialogs import ConfirmationDialog, OpenDialog
from tui.presentation.interaction.input_line import InputLine
from tui.presentation.screen_content.screen_frame import ConsoleIdentity, EnvironmentBadge
from tui.presentation.styling.styled_text import Tone
from tui.presentation.styling.theme import Glyphs
from tui.presentation.view.ledger_view import (
    Access,
    Freshness,
    LedgerView,
    access_of,
    freshness,
    make_ledger_view,
)
from tui.screens.backend import ConsoleBackend
from tui.widgets.line_widgets import FixedLines
from tui.widgets.textual_strips import StripPainter

if TYPE_CHECKING:
    from tui.screens.console_screen import ConsoleScreen

T = TypeVar("T")
MESSAGE_S = 12.0


class ConsoleHost(Protocol):
    """The part of the application that the screens of one environment use.

    It is declared here so that screens need not import the application.
    """

    def open_screen(self, name: str, **arguments: object) -> None: ...
    def go_back(self) -> None: ...
    def go_home(self) -> None: ...
    def quit(self) -> None: ...
    def command(self, text: str) -> None: ...
    def read_now(self, *, progress: str = "") -> None: ...
    def resend_cells(self) -> None: ...
    def suspend_process(self) -> None: ...
    def edit_file(self, path: str) -> bool: ...
    def copy_to_clipboard(self, text: str) -> None: ...
    def run_in_thread(self, work: Callable[[], T], then: Callable[[T], object], *, progress: str = "") -> None: ...
    def badges(self) -> tuple[EnvironmentBadge, ...]: ...
    def environment_names(self) -> tuple[str, ...]: ...
    def learn_environments(self) -> None: ...
    def open_environment(self, name: str, asked_by: "ConsoleScreen") -> None: ...
    def close_environment(self, name: str) -> None: ...
    def next_environment(self, step: int) -> None: ...
    def relay(self, message: "StatusMessage") -> None: ...


class StatusMessage(NamedTuple):
    """A message that the status line shows for a limited time."""

    text: str
    at: float
    """When the message was first shown, in epoch seconds."""
    tone: Tone
    seconds: float
    """How long the message is shown, in seconds."""
    about: ConsoleIdentity
    """The environment that the message is about, which may not be the one on the screen."""


@dataclass(slots=True)
class ConsoleState:
    """The state shared by all screens of one environment. It is accessed on the event loop only."""

    backend: ConsoleBackend
    identity: ConsoleIdentity
    glyphs: Glyphs
    painter: StripPainter
    clock: Callable[[], float]
    """Returns the time in epoch seconds."""
    monotonic: Callable[[], float]
    """Returns the time of the monotonic clock, in seconds."""
    host: ConsoleHost
    view: LedgerView = field(default_factory=lambda: make_ledger_view(LedgerSnapshot(read_at=0.0)))
    marks: set[str] = field(default_factory=set)
    """Tables that are marked in the tree and in the list of statements."""
    message: StatusMessage | None = None
    frozen: bool = False
    read_only: str = ""
    histories: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Lines typed earlier, oldest first, by the sign before them (`:` or `/`)."""
    shown_at: float = float("-inf")
    """When the user came from another environment to this one, by the monotonic clock."""

    @property
    def freshness(self) -> Freshness:
        return freshness(self.view.snapshot, self.clock())

    @property
    def access(self) -> Access:
        return access_of(self.view.snapshot, self.identity.user, self.clock())

    def replace_view(self, view: LedgerView) -> None:
        """Replace the view, and unmark tables that are no longer deployed."""
        self.marks -= {table for table in self.marks if self.view.statement(table) and not view.statement(table)}
        self.view = view

    def notify(self, text: str, tone: Tone = Tone.PLAIN, *, seconds: float = MESSAGE_S) -> StatusMessage:
        """Show a message in the status line for `seconds` seconds."""
        self.message = StatusMessage(text, self.clock(), tone, seconds, self.identity)
        self.host.relay(self.message)
        return self.message

    def end_message(self, message: StatusMessage | None) -> None:
        """Remove a message from the status line if it is still being shown."""
        if message is not None and self.message is message:
            self.message = None


HISTORY = 50
"""Maximum number of lines remembered for each of the signs `:` and `/`."""


class TypedLine:
    """The line being typed on one screen. A filter takes effect at every key, a command on Enter."""

    def __init__(self, state: ConsoleState, screen_name: str, action_context: Callable[[], ActionContext]) -> None:
        self.state = state
        self.entry: InputLine | None = None
        self.filter_text = ""
        self._screen_name = screen_name
        self._action_context = action_context

    def begin(self, sign: str, text: str = "") -> None:
        """Begin typing a filter (`/`) or a command (`:`)."""
        self.entry = InputLine(sign, text, len(text), history=self.state.histories.get(sign, ()))

    def press(self, key: str, character: str | None) -> None:
        """Apply one key to the line. The tab key completes the line."""
        assert self.entry is not None
        if key == "tab":
            self._change(input_line.complete(self.entry, self.completions()))
        else:
            self._change(input_line.type_key(self.entry, key, character))

    def paste(self, text: str) -> None:
        """Insert pasted text; a line break in it does not act as Enter."""
        assert self.entry is not None
        self._change(input_line.insert(self.entry, text))

    def _change(self, entry: InputLine) -> None:
        self.entry = None if entry.done else entry
        if entry.sign == "/":
            self.filter_text = entry.text.strip() if entry.done in ("", "accept") else ""
        if entry.done == "accept":
            self._remember(entry)
            if entry.sign == ":":
                self.state.host.command(entry.text.strip())

    def _remember(self, entry: InputLine) -> None:
        if entry.text:
            kept = tuple(old for old in self.state.histories.get(entry.sign, ()) if old != entry.text)
            self.state.histories[entry.sign] = (*kept[1 - HISTORY :], entry.text)

    def completions(self) -> tuple[str, ...]:
        """Return the possible completions of the line."""
        from tui.presentation.interaction.filters import completions
        from tui.presentation.interaction.input_line import complete_command

        assert self.entry is not None
        if self.entry.sign == "/":
            return completions(self.entry.text)
        # Deleted tables can be deployed again by name.
        tables = tuple(sorted({*self.state.view.statements, *self.state.view.snapshot.deleted}))
        environments = self.state.host.environment_names()
        return complete_command(self.entry.text, self._screen_name, tables, self._action_context(), environments)


DIALOG_WIDTH = 100


class QuestionBox(FixedLines):
    """Shows at most one confirmation dialog.

    `press` returns the function to call once the dialog is answered.
    """

    def __init__(self, state: ConsoleState) -> None:
        super().__init__(state.painter, id="dialog", band=True)
        self.state = state
        self.dialog: OpenDialog | None = None
        self._on_yes: Callable[[str], None] | None = None
        self._on_safe: Callable[[], None] | None = None

    def ask(
        self, question: ConfirmationDialog, on_yes: Callable[[str], None], on_safe: Callable[[], None] | None = None
    ) -> None:
        """Show a dialog.

        `on_yes` is called with the text that confirmed the dialog, `on_safe` after Enter alone.
        """
        self.dialog = OpenDialog(question, opened_at=self.state.monotonic())
        self._on_yes, self._on_safe = on_yes, on_safe

    def press(self, key: str, character: str | None) -> Callable[[], object] | None:
        """Handle one key.

        Returns the function to call if the key answered the dialog; otherwise None.
        """
        assert self.dialog is not None
        answered = confirmation_dialogs.answer_key(self.dialog, key, character, self.state.monotonic())
        self.dialog = None if answered.outcome else answered
        if answered.outcome == "yes" and self._on_yes is not None:
            return partial(self._on_yes, answered.question.expected)
        if answered.outcome == "safe" and self._on_safe is not None:
            return self._on_safe
        if answered.outcome:
            return partial(self.state.notify, f"{answered.question.heading}: not done", Tone.DIM)
        return None

    def paste(self) -> None:
        """Reject pasted text, which never confirms an action."""
        assert self.dialog is not None
        self.dialog = confirmation_dialogs.answer_paste(self.dialog)

    def redraw(self, width: int) -> None:
        """Draw the open dialog over a screen of `width` cells. If no dialog is open, hide the box."""
        self.display = self.dialog is not None
        if self.dialog is None:
            return
        # On a narrow screen, the box covers the full width, because remains of the screen beside it would look like
        # part of it.
        wide = width if width < DIALOG_WIDTH + 2 else DIALOG_WIDTH
        lines = confirmation_dialogs.dialog_lines(self.dialog, wide, self.state.glyphs, tone=self.state.identity.tone)
        self.styles.width, self.styles.height = wide, len(lines)
        self.show(lines)
