"""Child processes that run a module of the Spark side, and exchange lines of JSON with it over their pipes."""

import json
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from core.model.errors import HeadgateError, TryAgain, error_from_json
from tui.agent_client import os_processes
from tui.agent_client.agent_process import ProgressCallback, WaitProgress

_LINES = 20
"""Number of the last lines of stderr that are kept, of which an error shows the last."""


class SparkSideProcess:
    """A child process that reads requests from its input, writes answers to its output, and ends with its input.

    It has a session of its own, so Ctrl-C in the terminal does not reach it. Not thread-safe, except `kill`.
    """

    def __init__(self, module: str, *words: str, environ: Mapping[str, str], task: str, end_s: float) -> None:
        """Start a module with arguments.

        `task` completes "the process that …" in errors. `end_s` is the longest wait for its end, in seconds.
        """
        self._task = task
        self._end_s = end_s
        self._child = subprocess.Popen(
            os_processes.module_command(module, *words),
            cwd="/",
            env=os_processes.child_environment(environ),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            umask=0o077,
        )
        self._said: list[str] = []
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def send(self, request: Mapping[str, Any]) -> None:
        """Send a request. If the child has ended, the next answer raises."""
        assert self._child.stdin is not None, "it is a pipe"
        with suppress(BrokenPipeError):
            self._child.stdin.write(json.dumps(request) + "\n")
            self._child.stdin.flush()

    def answers(self) -> Iterator[dict[str, Any]]:
        """Yield answers until one is `done`. Raises the error in an answer, and HeadgateError if the child ends."""
        while "done" not in (answer := self.answer()):
            yield answer

    def answer(self) -> dict[str, Any]:
        """Return the next answer. Raises the error in it, and HeadgateError if the child ends without one."""
        assert self._child.stdout is not None, "it is a pipe"
        for line in self._child.stdout:
            try:
                found: dict[str, Any] = json.loads(line)
            except ValueError:
                self._said.append(line)
                continue
            if "error" in found:
                raise error_from_json(found["error"])
            return found
        # The last lines of stderr may still be in the pipe.
        self._listener.join(self._end_s)
        why = next((line.strip() for line in reversed(self._said) if line.strip()), "it said nothing")
        raise HeadgateError(
            f"the process that {self._task} ended: {why}", remedy="headgate doctor checks what it needs"
        )

    def kill(self) -> None:
        """Kill the child; a call that waits for an answer raises."""
        self._child.kill()

    def end(self) -> None:
        """End the child by closing its input, or kill it after `end_s` seconds."""
        if self._child.stdin is not None:
            with suppress(OSError):
                self._child.stdin.close()
        try:
            self._child.wait(self._end_s)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        self._listener.join(self._end_s)
        for pipe in (self._child.stdout, self._child.stderr):
            if pipe is not None:
                pipe.close()

    def _listen(self) -> None:
        for line in self._child.stderr or ():
            self._said = [*self._said[1 - _LINES :], line]


def last_answer(
    module: str,
    words: Sequence[str],
    environ: Mapping[str, str],
    *,
    task: str,
    seconds: float,
    progress: ProgressCallback | None = None,
) -> dict[str, Any]:
    """Run a module with arguments and return its answer, the last line of its output. An error in it is raised.

    `progress` is called several times a second with what the child is waiting for, from `{"waiting": …}` on its lines.
    `task` names it in errors, as in "the demo". Raises TryAgain after `seconds`; the child is then killed.
    """
    began, last, waiting = time.monotonic(), "", f"{task} starts"
    for line in os_processes.output_lines(module, words, environ):
        waited = time.monotonic() - began
        last, waiting = line.strip() or last, _waiting(line) or waiting
        if waited > seconds:
            raise TryAgain(f"{task} did not answer within {seconds:.0f} s", remedy="try again")
        if progress:
            progress(WaitProgress(waiting, waited, 0.0))
    try:
        answer = json.loads(last)
    except ValueError as error:
        why = f"the process of {task} failed: {last or 'nothing'}"
        raise HeadgateError(why, remedy="install headgate again") from error
    if "error" in answer:
        raise error_from_json(answer["error"])
    return dict(answer)


def _waiting(line: str) -> str:
    try:
        return str(json.loads(line)["waiting"])
    except (ValueError, LookupError, TypeError):
        return ""
