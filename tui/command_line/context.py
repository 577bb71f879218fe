"""The context of a command: its arguments, its output, and its environment, which is selected on first use."""

import argparse
import os
import shlex
import sys
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any

from core.model.errors import ConfirmationNeeded, UsageError
from tui.command_line.output import CommandOutput
from tui.project_folder.environment_selection import SelectedEnvironment, absolute_environ, select_environment
from tui.services.environment_service import EnvironmentService


class CommandContext:
    """One execution of a command: its arguments, output, current folder and environment."""

    def __init__(self, args: argparse.Namespace, output: CommandOutput, environ: Mapping[str, str]) -> None:
        self.args = args
        self.output = output
        try:
            self.cwd = os.getcwd()
        except FileNotFoundError as error:
            raise UsageError("the current folder no longer exists", remedy="cd to an existing folder") from error
        self.environ = absolute_environ(environ, self.cwd)

    @cached_property
    def place(self) -> SelectedEnvironment:
        """The environment selected by arguments and environment variables. Raises UsageError if there is none."""
        found = select_environment(
            self.environ,
            self.cwd,
            project=getattr(self.args, "project", None),
            environment=getattr(self.args, "env", None),
        )
        if found.broken:
            instead = f"its last readable version applies, and {found.environment} counts as protected"
            self.output.say(f"{found.broken}: until it is corrected, {instead}")
        if not found.declared:
            self.output.say(f"headgate.yml no longer declares {found.environment}: this is what its ledger records")
        return found

    @property
    def given_options(self) -> str:
        """`--project` and `--env` as given, each with a leading space, for commands that the output suggests."""
        given = (("project", getattr(self.args, "project", None)), ("env", getattr(self.args, "env", None)))
        return "".join(f" --{name} {shlex.quote(value)}" for name, value in given if isinstance(value, str))

    @cached_property
    def operations(self) -> EnvironmentService:
        """The operations on the selected environment."""
        return EnvironmentService(self.place, self.environ)

    def document(self, form: str, **parts: Any) -> None:
        """Print a JSON document that states its format, project and environment."""
        self.output.data(
            {"format": form, "project": self.place.project, "environment": self.place.environment, **parts}
        )

    def announce(self) -> None:
        """Print the environment and the project folder on which the command is about to act."""
        overlay = self.place.overlay
        place = self.place.folder if overlay is None else f"overlay of {overlay.base}, branch {overlay.branch}"
        self.output.say(f"({place})", lead=f"{self._painted_title()}  ")

    def answer(self, value: Mapping[str, Any], *messages: str, lines: Iterable[str] = ()) -> None:
        """Print the answer of a command that has acted; as JSON, it begins with project and environment."""
        where = {"project": self.place.project, "environment": self.place.environment}
        self.output.answer({**where, **value}, *messages, lines=lines)

    def _painted_title(self) -> str:
        """Return project and environment, in the environment's colour if stderr is a terminal that shows colours."""
        place = self.place
        if not sys.stderr.isatty() or self.environ.get("TERM", "") in ("", "dumb"):
            return place.title
        from tui.presentation.screen_content.screen_frame import environment_tone
        from tui.presentation.styling.theme import choose_palette
        from tui.terminal.cell_diff import painted

        tone = environment_tone(protected=place.protected, colour=place.colour)
        return painted(place.title, choose_palette(self.environ).tones[tone])

    def confirm(self, text: str, question: str, *, op: str = "", act: str = "") -> str:
        """Require the confirmation `text`, from `--confirm` or typed on a terminal, and return it.

        If `text` is empty, nothing is required. Raises ConfirmationNeeded unless `text` was given. Before it asks, it
        raises the agent's refusal if this user may not use the agent's command `op`.
        """
        if not text:
            return ""
        if op:
            self.operations.refuse_early(op, act)
        given = getattr(self.args, "confirm", None)
        if given is None and text == "yes" and getattr(self.args, "yes", False):
            given = "yes"
        if given is None and self.output.interactive and not self.output.as_json:
            self.output.say(question)
            where = self._painted_title()
            given = ask(f"{where}: type {text!r} and press Enter to continue, or Enter alone to abort: ")
            if not given:
                raise ConfirmationNeeded("nothing was typed, nothing was done")
        if given is None or given.strip() != text:
            said = "nothing was given" if given is None else f"{given!r} was given"
            raise ConfirmationNeeded(f"this needs the confirmation {text!r}; {said}", remedy=f"--confirm '{text}'")
        return text


def ask(prompt: str) -> str:
    """Print a prompt on stderr and return the line that the user types. Empty at end of input."""
    import sys

    print(prompt, end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip()
