"""The base of all screens: banner, breadcrumb, body, status line, footer, confirmation dialog, and shared keys.

A screen receives every key and looks up its action in the keymap. Nothing here blocks.
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.screen import Screen
from textual.widget import Widget

from core.model.errors import HeadgateError
from core.text.sentence import sentence_of
from tui.presentation.interaction.action_availability import ActionContext, action_label, why_not_possible
from tui.presentation.interaction.confirmation_dialogs import ARMS_AFTER_S
from tui.presentation.interaction.input_line import input_line_cells
from tui.presentation.interaction.keymap import KNOWN_KEYS, ConfirmationLevel, ConsoleAction, keymap_of
from tui.presentation.screen_content.screen_frame import (
    STANDING_LINES,
    WIDE,
    banner_line,
    breadcrumb_line,
    choices,
    dialog_keys,
    environment_spans,
    footer,
    hints,
    message_lines,
    standing_message,
    too_small,
)
from tui.presentation.styling.styled_text import Line, Tone, line
from tui.screens.console_state import ConsoleState, QuestionBox, TypedLine
from tui.widgets.line_widgets import FixedLines, GrowingLines, RowTable

NEED_WIDTH, NEED_HEIGHT = 80, 24
WHEEL_ROWS = 3
NO_KEY_S = 2.0
"""Seconds for which the message that a key has no effect is shown."""
_LEAVE_ALIKE = frozenset({"redraw", "edit", "suspend"})
"""Actions that may leave the screen unchanged without a `no change` message."""
SETTLES_S = 0.15
"""Seconds after a key press for which rows keep their positions."""


class ConsoleScreen(Screen[None], inherit_bindings=False):
    """A screen without focused widgets: it receives every key itself and looks it up in its keymap."""

    AUTO_FOCUS: ClassVar[str | None] = ""
    screen_name: ClassVar[str] = ""

    def __init__(self, state: ConsoleState) -> None:
        super().__init__()
        self.state = state
        self.question = QuestionBox(state)
        self.typed = TypedLine(state, self.screen_name, self._context_now)
        self.key_at = 0.0
        self.keys = keymap_of(self.screen_name)
        painter = state.painter
        self.banner = FixedLines(painter, id="banner", band=True)
        self.breadcrumb = FixedLines(painter, id="breadcrumb")
        self.status = GrowingLines(painter, id="status")
        self.footer = FixedLines(painter, id="footer")
        self.small = FixedLines(painter, id="small")
        self.was_read = False
        """True once the data that `fetch` returns has arrived."""

    # For subclasses to override.

    def body(self) -> Sequence[Widget]:
        """Return the widgets between the breadcrumb and the status line."""
        return ()

    def refresh_body(self) -> None:
        """Show the current data in the body. This is called a few times a second and after keys."""

    def path_and_counts(self) -> tuple[Sequence[str], str]:
        """Return the parts of the breadcrumb: the path to this screen, and the counts to show."""
        return (self.screen_name,), ""

    def action_context(self) -> ActionContext:
        """Return the facts that decide which actions are possible on this screen now."""
        fresh = self.state.freshness
        reason = sentence_of(fresh.reason)
        no_agent = reason if fresh.no_agent else None
        locked, read_only = self.state.access.locked, sentence_of(self.state.read_only)
        return ActionContext(stale=reason, no_agent=no_agent, locked=locked, read_only=read_only)

    def wrong_filter(self) -> str:
        """Return the reason why the filter is invalid; empty if it is valid. An invalid filter hides nothing."""
        return ""

    def fetch(self) -> object:
        """Read this screen's data.

        This is called in the poller's thread, so it must not touch any widget.
        """
        return None

    def receive(self, fetched: object) -> None:
        """Store the data that `fetch` returned. This is called on the event loop."""

    # Drawing.

    def compose(self) -> ComposeResult:
        yield self.banner
        yield self.breadcrumb
        yield from self.body()
        yield self.status
        yield self.footer
        yield self.question
        yield self.small

    def on_mount(self) -> None:
        self.redraw()

    def on_resize(self, event: events.Resize) -> None:
        self._fit(event.size.width, event.size.height)
        # The panes get their sizes only after this event, and their contents depend on these sizes.
        self.call_after_refresh(self.redraw)

    def _fit(self, width: int, height: int) -> None:
        self.set_class(width < NEED_WIDTH or height < NEED_HEIGHT, "-small")
        self.set_class(width >= WIDE, "-wide")

    def on_screen_resume(self) -> None:
        self.redraw()

    @property
    def is_in_front(self) -> bool:
        """True if this screen is on top.

        Unlike Textual's `is_current`, this is False below a transparent screen.
        """
        return bool(self.app.screen_stack) and self.app.screen is self

    @property
    def is_free(self) -> bool:
        """True if another screen may open over this one: it is on top, and no dialog or input line is open."""
        return self.is_in_front and self.question.dialog is None and self.typed.entry is None

    @property
    def holds_order(self) -> bool:
        """True if rows must keep their positions, because a dialog is open or a key was just pressed."""
        return self.question.dialog is not None or self.state.monotonic() - self.key_at < SETTLES_S

    def redraw(self) -> None:
        """Show the current state, redrawing only the parts that have changed."""
        if not self.is_mounted or not self.is_in_front:
            return
        width, height = self.size
        # If the terminal was resized during the start, there was no usable event.
        self._fit(width, height)
        if self.has_class("-small"):
            self.small.show((too_small(width, height, NEED_WIDTH, NEED_HEIGHT),))
            return
        self.refresh_body()
        state = self.state
        fresh, access, wrong = state.freshness, state.access, state.backend.problems_in_files
        badges = state.host.badges()
        banner = banner_line(
            state.identity, state.view, fresh, width, access=access, problems_in_files=wrong, badges=badges
        )
        self.banner.show((banner,))
        path, counts = self.path_and_counts()
        if state.frozen:
            counts = f"FROZEN  {counts}"
        self.breadcrumb.show((breadcrumb_line(path, self.typed.filter_text, counts, width),))
        self.status.show(self._status_lines(width))
        self.footer.show((self._footer_line(width),))
        self.question.redraw(width)

    def _status_lines(self, width: int) -> Sequence[Line]:
        state, message, now = self.state, self.state.message, self.state.clock()
        several = bool(state.host.badges())
        about = state.identity if several else None
        if self.typed.entry is not None:
            prompt = environment_spans(state.identity) if several else ()
            return (input_line_cells(self.typed.entry, state.glyphs, width, prompt),)
        if wrong := self.wrong_filter():
            text = f"{wrong}; all rows are shown until the filter is corrected"
            return message_lines(text, None, Tone.CHANGING, width)
        if message is not None and now - message.at < message.seconds:
            names_other = message.about is not state.identity
            about = message.about if several or names_other else None
            return message_lines(message.text, message.at, message.tone, width, about=about)
        text, at, tone = standing_message(state.view, state.freshness, now)
        return message_lines(text, at, tone, width, most=STANDING_LINES, about=about)

    def _footer_line(self, width: int) -> Line:
        entry, dialog = self.typed.entry, self.question.dialog
        if dialog is not None:
            return hints(dialog_keys(dialog.question), width, help_key=False)
        if entry is not None:
            if entry.sign == "/" and (wrong := self.wrong_filter()):
                return line((f" {wrong}", Tone.CHANGING))
            return choices(self.typed.completions(), width, self.state.glyphs.ellipsis)
        return hints(footer(self.screen_name, self._context_now()), width)

    def _context_now(self) -> ActionContext:
        return replace(self.action_context(), several=bool(self.state.host.badges()))

    # Keys.

    def on_key(self, event: events.Key) -> None:
        """Handle one key: as an answer to an open dialog, as text for an open input line, or as an action."""
        event.stop()
        event.prevent_default()
        key = event.key
        character = event.character if event.character and event.character.isprintable() else None
        name = character if character and character != " " else key
        small = self.has_class("-small")
        # A confirmation dialog that is not visible cannot be answered.
        takes_key = not small or key in ("escape", "ctrl+c")
        if key == "ctrl+z":
            self.state.host.suspend_process()
        elif self.question.dialog is not None:
            answered = self.question.press(key, character) if takes_key else None
            if answered is not None:
                answered()
        elif self.typed.entry is not None:
            if takes_key:
                self.typed.press(key, character)
        elif action := self.keys.get(name):
            if not small or action.id in ("quit", "back", "interrupt"):
                before = self._seen()
                self.perform_action(action, name)
                self._say_where_nothing_changed(action, name, before)
        elif not small:
            self.state.notify(f"{name}: {'not here' if name in KNOWN_KEYS else 'no key'}", Tone.DIM, seconds=NO_KEY_S)
        self.key_at = self.state.monotonic()
        self.redraw()

    def _say_where_nothing_changed(self, action: ConsoleAction, key: str, before: tuple[object, ...]) -> None:
        if action.level is ConfirmationLevel.LOOK and action.id not in _LEAVE_ALIKE and self.is_free:
            self.key_at = self.state.monotonic()
            self.redraw()
            if self._seen() == before:
                self.state.notify(f"{key}: no change", Tone.DIM, seconds=NO_KEY_S)

    def _seen(self) -> tuple[object, ...]:
        panes = (*self.query(FixedLines), *self.query(RowTable))
        return (self.state.message, *(tuple(pane.seen_lines()) for pane in panes if pane is not self.status))

    # The mouse, if a setting enables it.

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        self._wheel(event, "j")

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        self._wheel(event, "k")

    def _wheel(self, event: events.MouseEvent, key: str) -> None:
        """Move by a few rows, as if the cursor key `key` were pressed. The wheel never does anything else."""
        event.stop()
        event.prevent_default()
        if self.is_free:
            for _ in range(WHEEL_ROWS):
                self.perform_action(self.keys[key], key)
            self.key_at = self.state.monotonic()
            self.redraw()

    def on_paste(self, event: events.Paste) -> None:
        event.stop()
        if self.question.dialog is not None:
            self.question.paste()
        elif self.typed.entry is not None:
            self.typed.paste(event.text)
        else:
            self.state.notify("pasted text is not read as keys: type : or / first", Tone.CHANGING)
        self.redraw()

    def perform_action(self, action: ConsoleAction, key: str) -> None:
        """Perform an action, or show why it is not possible now."""
        context, state = self._context_now(), self.state
        if reason := why_not_possible(action, context):
            state.notify(f"{action_label(action, context)}: {reason}", Tone.CHANGING)
            return
        if action.level is not ConfirmationLevel.LOOK and state.monotonic() - state.shown_at < ARMS_AFTER_S:
            # The key may have been meant for the environment that was on the screen before.
            words = f"{action_label(action, context)}: {state.identity.words} has only just appeared: press {key} again"
            state.notify(words, Tone.CHANGING)
            return
        handler: Callable[[str], None] = getattr(self, f"do_{action.id}")
        handler(key)

    # Actions of every screen.

    def open_when_free(self, name: str, otherwise: str, **arguments: object) -> None:
        """Open a screen that was requested earlier.

        If the user has begun something else, show the message `otherwise` instead.
        """
        if self.is_free:
            self.state.host.open_screen(name, **arguments)
        else:
            self.state.notify(otherwise, Tone.CHANGING)

    def do_command(self, key: str) -> None:
        self.typed.begin(":")
        self.state.host.learn_environments()

    def do_next_environment(self, key: str) -> None:
        self.state.host.next_environment(1)

    def do_previous_environment(self, key: str) -> None:
        self.state.host.next_environment(-1)

    def do_filter(self, key: str) -> None:
        self.typed.begin("/")

    def do_help(self, key: str) -> None:
        self.state.host.open_screen("help", about=self.screen_name, now=self._context_now())

    def do_back(self, key: str) -> None:
        if key == "escape" and self.typed.filter_text:
            self.typed.filter_text = ""
            return
        self.state.host.go_back()

    def do_refresh(self, key: str) -> None:
        self.state.host.read_now(progress="reloading")

    def do_freeze(self, key: str) -> None:
        state = self.state
        state.frozen = not state.frozen
        state.notify("frozen: press . to unfreeze" if state.frozen else "live again", Tone.CHANGING)

    def do_redraw(self, key: str) -> None:
        self.state.host.resend_cells()

    def do_suspend(self, key: str) -> None:
        self.state.host.suspend_process()

    def do_log(self, key: str) -> None:
        self.state.host.open_screen("log")

    def do_changes(self, key: str) -> None:
        self.state.host.open_screen("changes")

    def do_interrupt(self, key: str) -> None:
        self.state.notify("q leaves (esc goes back); runs and statements continue without this screen", Tone.CHANGING)

    def do_copy(self, key: str) -> None:
        if text := self.copy_text():
            lines = text.splitlines()
            self._copy(text, lines[0] if len(lines) == 1 else f"{len(lines)} lines")

    def do_copy_command(self, key: str) -> None:
        self._copy(self.copy_line(), self.copy_line())

    def _copy(self, text: str, words: str) -> None:
        self.state.host.copy_to_clipboard(text)
        self.state.notify(f"copied: {words}", Tone.DIM)

    def copy_text(self) -> str:
        """Return the text that the key `y` copies."""
        return ""

    def copy_line(self) -> str:
        """Return the command that prints what this screen shows."""
        return f"headgate ls --env {self.state.identity.environment}"


def acknowledge(state: ConsoleState, run_id: str, then: Callable[[str], object] | None = None) -> None:
    """Acknowledge a failed run, and pass the resulting message to `then`.

    Without `then`, the acknowledgement is automatic: errors are ignored, and a read-only console does nothing.
    """

    def work() -> str:
        with nullcontext() if then else suppress(HeadgateError):
            state.backend.agent.run_control(run_id, "ack")
        return f"run {run_id[:10]}: acknowledged"

    if then or not state.read_only:
        state.host.run_in_thread(work, then or str)
