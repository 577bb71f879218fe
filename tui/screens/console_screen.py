"""The frame of every screen: it takes each key, asks the table of actions what it means, and forwards.

Nothing here waits.
"""

from collections.abc import Callable, Sequence
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.screen import Screen
from textual.widget import Widget

from tui.presentation.interaction import confirmation_dialogs
from tui.presentation.interaction import input_line as typing_line
from tui.presentation.interaction.action_availability import (
    ActionContext,
    action_context_of,
    action_label,
    why_not_possible,
)
from tui.presentation.interaction.confirmation_dialogs import ConfirmationDialog, OpenDialog
from tui.presentation.interaction.input_line import InputLine
from tui.presentation.interaction.keymap import (
    ConsoleAction,
    command_of_action,
    find_action,
    keymap_of,
    screens_with_key,
)
from tui.presentation.screen_content import banner_footer
from tui.presentation.styling.styled_text import Line, Tone, line
from tui.screens.console_state import ConsoleState
from tui.widgets.line_widgets import FixedLines, GrowingLines

NEED_WIDTH, NEED_HEIGHT = 80, 24
SAID_FOR_S = 12.0
SETTLES_S = 0.15
"""No row changes its place sooner than this after a key."""
DIALOG_WIDTH = 100


class ConsoleScreen(Screen[None], inherit_bindings=False):
    """A screen without focus: it takes every key itself, so that one table decides what each means."""

    AUTO_FOCUS: ClassVar[str | None] = ""
    page_name: ClassVar[str] = ""

    def __init__(self, desk: ConsoleState) -> None:
        super().__init__()
        self.desk = desk
        self.answering: OpenDialog | None = None
        self.on_yes: Callable[[str], None] | None = None
        self.on_safe: Callable[[], None] | None = None
        self.named: tuple[str, ...] = ()
        """Tables that a `:` command names; they go before the cursor and the marks."""
        self.entry: InputLine | None = None
        self.filter_text = ""
        self.key_at = 0.0
        self.keys = keymap_of(self.page_name)
        painter = desk.painter
        self.banner_line = FixedLines(painter, id="banner", band=True)
        self.crumb_line = FixedLines(painter, id="crumb")
        self.flash_line = GrowingLines(painter, id="flash")
        self.hint_line = FixedLines(painter, id="hints")
        self.dialog = FixedLines(painter, id="dialog", band=True)
        self.small = FixedLines(painter, id="small")

    # What a screen says of itself.

    def body(self) -> Sequence[Widget]:
        """Return the widgets between the crumb and the flash line."""
        return ()

    def refresh_body(self) -> None:
        """Show the world in the body; called at most a few times a second and after keys."""

    def crumb(self) -> tuple[Sequence[str], str]:
        """Return the path and the counts of line 2."""
        return (self.page_name,), ""

    def targets(self) -> tuple[str, ...]:
        """Return the tables that an act would be about now."""
        return ()

    def under_cursor(self) -> tuple[str, ...]:
        """Return the tables under the cursor, whatever is marked."""
        return self.targets()

    def looked_at(self) -> tuple[str, ...]:
        """Return the tables that a look is about: named ones first."""
        return self.named or self.under_cursor()

    def subjects(self) -> tuple[str, ...]:
        """Return the tables of the act that is being done: named ones first."""
        return self.named or self.targets()

    def circumstances(self) -> ActionContext:
        """Return what decides which actions are possible."""
        desk = self.desk
        return action_context_of(
            desk.world,
            self.subjects(),
            looked=self.looked_at(),
            user=desk.place.user,
            stale=desk.fresh.reason,
            read_only=desk.read_only,
        )

    def wrong_filter(self) -> str:
        """Explain why the filter is not understood; it shows everything as long as it is not."""
        return ""

    def fetch(self) -> object:
        """Read what this screen alone needs; called in a thread, must touch no widget."""
        return None

    def take(self, fetched: object) -> None:
        """Take what `fetch` gave; called on the loop."""

    # Frame.

    def compose(self) -> ComposeResult:
        yield self.banner_line
        yield self.crumb_line
        yield from self.body()
        yield self.flash_line
        yield self.hint_line
        yield self.dialog
        yield self.small

    def on_mount(self) -> None:
        self.flush()

    def on_resize(self, event: events.Resize) -> None:
        self._fit(event.size.width, event.size.height)
        # The panes learn their sizes after this event: their rows are made when they have them.
        self.call_after_refresh(self.flush)

    def _fit(self, width: int, height: int) -> None:
        self.set_class(width < NEED_WIDTH or height < NEED_HEIGHT, "-small")
        self.set_class(width >= 160, "-wide")

    def on_screen_resume(self) -> None:
        self.flush()

    @property
    def holds_order(self) -> bool:
        """Return whether rows must stay where they are: a dialog is open, or a key has just come."""
        return self.answering is not None or self.desk.tick() - self.key_at < SETTLES_S

    def flush(self) -> None:
        """Show everything as it is now; what has not changed is not drawn again."""
        if not self.is_mounted or not self.is_current:
            return
        width, height = self.size
        # A terminal that was resized while the console was starting has sent no event that counts.
        self._fit(width, height)
        if self.has_class("-small"):
            self.small.show((banner_footer.too_small(width, height, NEED_WIDTH, NEED_HEIGHT),))
            return
        self.refresh_body()
        desk = self.desk
        self.banner_line.show((banner_footer.banner_line(desk.place, desk.world, desk.fresh, width),))
        path, counts = self.crumb()
        if desk.frozen:
            counts = f"FROZEN  {counts}"
        self.crumb_line.show((banner_footer.breadcrumb_line(path, self.filter_text, counts, width),))
        self._show_bottom(width)
        self._show_dialog(width)

    def _show_bottom(self, width: int) -> None:
        if self.entry is not None:
            self.flash_line.show((typing_line.input_line_cells(self.entry, self.desk.glyphs, width),))
            wrong = self.wrong_filter() if self.entry.sign == "/" else ""
            offered = banner_footer.choices(self.completions(self.entry), width, self.desk.glyphs.ellipsis)
            self.hint_line.show((line((f" {wrong}", Tone.CHANGING)) if wrong else offered,))
            return
        said = self.desk.said
        if wrong := self.wrong_filter():
            self.flash_line.show(
                banner_footer.message_lines(
                    f"{wrong}; all rows are shown until the filter is corrected", None, Tone.CHANGING, width
                )
            )
        elif said is not None and self.desk.clock() - said[1] < SAID_FOR_S:
            self.flash_line.show(banner_footer.message_lines(said[0], said[1], said[2], width))
        else:
            text, at, tone = banner_footer.standing(self.desk.world, self.desk.fresh)
            self.flash_line.show(banner_footer.message_lines(text, at, tone, width, most=banner_footer.STANDING_LINES))
        self.hint_line.show((banner_footer.hints(banner_footer.footer(self.page_name, self.circumstances()), width),))

    def _show_dialog(self, width: int) -> None:
        lines: tuple[Line, ...] = ()
        if self.answering is not None:
            # Nothing of the screen below shows at its sides where it cannot be told from the box.
            wide = width if width < DIALOG_WIDTH + 2 else DIALOG_WIDTH
            lines = confirmation_dialogs.dialog_lines(self.answering, wide, self.desk.glyphs)
            self.dialog.styles.width, self.dialog.styles.height = wide, len(lines)
        self.dialog.display = bool(lines)
        self.dialog.show(lines)

    # Keys.

    def on_key(self, event: events.Key) -> None:
        event.stop()
        event.prevent_default()
        character = event.character if event.character and event.character.isprintable() else None
        name = character if character and character != " " else event.key
        self.press(name, event.key, character)

    def press(self, name: str, key: str, character: str | None) -> None:
        """Take one key: the dialog comes first, then the line being typed, then the table of actions."""
        now = self.desk.tick()
        unseen = self.has_class("-small") and (self.answering is not None or self.entry is not None)
        if unseen and key not in ("escape", "ctrl+c"):
            return
        if self.answering is not None:
            self._press_in_dialog(key, character, now)
        elif self.entry is not None:
            self._press_in_entry(key, character)
        else:
            action = self.keys.get(name)
            if self.has_class("-small") and (action is None or action.id not in ("quit", "back", "interrupt")):
                return
            if action is not None:
                self.do(action, name)
            elif screens := screens_with_key(name):
                self.desk.say(f"{name} does nothing on {self.page_name}: it is a key of {', '.join(screens)}", Tone.DIM)
        self.key_at = now
        self.flush()

    def do(self, action: ConsoleAction, key: str) -> None:
        """Do an action, or say why it is not possible."""
        reason = why_not_possible(action, self.circumstances())
        if reason:
            self.desk.say(f"{action_label(action, self.circumstances())}: {reason}", Tone.CHANGING)
            return
        handler: Callable[[str], None] = getattr(self, f"do_{action.id}")
        handler(key)

    def _press_in_dialog(self, key: str, character: str | None, now: float) -> None:
        assert self.answering is not None
        self.answering = confirmation_dialogs.answer_key(self.answering, key, character, now)
        if not self.answering.outcome:
            return
        answered, on_yes, on_safe = self.answering, self.on_yes, self.on_safe
        self.answering = self.on_yes = self.on_safe = None
        if answered.outcome == "yes" and on_yes is not None:
            on_yes(answered.question.expected)
        elif answered.outcome == "safe" and on_safe is not None:
            on_safe()
        else:
            self.desk.say(f"{answered.question.title}: not done", Tone.DIM)

    def _press_in_entry(self, key: str, character: str | None) -> None:
        assert self.entry is not None
        if key == "tab":
            self.entry = typing_line.complete(self.entry, self.completions(self.entry))
        else:
            self.entry = typing_line.type_key(self.entry, key, character)
        self._entry_changed()

    def _entry_changed(self) -> None:
        entry = self.entry
        assert entry is not None
        if entry.done == "leave":
            self.entry = None
            if entry.sign == "/":
                self.filter_text = ""
        elif entry.done == "accept":
            self.entry = None
            self.desk.remember(entry.sign, entry.text)
            if entry.sign == ":":
                self.desk.host.command(entry.text.strip())
        elif entry.sign == "/":
            self.filter_text = entry.text.strip()

    def on_paste(self, event: events.Paste) -> None:
        event.stop()
        if self.answering is not None:
            self.answering = confirmation_dialogs.answer_paste(self.answering)
        elif self.entry is not None:
            self.entry = typing_line.insert(self.entry, event.text)
            self._entry_changed()
        else:
            self.desk.say("pasted text is not read as keys: type : or / first", Tone.CHANGING)
        self.flush()

    def completions(self, entry: InputLine) -> tuple[str, ...]:
        """Suggest how a line goes on."""
        from tui.presentation.interaction.colon_completion import complete_command
        from tui.presentation.interaction.filters import completions

        if entry.sign == "/":
            return completions(entry.text)
        return complete_command(entry.text, self.page_name, tuple(self.desk.world.statements), self.circumstances())

    # Handlers that every screen has.

    def ask(
        self, question: ConfirmationDialog, on_yes: Callable[[str], None], on_safe: Callable[[], None] | None = None
    ) -> None:
        """Put a question; `on_yes` is called with the text that was typed, `on_safe` after Enter alone."""
        self.answering = OpenDialog(question, opened_at=self.desk.tick())
        self.on_yes, self.on_safe = on_yes, on_safe

    def arrive(self, name: str, said: str, **arguments: object) -> None:
        """Open a screen that was asked for a while ago, unless its person does something else by now: then say so."""
        if self.is_current and self.answering is None and self.entry is None:
            self.desk.host.go(name, **arguments)
        else:
            self.desk.say(said, Tone.CHANGING)

    def type_line(self, sign: str, text: str = "") -> None:
        """Begin typing a filter or a command."""
        self.entry = InputLine(sign, text, len(text), history=self.desk.histories.get(sign, ()))

    def do_command(self, key: str) -> None:
        self.type_line(":")

    def do_palette(self, key: str) -> None:
        self.type_line(":")

    def do_filter(self, key: str) -> None:
        self.type_line("/", self.filter_text)

    def do_help(self, key: str) -> None:
        self.desk.host.go("help", about=self.page_name, now=self.circumstances())

    def do_back(self, key: str) -> None:
        if key == "escape" and self.filter_text:
            self.filter_text = ""
            return
        self.desk.host.leave()

    def do_refresh(self, key: str) -> None:
        self.desk.host.kick()
        self.desk.say("reloading", Tone.DIM)

    def do_freeze(self, key: str) -> None:
        self.desk.frozen = not self.desk.frozen
        self.desk.say("frozen: press . to unfreeze" if self.desk.frozen else "live again", Tone.CHANGING)

    def do_redraw(self, key: str) -> None:
        self.desk.host.redraw()

    def do_log(self, key: str) -> None:
        self.desk.host.go("log")

    def do_changes(self, key: str) -> None:
        self.desk.host.go("changes")

    def do_interrupt(self, key: str) -> None:
        self.desk.say("q leaves (esc goes back); runs and statements continue without this screen", Tone.CHANGING)

    def do_copy(self, key: str) -> None:
        text = self.copy_text()
        if text:
            self.desk.host.copy(text)
            lines = text.splitlines()
            self.desk.say(f"copied: {lines[0] if len(lines) == 1 else f'{len(lines)} lines'}", Tone.DIM)

    def do_copy_command(self, key: str) -> None:
        text = self.copy_line()
        self.desk.host.copy(text)
        self.desk.say(f"copied: {text}", Tone.DIM)

    def copy_text(self) -> str:
        """Return what `y` copies."""
        return "\n".join(self.targets())

    def copy_line(self) -> str:
        """Return the CLI line that shows what this screen shows."""
        action = find_action("detail", "home")
        targets = self.looked_at()
        if action is None or not targets or not action.command:
            return f"headgate ls --env {self.desk.place.environment}"
        return command_of_action(action, tables=targets, environment=self.desk.place.environment)
