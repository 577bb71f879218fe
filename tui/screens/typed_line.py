"""The line that is typed after `:` or `/`: its completions, its history, and the filter that it leaves."""

from collections.abc import Callable

from tui.presentation.interaction import input_line
from tui.presentation.interaction.action_availability import ActionContext
from tui.presentation.interaction.input_line import InputLine
from tui.screens.console_state import ConsoleState

HISTORY = 50
"""Lines of each kind that are remembered."""


class TypedLine:
    """What is being typed on one screen; a filter takes effect with each key, a command with Enter."""

    def __init__(self, state: ConsoleState, screen_name: str, action_context: Callable[[], ActionContext]) -> None:
        self.state = state
        self.entry: InputLine | None = None
        self.filter_text = ""
        self._screen_name = screen_name
        self._action_context = action_context

    def begin(self, sign: str, text: str = "") -> None:
        """Begin typing a filter or a command."""
        self.entry = InputLine(sign, text, len(text), history=self.state.histories.get(sign, ()))

    def press(self, key: str, character: str | None) -> None:
        """Take one key."""
        assert self.entry is not None
        if key == "tab":
            self._change(input_line.complete(self.entry, self.completions()))
        else:
            self._change(input_line.type_key(self.entry, key, character))

    def paste(self, text: str) -> None:
        """Put pasted text in; it never counts as Enter."""
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
        """Keep what was typed, newest last, without repeats."""
        if entry.text:
            kept = tuple(old for old in self.state.histories.get(entry.sign, ()) if old != entry.text)
            self.state.histories[entry.sign] = (*kept[1 - HISTORY :], entry.text)

    def completions(self) -> tuple[str, ...]:
        """Suggest how the line goes on."""
        from tui.presentation.interaction.colon_completion import complete_command
        from tui.presentation.interaction.filters import completions

        assert self.entry is not None
        if self.entry.sign == "/":
            return completions(self.entry.text)
        # A deleted table is deployed again by its name.
        tables = tuple(sorted({*self.state.view.statements, *self.state.view.snapshot.deleted}))
        return complete_command(self.entry.text, self._screen_name, tables, self._action_context())
