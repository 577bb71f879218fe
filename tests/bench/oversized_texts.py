"""Measures extremely large texts, each of which must end in a result or a Problem.

Run: `python -m tests.bench.oversized_texts [RUNS]`. Each run is a separate process, so that a crash in sqlglot is
noticed; its start is not counted.
"""

import os
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.bench.oversized_text_cases import Text, megabytes, nested, wide_texts

ROOT = Path(__file__).parents[2]
BOUND_S = 5.0
LINES_S = 1.0
"""Time limit, in seconds, for texts of 2,000 lines, which people do write."""
PATIENCE_S = 120.0

_RUN = """
import resource, sys, time
from core.sql.ddl_reader import read_ddl
from core.sql.statement_reader import read_statements
text = sys.stdin.read()
wall, cpu = time.monotonic(), time.process_time()
found, problems = (read_ddl if sys.argv[1] == "ddl" else read_statements)(text, "f.sql")
wall, cpu = time.monotonic() - wall, time.process_time() - cpu
said = problems[0].summary[:70] if problems else "read" if found else ""
said += f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
print(wall, cpu, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024, said, sep="|")
"""


def main(arguments: list[str]) -> int:
    """Print the table; return 1 if a text had neither result nor Problem in time, else 0."""
    runs = int(arguments[0]) if arguments else 3
    print(f"{time.strftime('%Y-%m-%d %H:%M', time.gmtime())} UTC, {os.cpu_count()} cores", end="")
    print(f", load average {os.getloadavg()[0]:.1f} at the start\n")
    print("| what | characters | bound | median | worst | CPU, least | memory | ends in | holds |")
    print("|---|---|---|---|---|---|---|---|---|")
    held: Counter[bool] = Counter()
    for text in (*wide_texts(), *megabytes(), *nested(70), *nested(2_000), *nested(100_000)):
        line, holds = _row(text, runs)
        held[holds] += 1
        print(line, flush=True)
    print(f"\n{held[True]} of {held.total()} hold; load average {os.getloadavg()[0]:.1f} at the end")
    return 1 if held[False] else 0


def _row(text: Text, runs: int) -> tuple[str, bool]:
    bound = LINES_S if text.what == "2,000 lines" else BOUND_S
    taken = list(_taken(text, runs))
    wall = statistics.median(one[0] for one in taken)
    said = taken[0][3]
    holds = wall <= bound and bool(said)
    ends = f"{said or 'nothing'} | {'yes' if holds else 'no'}"
    line = (
        f"| {text.what} | {len(text.text):,} | {bound:g} s | {wall:.3f} s | {max(one[0] for one in taken):.3f} s "
        f"| {min(one[1] for one in taken):.3f} s | {taken[0][2]} MB | {ends} |"
    )
    return line, holds


def _taken(text: Text, runs: int) -> Iterator[tuple[float, float, int, str]]:
    """Yield wall and CPU seconds, MB and outcome of each run; runs that crash or time out are left out."""
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", _RUN, text.kind]
    for _ in range(runs):
        try:
            done = subprocess.run(
                command, input=text.text.encode(), env=environ, capture_output=True, timeout=PATIENCE_S, check=False
            )
        except subprocess.TimeoutExpired:
            yield PATIENCE_S, PATIENCE_S, 0, ""
            return
        if done.returncode:
            print(f"{text.what}: exit {done.returncode}: {done.stderr.decode()[-300:].strip()}", file=sys.stderr)
            yield PATIENCE_S, PATIENCE_S, 0, ""
            return
        wall, cpu, memory, said = done.stdout.decode().strip().split("|")
        yield float(wall), float(cpu), int(memory), said


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
