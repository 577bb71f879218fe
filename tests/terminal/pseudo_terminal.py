"""A pseudo-terminal that runs a console, counts its output, draws it with pyte, and reads it as text."""

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pyte

ROOT = Path(__file__).parents[2]

PATIENCE_S = 60.0
"""Longest wait, in seconds; on a busy machine, a console takes many times as long as on an idle one."""

LOOK_S = 0.05


class Terminal:
    """A process in a pseudo-terminal; `close` hangs up, like a lost connection."""

    def __init__(
        self, command: Sequence[str], width: int, height: int, environ: Mapping[str, str] | None = None
    ) -> None:
        self.width, self.height = width, height
        self.screen = pyte.Screen(width, height)
        self._stream = pyte.ByteStream(self.screen)
        self.received = 0
        self.raw = bytearray()
        self.began = time.monotonic()
        self.first_content: float | None = None
        clean = {key: value for key, value in os.environ.items() if not key.startswith(("COLUMNS", "LINES"))}
        values = {**clean, "TERM": "xterm-256color", "LANG": "C.UTF-8", "PYTHONPATH": str(ROOT), **(environ or {})}
        self.master, slave = pty.openpty()
        # The size must be set before the program asks for it.
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
        # `pty.fork` is not used, because this process has gRPC threads, and a fork of it may abort.
        leads = ["setsid", "--ctty", *command]
        self._process = subprocess.Popen(leads, stdin=slave, stdout=slave, stderr=slave, cwd=ROOT, env=values)
        self.pid = self._process.pid
        os.close(slave)
        os.set_blocking(self.master, False)

    def pump(self, seconds: float) -> int:
        """Receive output for some seconds, and return the number of bytes."""
        ends = time.monotonic() + seconds
        before = self.received
        while (left := ends - time.monotonic()) > 0:
            if select.select([self.master], [], [], min(left, 0.05))[0] and not self._take():
                break
        return self.received - before

    def _take(self) -> bool:
        try:
            data = os.read(self.master, 65536)
        except (BlockingIOError, InterruptedError):
            return True
        except OSError:
            return False
        if not data:
            return False
        self.received += len(data)
        self.raw += data
        # pyte 0.8 does not support private parameters in these two sequences, which draw nothing.
        self._stream.feed(data.replace(b"\x1b[?2026$p", b"").replace(b"\x1b[>25u", b""))
        return True

    def wait(self, condition: Callable[[str], bool], seconds: float = PATIENCE_S) -> str:
        """Receive output until a condition holds for the screen's text; return it; on timeout, fail with the text."""
        ends = time.monotonic() + seconds
        text = self.text()
        while not condition(text) and time.monotonic() < ends:
            if not select.select([self.master], [], [], 0.02)[0]:
                continue
            if not self._take():
                break
            # Reading the screen takes up to 30 ms of CPU, so it is read only after output.
            text = self.text()
        assert condition(text), f"not within {seconds} s on the screen:\n{text}"
        return text

    def quiet(self, seconds: float = 0.4) -> bool:
        """Receive output until none has arrived for `seconds` while the process was idle; return False on timeout.

        A process that waits for a core is not idle, even if it sends nothing for a long time.
        """
        ends, rested = time.monotonic() + PATIENCE_S, 0.0
        while rested < seconds and time.monotonic() < ends:
            came = self.pump(LOOK_S)
            rested = 0.0 if came else rested + LOOK_S * self._sleeps()
        return rested >= seconds

    def _sleeps(self) -> bool:
        """Return whether no thread of the process runs or waits for a core; True if the system does not report this."""
        try:
            stats = [(task / "stat").read_text("utf-8", "replace") for task in Path(f"/proc/{self.pid}/task").iterdir()]
        except OSError:
            return True
        return all(stat.rpartition(")")[2].split()[0] != "R" for stat in stats)

    def send(self, data: str | bytes) -> None:
        """Type into the terminal."""
        os.write(self.master, data.encode() if isinstance(data, str) else data)

    def resize(self, width: int, height: int) -> None:
        """Change the terminal's size, as a window does."""
        self.width, self.height = width, height
        self.screen.resize(height, width)
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))

    def text(self) -> str:
        """Return the text on the screen."""
        return "\n".join(row.rstrip() for row in self.screen.display)

    def alive(self) -> bool:
        """Return whether the process is still running."""
        return self.status is None

    @property
    def status(self) -> int | None:
        """The exit status as `subprocess` reports it; None while the process runs."""
        return self._process.poll()

    def hang_up(self) -> None:
        os.close(self.master)
        self.master = -1

    def ends(self) -> bool:
        """Wait for the process to end; return whether it did."""
        ends = time.monotonic() + PATIENCE_S
        while time.monotonic() < ends:
            if not self.alive():
                return True
            if self.master >= 0:
                self.pump(0.02)
            else:
                select.select([], [], [], 0.02)
        return not self.alive()

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, *_: object) -> None:
        if self.alive():
            self._process.kill()
            self._process.wait()
        if self.master >= 0:
            os.close(self.master)


def console(width: int, height: int, *arguments: str, environ: Mapping[str, str] | None = None) -> Terminal:
    """Start the console over the pizzeria in memory."""
    return Terminal([sys.executable, "-m", "tests.terminal.in_memory_backend", *arguments], width, height, environ)
