"""Measures the console over a real ledger under writes: `python -m tests.bench.console_frames [STATEMENTS …]`.

It measures the first content, bytes, CPU, memory and the time from key to paint. Run it on an otherwise idle machine.
"""

import os
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

from tests.terminal.ledger_under_load import make, write
from tests.terminal.pseudo_terminal import Terminal

TICK = os.sysconf("SC_CLK_TCK")
SECONDS = 15


def cpu_s(pid: int) -> float:
    """Return the CPU time of a process in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def peak_mb(pid: int) -> float:
    """Return a process's peak resident memory in MB."""
    line = next(one for one in Path(f"/proc/{pid}/status").read_text().splitlines() if one.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


def first_content_ms(home: Path, width: int, height: int) -> tuple[float, float, int, float]:
    """Start the console; return the ms until content and until it accepts keys, bytes, and CPU ms until content."""
    with Terminal([sys.executable, "-m", "tests.terminal.ledger_under_load", str(home)], width, height) as terminal:
        began = terminal.began
        while "product_000" not in terminal.text():
            terminal.pump(0.005)
        content, busy = time.monotonic() - began, cpu_s(terminal.pid)
        while b"\x1b[?2004h" not in terminal.raw:
            terminal.pump(0.005)
        keys = time.monotonic() - began
        terminal.quiet()
        return content * 1000, keys * 1000, terminal.received, busy * 1000


def key_ms(terminal: Terminal) -> list[float]:
    """Press j and k in turn; return the milliseconds until the first byte of each response."""
    found = []
    for index in range(40):
        terminal.quiet(0.05)
        began = time.monotonic()
        terminal.send("j" if index % 2 == 0 else "k")
        while not terminal.pump(0.001):
            if time.monotonic() - began > 1:
                break
        found.append((time.monotonic() - began) * 1000)
    return found


def measure(statements: int, width: int, height: int) -> str:
    """Measure one size and return its row of the table."""
    chance = random.Random(7)
    with tempfile.TemporaryDirectory() as folder, make(Path(folder), statements) as ledger:
        home = Path(folder)
        write(ledger, chance, statements, 1)
        starts = []
        for _ in range(5):
            write(ledger, chance, statements, 1)
            starts.append(first_content_ms(home, width, height))
        with Terminal([sys.executable, "-m", "tests.terminal.ledger_under_load", folder], width, height) as terminal:
            terminal.wait(lambda _: b"\x1b[?2004h" in terminal.raw)
            terminal.quiet()
            for pressed, opened in (("l", "sources ("), ("jl", "table_00003")):
                terminal.send(pressed)
                terminal.wait(lambda text, opened=opened: opened in text)
            terminal.pump(2.0)
            began, before, busy = time.monotonic(), terminal.received, cpu_s(terminal.pid)
            while time.monotonic() - began < SECONDS:
                write(ledger, chance, statements, 20)
                terminal.pump(0.2)
            took = time.monotonic() - began
            sent, share = (terminal.received - before) / took, (cpu_s(terminal.pid) - busy) / took
            keys = key_ms(terminal)
            memory = peak_mb(terminal.pid)
    content = statistics.median(one[0] for one in starts)
    ready = statistics.median(one[1] for one in starts)
    paint = starts[0][2]
    busy = statistics.median(one[3] for one in starts)
    return (
        f"| {statements:,} | {width}x{height} | {content:.0f} ms | {busy:.0f} ms | {ready:.0f} ms | {paint:,} B "
        f"| {sent:.0f} B/s "
        f"| {100 * share:.1f} % | {statistics.median(keys):.0f} ms | {memory:.0f} MB |"
    )


def main(arguments: list[str]) -> int:
    """Measure all sizes; return the exit code."""
    print(
        "| statements | terminal | first content | CPU to it | takes keys | first paint "
        "| steady | CPU | key to paint | memory |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    for statements in [int(one) for one in arguments] or [1_000, 10_000]:
        for width, height in ((80, 24), (200, 60)):
            print(measure(statements, width, height), flush=True)
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
