"""The token of a Spark Connect server that others manage, found anew where a reference says."""

import os
import shlex
import subprocess
import threading
from pathlib import Path

from core.model.errors import PoolUnreachable
from core.model.secret_references import SecretKind, SecretReference

COMMAND_S = 10.0
"""Longest time, in seconds, that a command may take to print a token."""

_LONGEST = 64 * 1024


class TokenUnavailable(PoolUnreachable):
    """Raised if there is no token where the reference says. No token and no output of a command is in the message."""


class PoolToken:
    """Finds the token of a server; thread-safe.

    Variables and files are read for each call, which takes microseconds. The output of a command is kept until the
    server refuses it.
    """

    def __init__(self, reference: SecretReference) -> None:
        self.reference = reference
        self._lock = threading.Lock()
        self._printed = ""

    def __call__(self) -> str:
        """Return the token. Raises TokenUnavailable if it is missing, empty or has more than one line."""
        match self.reference.kind:
            case SecretKind.VARIABLE:
                return self._checked(os.environ.get(self.reference.of), "is not set for the agent")
            case SecretKind.FILE:
                return self._checked(*self._read())
            case SecretKind.COMMAND:
                with self._lock:
                    if not self._printed:
                        self._printed = self._checked(*self._run())
                    return self._printed

    def refused(self) -> None:
        """Forget the output of a command, because the server refuses it."""
        with self._lock:
            self._printed = ""

    def _read(self) -> tuple[str | None, str]:
        try:
            return Path(self.reference.of).read_text("utf-8"), ""
        except OSError as error:
            return None, f"cannot be read: {error.strerror}"
        except UnicodeDecodeError:
            return None, "is not UTF-8"

    def _run(self) -> tuple[str | None, str]:
        try:
            done = subprocess.run(
                shlex.split(self.reference.of), stdin=subprocess.DEVNULL, capture_output=True, timeout=COMMAND_S,
                check=False,
            )  # fmt: skip
            found = done.stdout[:_LONGEST].decode()
        except subprocess.TimeoutExpired:
            return None, f"did not end within {COMMAND_S:.0f} s"
        except OSError as error:
            return None, f"cannot be run: {error.strerror}"
        except ValueError as error:
            # Unbalanced quotes, or bytes that are not UTF-8.
            return None, "printed no text" if isinstance(error, UnicodeDecodeError) else f"is no command: {error}"
        return (found, "") if done.returncode == 0 else (None, f"ended with exit code {done.returncode}")

    def _checked(self, found: str | None, why: str) -> str:
        token = (found or "").strip()
        if found is None or not token or not token.isprintable() or not token.isascii():
            why = why if found is None else "gives no token: one line of ASCII is expected"
            remedy = "correct what token: in headgate.yml refers to; it is tried again"
            raise TokenUnavailable(f"{self.reference.text} {why}", remedy=remedy)
        return token
