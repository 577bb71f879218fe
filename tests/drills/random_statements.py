"""Drill: random streaming statements go through Spark and through our analysis; what do we lose, miss or accept
wrongly?

Run: PYTHONPATH=. python tests/drills/random_statements.py [--seed N …] [--count N] [--started SHARE] [--answers DIR].
Spark analyzes, plans and checks each statement; a share is also run over one row per table. *Unsafe* means a relation
or a state that we miss, or a statement that we accept and Spark refuses; unsafe ones are shrunk as far as they stay
unsafe, and printed. If we refuse what Spark accepts, a reason must be recorded (`support/spark_comparison.py`). Returns
1 if anything is unsafe or lacks a reason. 5,000 statements take about fifteen minutes on two idle cores; with --answers
Spark's answers are kept, so that a change to our code can be tried again in seconds.
"""

import argparse
import sys
import tempfile
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from drill_process import run_drill, spark_server
from random_sql import statement
from spark_comparison import STRICTER, UNSAFE, Asked, Finding, Recorded, read, reason
from sql_tree import Node, shrunk

from pipelines.local_pool.connect_server import LocalPool
from pipelines.spark_connect.session import Session

AT_ONCE = 500
"""Statements per server: Spark keeps the plans of stopped queries for an hour, and a server fills up."""

THREADS = 2


def main() -> int:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--seed", type=int, nargs="+", default=[1])
    words.add_argument("--count", type=int, default=5_000)
    words.add_argument("--started", type=float, default=0.2)
    words.add_argument("--answers", metavar="DIR", help="keep Spark's answers for the next run with these seeds")
    asked = words.parse_args()
    with tempfile.TemporaryDirectory(prefix="headgate-answers-") as folder:
        asked.answers = asked.answers or folder
        Path(asked.answers).mkdir(parents=True, exist_ok=True)
        return max(drill(seed, asked) for seed in asked.seed)


def drill(seed: int, asked: argparse.Namespace) -> int:
    """Try all statements of one seed, and print the results."""
    began = time.monotonic()
    found: list[tuple[Finding, bool]] = []
    for first in range(0, asked.count, AT_ONCE):
        found += portion(seed, range(first, min(asked.count, first + AT_ONCE)), asked)
    outcomes = Counter(finding.outcome for finding, _ in found)
    started = sum(start for _, start in found)
    listed = ", ".join(f"{number:,} {outcome}" for outcome, number in outcomes.most_common())
    print(f"seed {seed}: {asked.count:,} statements, {started:,} of them started: {listed}", end="; ")
    print(f"{time.monotonic() - began:.0f} s")
    reasons = Counter(reason(finding) for finding, _ in found if finding.outcome == STRICTER)
    for why, number in reasons.most_common():
        print(f"  {number:5} stricter: {why or 'NO REASON IS RECORDED'}", flush=True)
    return int(outcomes[UNSAFE] > 0 or "" in reasons)


def portion(seed: int, numbers: range, asked: argparse.Namespace) -> list[tuple[Finding, bool]]:
    """Compare some statements with Spark on a separate server."""
    with Server() as server, ThreadPoolExecutor(THREADS) as threads:
        parts = [numbers[index::THREADS] for index in range(THREADS)]
        works = [threads.submit(lambda part: list(reading(server, seed, part, asked)), part) for part in parts]
        return [each for work in works for each in work.result()]


def reading(server: "Server", seed: int, numbers: range, asked: argparse.Namespace) -> Iterator[tuple[Finding, bool]]:
    """Compare some statements with Spark in a separate session."""
    name = f"random_statements_{numbers.start}"
    spark = Recorded(Path(asked.answers, f"{seed}-{numbers.start}.jsonl"), cache(lambda: server.asked(name)))
    for number in numbers:
        random = Random(f"{seed}/{number}")
        tree = statement(random)
        start = random.random() < asked.started
        finding = read(spark, str(tree), start=start)
        if finding.outcome == UNSAFE or (finding.outcome == STRICTER and not reason(finding)):
            small = shrunk(tree, like(spark, finding, start=start))
            print(f"{finding.outcome} {seed}/{number}: {finding.words}\n    {small}", flush=True)
        yield finding, start


class Server:
    """A server for some statements, started by the first question."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._lock = threading.Lock()
        self._folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="headgate-random-")))
        self._pool: LocalPool | None = None

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def asked(self, name: str) -> Asked:
        """Return access to Spark through a new session."""
        with self._lock:
            if self._pool is None:
                self._pool = self._stack.enter_context(spark_server(self._folder, memory="3g"))
            session = Session(self._pool.url, self._pool.token, str(uuid.uuid4()))
            session.attach()
            self._stack.callback(session.close)
            return Asked(session, self._folder, name)


def like(spark: Recorded, finding: Finding, *, start: bool) -> Callable[[Node], bool]:
    """Return a predicate for smaller statements that show the same difference."""
    return lambda tree: read(spark, str(tree), start=start).kind == finding.kind


if __name__ == "__main__":
    run_drill(main)
