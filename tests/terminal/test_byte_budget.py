"""Byte budgets over a ledger that is being written: 1,000 statements, 100 changes per second."""

import random
import sys
import time
from pathlib import Path

import pytest

from tests.terminal.ledger_under_load import make, write
from tests.terminal.pseudo_terminal import Terminal
from tests.terminal.test_console_in_terminal import all_open

pytestmark = pytest.mark.terminal

STATEMENTS, CHANGES_A_SECOND, SECONDS = 1000, 100, 10


@pytest.mark.drill
@pytest.mark.parametrize(
    ("width", "height", "bound"), [pytest.param(80, 24, 4_000, marks=pytest.mark.drill), (200, 60, 10_000)]
)
def test_steady_changes_stay_within_their_bytes_a_second(width: int, height: int, bound: int, tmp_path: Path) -> None:
    chance = random.Random(7)
    with (
        make(tmp_path, STATEMENTS) as ledger,
        Terminal([sys.executable, "-m", "tests.terminal.ledger_under_load", str(tmp_path)], width, height) as terminal,
    ):
        # Statements must be visible on the screen.
        all_open(terminal)
        terminal.wait(lambda text: "table_00003" in text)
        terminal.quiet()
        began, before = time.monotonic(), terminal.received
        while time.monotonic() - began < SECONDS:
            write(ledger, chance, STATEMENTS, CHANGES_A_SECOND // 5)
            terminal.pump(0.2)
        took = time.monotonic() - began
        sent = (terminal.received - before) / took
        assert 0 < sent <= bound, f"{sent:.0f} bytes a second"
        print(f"{width}x{height}: {sent:.0f} B/s")
