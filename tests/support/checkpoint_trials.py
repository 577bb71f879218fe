"""Trials of edited statements: the new text runs on the old text's checkpoint and on a fresh one, over the same input.

The old text runs over part 1 and the new text over part 2, on one checkpoint and one table; the new text alone runs
over both parts into a second table. Possible outcomes: the tables are equal; they differ only in rows that the old text
wrote before the seam; they differ in other rows or cannot be read; Spark refuses the query.
"""

import json
import os
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from revision_pairs import Edit

from core.changes.classification import Change
from core.model.actions import Action
from core.model.errors import EngineRefused, PoolUnreachable
from core.plan.descriptions import evidence_words
from core.project.model import Settings
from core.project.revision import Revision
from core.sql.compiler import compile_ddl, compile_select
from pipelines.local_pool.connect_server import LocalPool
from pipelines.spark_connect.call_deadlines import call
from pipelines.spark_connect.session import Session, spark_errors

AT_ONCE = 4
"""Number of queries that run in parallel on a machine with two cores."""

BOUND_S = 240
EVOLVING = {
    "spark.sql.streaming.queryEvolution.enableSourceEvolution": "true",
    "spark.sql.streaming.offsetLog.formatVersion": "2",
}
COLUMNS = "id BIGINT, k STRING, v BIGINT, w BIGINT, name STRING, ts TIMESTAMP"
INPUTS = ("a", "b", "c", "dim", "dim2")
Records = Callable[[str, int], Iterator[list[dict[str, Any]]]]
"""Yields the files of one part of an input, given the input's name and the part's number."""


@dataclass
class Trial:
    """The trial of one edit over both parts of the input."""

    edit: Edit
    number: int
    change: Change
    seen: dict[str, Counter[tuple[str, ...]]] = field(default_factory=dict)
    """Rows in the table after each run."""
    refused: str = ""
    """`refused` or `unreadable` followed by Spark's error class, or `not run`; empty while all runs have succeeded."""
    said: str = ""
    """Spark's summary of the error behind `refused`."""

    @property
    def outcome(self) -> str:
        """The outcome on Spark: `equal`, `seam`, `differs`, or a refusal with Spark's error class."""
        if self.refused:
            return self.refused
        if self.seen["changed 2"] == self.seen["new 2"]:
            return "equal"
        written = self.seen["changed 2"] - self.seen["changed 1"]
        return "seam" if written == self.seen["new 2"] - self.seen["new 1"] else "differs"


def run(trials: Sequence[Trial], pool: LocalPool, root: Path, records: Records | None = None) -> None:
    """Run all trials over both parts of the input, with one session per configuration, in a new database."""
    sessions: dict[tuple[tuple[str, str], ...], Session] = {}
    database = f"trials_{uuid.uuid4().hex}"

    def session(conf: dict[str, str]) -> Session:
        key = tuple(sorted(conf.items()))
        if key not in sessions:
            sessions[key] = Session(pool.url, pool.token, str(uuid.uuid4()), conf=conf)
            sessions[key].attach()
            sessions[key].spark.sql(f"CREATE DATABASE IF NOT EXISTS {database}")
            sessions[key].spark.sql(f"USE {database}")
        return sessions[key]

    for name in INPUTS:
        (root / name).mkdir()
        session({}).spark.sql(f"CREATE TABLE {name} ({COLUMNS}) USING json LOCATION '{root / name}'")
    prepare(trials, session, root)
    land(root, part=1, records=records or records_of)
    each(trials, lambda trial: step(trial, "changed 1", trial.edit.old, session(first_conf(trial)), root))
    each(trials, lambda trial: step(trial, "new 1", trial.edit.new, session(second_conf(trial)), root))
    land(root, part=2, records=records or records_of)
    each(trials, lambda trial: step(trial, "changed 2", trial.edit.new, session(second_conf(trial)), root))
    each(trials, lambda trial: step(trial, "new 2", trial.edit.new, session(second_conf(trial)), root))
    session({}).spark.sql(f"DROP DATABASE {database} CASCADE")
    for opened in sessions.values():
        opened.close()


def prepare(trials: Sequence[Trial], session: Callable[[dict[str, str]], Session], root: Path) -> None:
    """Create both tables of each trial, and open all sessions before threads need them."""
    for trial in trials:
        for side, revision in (("changed", trial.edit.old), ("new", trial.edit.new)):
            name = f"{side}_{trial.number}"
            (root / name).mkdir()
            ddl = compile_ddl(revision.ddl, name, str(root / name))
            session(first_conf(trial)).spark.sql(ddl)
        session(second_conf(trial))


def first_conf(trial: Trial) -> dict[str, str]:
    """Return the Spark configuration of a trial's first run."""
    return EVOLVING if "evolving" in trial.edit.marks else {}


def second_conf(trial: Trial) -> dict[str, str]:
    """Return the Spark configuration for part 2; the new text uses it for part 1, too, when it runs alone."""
    return first_conf(trial) | dict(trial.edit.new.pool.conf if trial.edit.new.pool else ())


def each(trials: Sequence[Trial], do: Callable[[Trial], None]) -> None:
    """Call `do` with every trial, a few at a time."""
    with ThreadPoolExecutor(AT_ONCE) as threads:
        list(threads.map(do, trials))


def step(trial: Trial, name: str, revision: Revision, session: Session, root: Path) -> None:
    """Run a text over the input that has landed so far, then read the columns of the new text from its table."""
    side, part = name.split()
    table = f"{side}_{trial.number}"
    if trial.refused:
        return
    try:
        if name == "changed 2":
            add_columns(trial, table, session)
        word = "refused"
        with spark_errors():
            query(trial, table, revision, session, root, part=part)
        word = "unreadable"
        with spark_errors():
            trial.seen[name] = rows(session, table, [c.name for c in trial.edit.new.ddl.columns])
    except EngineRefused as error:
        # Errors of the old text in its own table are not an outcome of the edit.
        asked = name == "changed 2" or (name != "changed 1" and word == "unreadable")
        said = error.error_class or error.summary[:60]
        trial.said = error.summary
        trial.refused = f"{word} {said}" if asked else f"not run: {name} was {word}, {said}"
    except PoolUnreachable as error:
        trial.refused = f"not run: {error.summary}"


def add_columns(trial: Trial, table: str, session: Session) -> None:
    """Add the new text's additional columns to a table, as a plan does before it restarts a statement."""
    old = {column.name for column in trial.edit.old.ddl.columns}
    added = [f"{c.name} {c.type}" for c in trial.edit.new.ddl.columns if c.name not in old]
    if added:
        session.spark.sql(f"ALTER TABLE {table} ADD COLUMNS ({', '.join(added)})")


def query(trial: Trial, table: str, revision: Revision, session: Session, root: Path, *, part: str) -> None:
    """Start a revision on its table's checkpoint, and return once it has read all input."""
    parsed = revision.parsed
    assert parsed is not None
    frame = session.spark.sql(compile_select(parsed, {read.table: read.table for read in parsed.reads}))
    writer = frame.writeStream.format("parquet").queryName(table).outputMode("append")
    writer = writer.option("checkpointLocation", str(root / "checkpoints" / table))
    steady = part == "2" and revision.settings.trigger != Settings().trigger
    writer = writer.trigger(processingTime=revision.settings.trigger) if steady else writer.trigger(availableNow=True)
    started = writer.toTable(table)
    if steady:
        call(BOUND_S, started.processAllAvailable)
        started.stop()
    elif not call(BOUND_S + 10, started.awaitTermination, BOUND_S):
        started.stop()
        raise PoolUnreachable(f"it did not end within {BOUND_S} s")


def rows(session: Session, table: str, columns: Sequence[str]) -> Counter[tuple[str, ...]]:
    """Count the rows of a table, read as its readers do; columns that the table lacks are null."""
    session.spark.catalog.refreshTable(table)
    frame = session.spark.table(table)
    found = frame.selectExpr(*(name if name in frame.columns else f"NULL AS {name}" for name in columns))
    return Counter(tuple(map(str, row)) for row in found.collect())


def land(root: Path, *, part: int, records: Records) -> None:
    """Land one part of every input; part 2 joins with part 1, repeats some of its rows, and closes all windows."""
    for name in INPUTS:
        for number, rows_of_file in enumerate(records(name, part)):
            hidden = root / name / ".part"
            hidden.write_text("".join(json.dumps(row) + "\n" for row in rows_of_file))
            # Files are read in the order of their modification times, to the second.
            os.utime(hidden, (1_700_000_000 + part * 100 + number,) * 2)
            hidden.rename(root / name / f"{part}-{number}.json")


def records_of(name: str, part: int) -> Iterator[list[dict[str, Any]]]:
    """Yield the files of one part of an input, each as a list of rows."""
    if name.startswith("dim"):
        if part == 1:
            yield [{"k": k, "name": f"{name} {k}"} for k in "xyzq"]
        return
    first, last = {"b": (1, 20)}.get(name, (1, 24)) if part == 1 else {"b": (21, 40)}.get(name, (19, 40))
    numbers = [n for n in range(first, last + 1) if name != "b" or n % 5]
    yield [record(n, 100 if name == "c" else 0) for n in numbers]
    if part == 2:
        yield [record(120, 100 if name == "c" else 0) | {"k": "q"}]


def record(n: int, offset: int) -> dict[str, Any]:
    """Return row `n` of an input: rows are a minute apart, and for odd ids `v` is irregular."""
    at = f"2026-01-01T{12 + n // 60}:{n % 60:02}:00Z"
    return {"id": n + offset, "k": "xyz"[n % 3], "v": n if n % 2 == 0 else 3 * n % 7, "w": 10 * n, "ts": at}


def verdict(outcome: str, change: Change) -> str:
    """Return whether the planned action is acceptable given the outcome on Spark: `ok`, `ok: evidence` or `WRONG`."""
    if change.action in (Action.KEEP, Action.RECORD):
        return "ok" if outcome == "equal" else "WRONG"
    if change.action is Action.RESTART:
        return "ok" if outcome in ("equal", "seam") else "WRONG"
    if outcome in ("equal", "seam"):
        return f"ok: {evidence_words(change.evidence[0])}" if change.evidence else "WRONG"
    return "ok"
