"""Measures the growth of a ledger, and of an agent over a week: `python -m tests.bench.ledger_growth`, two hours.

The ledger: 520 days of a busy team's activity, with housekeeping three times a day, and a week of samples in the
density they have after a week. The agent: rounds of measuring at simulated times, in which every statement reads and
writes one file, the most it can do in five seconds, and five statements a day are rebuilt.

`days N` and `rounds N ROUNDS` measure N statements alone; a week has 120,960 rounds.
"""

import gc
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tracemalloc
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

from agent_scenarios import one_pool

from core.ipc.environment_paths import EnvironmentPaths
from core.model.names import TableName
from core.observed.versions import Binding
from core.project.model import Environment
from core.project.revision import RevisionTexts
from core.run.records import StepRow
from pipelines.agent.context import AgentContext
from pipelines.agent.deployment_compiler import EnvironmentLayout
from pipelines.agent.measurements.lag_collector import KEPT, LagCollector
from pipelines.storage import row_counting, source_lag
from pipelines.storage.checkpoints import TableCheckpoints
from state.ledger import Ledger, create_or_open
from state.retention import AUDIT_D
from state.row_types import AuditRow, CommandRow, EventRow, PlanRow
from tests.bench.lag_history import PENDING, History
from tests.support.ledger_rows import create_run, deployment_row, environment_row, external_row, run_row, sample_row

ROUNDS = {16: 120_960, 100: 3_600, 1_000: 240}
"""Rounds by number of statements, after the rounds in which memory fills."""
DAYS = (30, 120, 420, 520)
PLANS, RUNS, COMMANDS = 20, 10, 60
"""Numbers per day. Half of the runs rebuild one table each."""
EVENTS_EACH = 4
TEXTS = 2_500
"""Bytes of text per statement. A plan contains the texts of the whole project, and its body those of ten statements."""
WARM = 10_000
"""Number of files of all statements after which the memory for them reaches its limit (`row_counting`)."""
TRACED = 16
"""Largest number of statements for which allocations are traced at the end; tracing multiplies the run time."""
TRACED_ROUNDS = 400
REBUILT_ROUNDS = 3_456
"""Rounds between two rebuilds: five a day."""
START = 1_800_000_000.0
DAY_S, ROUND_S, WEEK_ROUNDS = 86_400.0, 5.0, 7 * 17_280


def ledger_of_days(statements: int) -> None:
    """Print the ledger's size after each number of days."""
    with tempfile.TemporaryDirectory() as folder:
        ledger = create_or_open(Path(folder, "home", "ledger.db"), environment_row())
        for n in range(statements):
            ledger.put_deployment(deployment_row(f"t{n}", compiled="x" * 1500, compiled_ddl="y" * 700))
        ledger._connection.execute("PRAGMA synchronous = OFF")
        sizes, longest = [], 0.0
        for day in range(DAYS[-1]):
            _live(ledger, statements, day)
            for _ in range(3):
                began = time.perf_counter()
                ledger.forget_old(START + (day + 1) * DAY_S)
                ledger.archive_audit(START + (day + 1) * DAY_S)
                longest = max(longest, time.perf_counter() - began)
            if day + 1 in DAYS:
                sizes.append(_bytes(ledger) / 1e6)
        archived = sum(path.stat().st_size for path in ledger.path.parent.glob("audit-*.jsonl"))
        assert ledger.check_audit().breaks == ()
        samples = _week_of_samples(ledger, statements) / 1e6
        early, late = sizes[0] / DAYS[0], (sizes[-1] - sizes[-2]) / (DAYS[-1] - DAYS[-2])
        grown = " | ".join(f"{size:.1f} MB" for size in sizes)
        print(
            f"| {statements:,} | {grown} | {early * 1000:.0f} kB | {late * 1000:.1f} kB "
            f"| {archived / (DAYS[-1] - AUDIT_D) / 1000:.1f} kB | {samples:.0f} MB | {longest:.2f} s |",
            flush=True,
        )


def _live(ledger: Ledger, statements: int, day: int) -> None:
    at = START + day * DAY_S
    texts = json.dumps({f"t{n}.sql": "s" * TEXTS for n in range(statements)})
    for n in range(PLANS):
        name = f"{day:04}{n:04}{'0' * 56}"
        ledger.put_plan(PlanRow(name, "b" * 10 * TEXTS, "ana", at, at + DAY_S, "open", texts=texts))
        if n < RUNS:
            steps = tuple(StepRow(k, "start", f"t{k}", 1, "done", note="caught up") for k in range(8))
            create_run(ledger, run_row(name, id=f"r{day}-{n}", started_at=at, ended_at=at + 60, steps=steps))
    for n in range(RUNS // 2):
        _rebuild(ledger, f"t{(day * RUNS + n) % statements}", at)
    for n in range(COMMANDS):
        ledger.add_command(CommandRow(0, at + n, "ana", "restart", f"t{n}", f"headgate restart t{n}", "done"))
        ledger.add_audit(AuditRow(0, at + n, "ana", "restart", f"t{n}", outcome="done"))
    for n in range(statements * EVENTS_EACH):
        ledger.add_event(EventRow(0, at + n, f"t{n % statements}", 1, "state", "running → stopped, by ana"))


def _rebuild(ledger: Ledger, table: str, at: float) -> None:
    """Replace a table's newest version by the next one; the old files are purged a week later."""
    before = ledger.versions(TableName(table))[0]
    row = deployment_row(table, version=before.version + 1, revision=f"{table} {at}", compiled="x" * 1500)
    ledger.put_deployment(row)
    ledger.tombstone(TableName(table), before.version, drop_after=at + 7 * DAY_S, trash="/trash")
    ledger.purged(TableName(table), before.version, at + 7 * DAY_S)


def _week_of_samples(ledger: Ledger, statements: int) -> float:
    """Return the bytes of a week's samples, thinned as after a week, extrapolated from at most 100 statements."""
    few = min(statements, 100)
    before = _bytes(ledger)
    for first, last, every_s in ((0, 144, 900), (144, 167, 60), (167, 168, 5)):
        for offset in range(first * 3600, last * 3600, every_s):
            at = START + offset
            big = sample_row(
                at, lag_rows=90_000, lag_files=900, lag_bytes=1 << 30, in_rows_s=9e3, out_rows_s=9e3, batch_ms=2500,
                produced_rows=1 << 33, consumed_rows=1 << 33,
            )  # fmt: skip
            ledger.add_samples(
                (TableName(f"t{n}"), ledger.versions(TableName(f"t{n}"))[0].version, big) for n in range(few)
            )
        ledger.thin_samples(START + last * 3600)
    return (_bytes(ledger) - before) * statements / few


def _bytes(ledger: Ledger) -> int:
    pages, free, size = (
        ledger._connection.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("page_count", "freelist_count", "page_size")
    )
    return (int(pages) - int(free)) * int(size)


def agent_of_rounds(statements: int, rounds: int) -> None:
    """Measure rounds in seven parts; print their total cost, and the memory after each part."""
    row_counting.parquet_rows = lambda path: 10
    with tempfile.TemporaryDirectory() as folder:
        histories = [History(Path(folder, str(n)), 200) for n in range(statements)]
        agent = _agent(Path(folder), histories)
        collector = LagCollector(agent)
        _rounds(agent, collector, histories, max(5, WARM // statements))
        sizes, each = [_rss_bytes()], 0.0
        for part in range(7):
            done, until = rounds * part // 7, rounds * (part + 1) // 7
            each += _rounds(agent, collector, histories, until - done) / rounds
            sizes.append(_rss_bytes())
            print(f"{statements} statements, {until} rounds, {sizes[-1] / 1e6:.1f} MB", file=sys.stderr, flush=True)
        held = "not traced"
        if statements <= TRACED:
            tracemalloc.start()
            _rounds(agent, collector, histories, KEPT)  # Until every retained sample has been traced.
            before = tracemalloc.get_traced_memory()[0]
            _rounds(agent, collector, histories, TRACED_ROUNDS)
            held = f"{(tracemalloc.get_traced_memory()[0] - before) / TRACED_ROUNDS:,.0f} B"
        print(
            f"| {statements:,} | {rounds:,} | {1000 * each:.1f} ms | {100 * each / ROUND_S:.1f} % "
            f"| {each * WEEK_ROUNDS / 3600:.1f} h | {sizes[0] / 1e6:.0f} MB | {sizes[-1] / 1e6:.0f} MB "
            f"| {(sizes[-1] - sizes[0]) / rounds:,.0f} B | {held} |",
            flush=True,
        )


def _agent(folder: Path, histories: list[History]) -> AgentContext:
    ledger = create_or_open(folder / "home" / "ledger.db", environment_row())
    ledger._connection.execute("PRAGMA synchronous = OFF")
    for n, history in enumerate(histories):
        ledger.put_deployment(external_row(f"l{n}", folder=str(history.table)))
        texts = RevisionTexts("d", f"INSERT INTO t{n} SELECT id FROM STREAM l{n}", "")
        ledger.put_deployment(
            deployment_row(
                f"t{n}", revision=f"t{n}", texts=texts, folder=str(history.table), checkpoint=str(history.checkpoint),
                bindings=(Binding(TableName(f"l{n}"), 0, True),),
            )
        )  # fmt: skip
    for n in range(KEPT):
        # Data that an agent retains for each statement, as found when it starts.
        rows = 10 * (200 - KEPT + n)
        sample = sample_row(
            START + (n - KEPT) * ROUND_S, lag_rows=10 * PENDING, lag_files=PENDING, produced_rows=rows,
            consumed_rows=rows - 10 * PENDING,
        )  # fmt: skip
        ledger.add_samples((TableName(f"t{n}"), 1, sample) for n in range(len(histories)))
    files = TableCheckpoints("ledger")
    files._lags._counter._budget_s = 60.0
    agent = AgentContext(
        places=EnvironmentPaths(str(folder / "home"), str(folder / "a.sock"), 0), folder=str(folder), project_id="p-id",
        project="p", layout=EnvironmentLayout(str(folder / "data"), Environment("dev")), ledger=ledger,
        ledger_id="ledger", pools=one_pool(None), files=files,  # Measuring asks no pool.
        clock=lambda: START, monotonic=lambda: agent.clock(),
    )  # fmt: skip
    source_lag.time = SimpleNamespace(time=time.time, monotonic=agent.monotonic)  # type: ignore[assignment]
    return agent


def _rounds(agent: AgentContext, collector: LagCollector, histories: list[History], rounds: int) -> float:
    """Measure growing histories, with housekeeping every five minutes; return the CPU time of both."""
    cpu = 0.0
    for _ in range(rounds):
        for history in histories:
            history.grow()
        now = agent.clock() + ROUND_S
        n = round((now - START) / ROUND_S)
        agent.clock = partial(float, now)
        if n % REBUILT_ROUNDS == 0:
            _move(agent, histories, n // REBUILT_ROUNDS % len(histories))
        before = time.process_time()
        collector.round(tuple(agent.ledger.deployments()), ())
        if n % 60 == 0:
            agent.ledger.thin_samples(now)
            agent.ledger.forget_old(now)
            agent.ledger.archive_audit(now)
        cpu += time.process_time() - before
    active = {(d.table, d.version) for d in agent.ledger.deployments()}
    assert {m.lag_files for m in agent.ledger.measurements() if (m.table, m.version) in active} == {PENDING}
    gc.collect()
    return cpu


def _move(agent: AgentContext, histories: list[History], n: int) -> None:
    """Replace the newest version by a new one with its own checkpoint; its source table continues to be written."""
    history, before = histories[n], agent.ledger.versions(TableName(f"t{n}"))[0]
    moved = history.checkpoint.with_name(f"c{before.version + 1}")
    shutil.copytree(history.checkpoint, moved)
    history.checkpoint, history.read = moved, moved / "sources" / "0"
    agent.ledger.put_deployment(replace(before, version=before.version + 1, checkpoint=str(moved)))
    agent.ledger.tombstone(before.table, before.version, drop_after=agent.clock() + DAY_S, trash="/trash")
    shutil.rmtree(before.checkpoint)


def _rss_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main(arguments: list[str]) -> int:
    """Print the tables; return the exit code."""
    if arguments:
        {"days": ledger_of_days, "rounds": agent_of_rounds}[arguments[0]](*map(int, arguments[1:]))
        return 0
    print(f"{time.strftime('%Y-%m-%d %H:%M', time.gmtime())} UTC, {os.cpu_count()} cores", end="")
    print(f", load average {os.getloadavg()[0]:.1f} at the start\n")
    for part, head in (
        ("days", ("statements", *(f"day {day}" for day in DAYS), "a day, at first", "in the end", "archives, a day",
                  "samples", "longest round")),
        ("rounds", ("statements", "rounds", "CPU of a round", "of a core", "CPU in a week", "memory, at first",
                    "in the end", "more each round", "of it held, traced")),
    ):  # fmt: skip
        print(f"| {' | '.join(head)} |\n|{'---|' * len(head)}", flush=True)
        for statements, rounds in ROUNDS.items():
            given = [part, str(statements), *([str(rounds)] if part == "rounds" else [])]
            subprocess.run([sys.executable, "-m", "tests.bench.ledger_growth", *given], check=True)
        print(flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
