"""The open question: a confirmation dialog over the screen, which takes every key until it is answered."""

from collections.abc import Callable
from functools import partial

from tui.presentation.interaction import confirmation_dialogs
from tui.presentation.interaction.confirmation_dialogs import ConfirmationDialog, OpenDialog
from tui.presentation.styling.styled_text import Tone
from tui.screens.console_state import ConsoleState
from tui.widgets.line_widgets import FixedLines

DIALOG_WIDTH = 100


class QuestionBox(FixedLines):
    """Shows at most one question; what was agreed on is handed out once it is answered."""

    def __init__(self, state: ConsoleState) -> None:
        super().__init__(state.painter, id="dialog", band=True)
        self.state = state
        self.dialog: OpenDialog | None = None
        self._on_yes: Callable[[str], None] | None = None
        self._on_safe: Callable[[], None] | None = None

    def ask(
        self, question: ConfirmationDialog, on_yes: Callable[[str], None], on_safe: Callable[[], None] | None = None
    ) -> None:
        """Put a question; `on_yes` is called with the text that was typed, `on_safe` after Enter alone."""
        self.dialog = OpenDialog(question, opened_at=self.state.monotonic())
        self._on_yes, self._on_safe = on_yes, on_safe

    def press(self, key: str, character: str | None) -> Callable[[], object] | None:
        """Take one key; return what is to be called once the question is answered, None before."""
        assert self.dialog is not None
        answered = confirmation_dialogs.answer_key(self.dialog, key, character, self.state.monotonic())
        self.dialog = None if answered.outcome else answered
        if answered.outcome == "yes" and self._on_yes is not None:
            return partial(self._on_yes, answered.question.expected)
        if answered.outcome == "safe" and self._on_safe is not None:
            return self._on_safe
        if answered.outcome:
            return partial(self.state.notify, f"{answered.question.title}: not done", Tone.DIM)
        return None

    def paste(self) -> None:
        """Refuse pasted text: it never confirms."""
        assert self.dialog is not None
        self.dialog = confirmation_dialogs.answer_paste(self.dialog)

    def redraw(self, width: int) -> None:
        """Draw the question over a screen of `width` cells, or nothing."""
        self.display = self.dialog is not None
        if self.dialog is None:
            return
        # Nothing of the screen below shows at its sides where it cannot be told from the box.
        wide = width if width < DIALOG_WIDTH + 2 else DIALOG_WIDTH
        lines = confirmation_dialogs.dialog_lines(self.dialog, wide, self.state.glyphs)
        self.styles.width, self.styles.height = wide, len(lines)
        self.show(lines)
