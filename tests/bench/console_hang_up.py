"""Measures how soon the console ends after its terminal closes: `python -m tests.bench.console_hang_up [STATEMENTS …]`.

A terminal closes when an SSH connection is lost. Exits 1 if a console took longer than a second. Takes about three
minutes.
"""

import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.terminal.ledger_under_load import make, write
from tests.terminal.pseudo_terminal import PATIENCE_S, Terminal

BOUND_MS = 1000.0
ROUNDS = 15


def first_frame(terminal: Terminal) -> None:
    """Wait until something is shown, while Textual is still loading."""
    terminal.wait(lambda text: "product_000" in text)


def still(terminal: Terminal) -> None:
    """Wait until keys are accepted and the picture no longer changes."""
    terminal.wait(lambda _: b"\x1b[?2004h" in terminal.raw)
    terminal.quiet()


def keys_waiting(terminal: Terminal) -> None:
    """Send several keys, each of which causes a new picture, without reading the output."""
    still(terminal)
    terminal.send("jk" * 200)


def dialog(terminal: Terminal) -> None:
    """Open a dialog that expects typed text."""
    still(terminal)
    terminal.send("ljT")
    terminal.wait(lambda text: "STOP" in text)


MOMENTS: dict[str, Callable[[Terminal], None]] = {
    "at the first frame": first_frame,
    "at rest": still,
    "400 keys not answered": keys_waiting,
    "a dialog is open": dialog,
}


def end_ms(home: str, reach: Callable[[Terminal], None]) -> float:
    """Start the console, bring it to a situation with `reach`, close its terminal, and return the ms until it ends."""
    with Terminal([sys.executable, "-m", "tests.terminal.ledger_under_load", home], 200, 60) as terminal:
        reach(terminal)
        began = time.monotonic()
        terminal.hang_up()
        while terminal.alive():
            if time.monotonic() - began > PATIENCE_S:
                return float("inf")
            time.sleep(0.001)
        return (time.monotonic() - began) * 1000


def measure(statements: int) -> float:
    """Measure every situation over one ledger, print the rows of the table and return the longest time."""
    longest = 0.0
    with tempfile.TemporaryDirectory() as folder, make(Path(folder), statements) as ledger:
        write(ledger, random.Random(7), statements, 1)
        for moment, reach in MOMENTS.items():
            took = sorted(end_ms(folder, reach) for _ in range(ROUNDS))
            longest = max(longest, took[-1])
            print(f"| {statements:,} | {moment} | {statistics.median(took):.0f} ms | {took[-1]:.0f} ms |", flush=True)
    return longest


def main(arguments: list[str]) -> int:
    """Measure all sizes; return 1 if the bound is exceeded, else 0."""
    print("| statements | closed | median | longest |")
    print("|---|---|---|---|")
    longest = max([measure(int(one)) for one in arguments or ("1000", "10000")])
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    return int(longest > BOUND_MS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
