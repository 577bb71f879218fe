"""Actions that every screen has: type a line, ask for help, go back, read again, freeze, copy."""

from collections.abc import Callable
from contextlib import nullcontext, suppress

from core.model.errors import HeadgateError
from tui.presentation.styling.styled_text import Tone
from tui.screens.console_screen import ConsoleScreen
from tui.screens.console_state import ConsoleState


def acknowledge(state: ConsoleState, run_id: str, then: Callable[[str], object] | None = None) -> None:
    """Acknowledge a failed run with the agent; `then` takes the message about it.

    Without `then` nobody asked: who only looks, and may not act, is told nothing.
    """

    def work() -> str:
        with nullcontext() if then else suppress(HeadgateError):
            state.backend.agent.run_control(run_id, "ack")
        return f"run {run_id[:10]}: acknowledged"

    if then or not state.read_only:
        state.host.run_in_thread(work, then or str)


class SharedActionsScreen(ConsoleScreen):
    """A screen with the actions of all screens."""

    def open_when_free(self, name: str, otherwise: str, **arguments: object) -> None:
        """Open a screen that was asked for a while ago; show `otherwise` where something else is done by now."""
        if self.is_free:
            self.state.host.open_screen(name, **arguments)
        else:
            self.state.notify(otherwise, Tone.CHANGING)

    def do_command(self, key: str) -> None:
        self.typed.begin(":")

    def do_filter(self, key: str) -> None:
        self.typed.begin("/")

    def do_help(self, key: str) -> None:
        self.state.host.open_screen("help", about=self.screen_name, now=self.action_context())

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
        """Return what `y` copies."""
        return ""

    def copy_line(self) -> str:
        """Return the CLI line that shows what this screen shows."""
        return f"headgate ls --env {self.state.identity.environment}"
