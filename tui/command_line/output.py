"""A command's output: data on stdout, messages on stderr, progress on a terminal."""

import io
import json
import os
import shutil
import sys
import textwrap
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import chain
from typing import TYPE_CHECKING, Any, TextIO

from core.model.errors import FREE_SPACE, HeadgateError, InvalidProject
from core.text.escaping import JSON_ASTRAL, escape_control_characters, escape_in_document

if TYPE_CHECKING:
    from tui.agent_client.agent_process import WaitProgress

EVERY_S = 10.0
"""Seconds between progress messages when stderr is not a terminal."""


class StdoutNotWritten(HeadgateError):
    """Raised if a result cannot be written to stdout."""


class CommandOutput:
    """Writes a command's output: data to stdout, messages and progress to stderr."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        self.interactive = sys.stdin.isatty() and sys.stderr.isatty()
        self._waiting = ""
        self._said_at = 0.0

    def say(self, text: str, *, lead: str = "") -> None:
        """Print a message on stderr, wrapped on a terminal. Control characters except tabs are escaped.

        `lead` is printed before it as it is: a word that a terminal shows in colour.
        """
        self.clear()
        lines = list(map(escape_control_characters, text.split("\n")))
        if sys.stderr.isatty():
            lines = list(chain.from_iterable(_wrapped(line, shutil.get_terminal_size().columns) for line in lines))
        # A full disk or a closed pipe behind stderr must not prevent an act.
        with suppress(OSError):
            print(lead + "\n".join(lines), file=sys.stderr, flush=True)

    def print(self, lines: Iterable[str], *, hang: int | None = None, most: int | None = None) -> None:
        """Print lines on stdout. Line breaks within a line are escaped.

        With `hang`, a terminal wraps long lines between words, and without a terminal, lines are wrapped at `most`
        columns if that is given. Continuation lines are indented by `hang` spaces.
        """
        self.clear()
        width = stdout_width() or most if hang is not None else None
        with _stdout_errors_translated():
            for line in map(escape_control_characters, lines):
                for part in [line] if width is None else _wrapped(line, width, hang):
                    print(part)
            sys.stdout.flush()

    def data(self, value: Any) -> None:
        """Print a value on stdout as JSON."""
        self.clear()
        with _stdout_errors_translated():
            text = json.dumps(value, indent=2, ensure_ascii=not _is_unicode(sys.stdout), sort_keys=False)
            print(escape_in_document(text, astral=JSON_ASTRAL))
            sys.stdout.flush()

    def answer(self, value: Any, *messages: str, lines: Iterable[str] = (), hang: int | None = None) -> None:
        """Print `value` as JSON if requested; otherwise `lines` on stdout and `messages` on stderr."""
        if self.as_json:
            return self.data(value)
        self.print(lines, hang=hang)
        for message in messages:
            self.say(message)
        return None

    def progress(self, wait: "WaitProgress") -> None:
        """Show what the command is waiting for, with elapsed and typical time.

        On a terminal, the progress line is updated in place; otherwise, a line is printed from time to time.
        """
        usual = f" of about {wait.usual_s:.0f} s" if wait.usual_s else ""
        text = escape_control_characters(
            f"  {wait.what}: {wait.elapsed_s:.0f} s{usual}" + (f"  {wait.detail}" if wait.detail else "")
        )
        if sys.stderr.isatty():
            width = shutil.get_terminal_size().columns - 1
            if text != self._waiting:
                cut = text if len(text) <= width else f"{text[: width - 1]}…"
                print(f"\r\x1b[K{cut}", end="", file=sys.stderr, flush=True)
        elif not self._waiting.startswith(f"  {wait.what}:") or time.monotonic() - self._said_at > EVERY_S:
            self.say(text)
            self._said_at = time.monotonic()
        else:
            return
        self._waiting = text

    def clear(self) -> None:
        """Erase the progress line. Does nothing if there is none."""
        if self._waiting and sys.stderr.isatty():
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
        self._waiting = ""

    def fail(self, error: HeadgateError) -> int:
        """Print an error with its Problems and remedy, and return its exit code."""
        problems = error.problems if isinstance(error, InvalidProject) else ()
        if self.as_json:
            body: dict[str, Any] = {"error": error.as_json()}
            if isinstance(error, InvalidProject):
                body["problems"] = list(problems)
            self.data(body)
        else:
            for problem in problems:
                self.say(problem_line(problem))
            self.say(
                f"headgate: {escape_control_characters(error.summary)}"
                + (f"\n  {escape_control_characters(error.remedy)}" if error.remedy else "")
            )
        return error.exit_code


def stdout_width() -> int | None:
    """Return the terminal's width in columns; None if stdout is not a terminal, so that nothing is shortened."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def _wrapped(line: str, width: int, hang: int | None = None) -> list[str]:
    if len(line) <= width:
        return [line]
    indent = " " * (len(line) - len(line.lstrip()) + 2 if hang is None else hang)
    return textwrap.wrap(line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def problem_line(problem: Mapping[str, object]) -> str:
    """Format a Problem like a compiler message: location, severity, summary, then context and remedy."""
    place = str(problem.get("file") or "")
    for part in ("line", "column"):
        if problem.get(part):
            place += f":{problem[part]}"
    head = f"{place}: {problem.get('severity')}: {problem.get('summary')}".removeprefix(": ")
    below = [line for part in ("detail", "remedy") for line in str(problem.get(part) or "").split("\n") if line]
    return "\n".join([escape_control_characters(head), *(f"    {escape_control_characters(line)}" for line in below)])


@contextmanager
def _stdout_errors_translated() -> Iterator[None]:
    """Raise StdoutNotWritten if the block fails to write to stdout. A closed pipe still raises BrokenPipeError."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        silence_stdout()
        raise StdoutNotWritten(f"stdout cannot be written: {error.strerror}", remedy=FREE_SPACE) from error


def open_streams() -> None:
    """Prepare the standard streams, so that printing never fails because of an unencodable character.

    A stream closed by the shell (`>&-`) is reopened on /dev/null, so that no file opened later becomes stdout.
    Characters that the encoding cannot represent are replaced, or escaped in JSON.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # The lowest free descriptor is assigned first: this stream's own.
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 (it stays open)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # Unprintable characters and undecodable file names must not make a command fail.
            stream.reconfigure(errors="backslashreplace" if _is_unicode(stream) else "replace")


def _is_unicode(stream: TextIO) -> bool:
    return "utf" in (stream.encoding or "").lower()


def silence_stdout() -> None:
    """Redirect stdout to /dev/null once its reader is gone, so that the interpreter reports no error on exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
