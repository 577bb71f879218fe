"""Measures statements on parquet against Delta: `python -m tests.bench.formats [COUNT ...]`, two to three minutes each.

One statement reads landing files, and the others stream its table into tables of their own: COUNT statements in all,
with the same texts and input in both formats, on a pool of two cores. If a figure reaches its time limit, the table
shows how much was done. CPU is in cores: 1.0 is one core for the whole time.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pipelines.storage.checkpoints import TableCheckpoints
from tests.support.live_project import Driven
from tests.support.pool_jars import delta_jars

COUNTS = (10, 30)
FORMATS = ("parquet", "delta")
BEGINS_S, RESTS_S, ARRIVES_S = 90.0, 30.0, 40.0
"""Time limits in seconds: for the first batches, for the statements to become idle afterwards, and for the last rows.
"""
IDLE_S, LANDS_S, EVERY_S = 15.0, 20.0, 2.0
"""Seconds for which idle statements are measured, for which files land, and between two files."""
ROWS = 100
HEAD = """project: formats
id: 6d1c4a52-9df2-4a52-9c0c-0f6f8d1a2b3d
default_env: dev
environments:
  dev:
    pool: {cores: 2, memory: 3g}
defaults: {trigger: 10 seconds}
"""


@dataclass
class Statements(Driven):
    """One statement over landing files, and others that stream its table."""

    format: str = "parquet"
    count: int = 10
    landed: int = 0
    files: TableCheckpoints = field(default_factory=lambda: TableCheckpoints("bench"))

    @property
    def folder(self) -> Path:
        return self.root / "formats"

    @property
    def tables(self) -> tuple[str, ...]:
        """The tables that statements fill."""
        return ("first", *(f"t{n}" for n in range(1, self.count)))

    def write(self) -> None:

        (self.folder / "data/landing").mkdir(parents=True)
        connectors = f"connectors: {{delta: {{jars: ['{delta_jars()}']}}}}\n" if self.format == "delta" else ""
        (self.folder / "headgate.yml").write_text(HEAD + connectors)
        self._table("sources", "landed", "json LOCATION 'landing'", "")
        for table in self.tables:
            select = "SELECT id, kind FROM STREAM landed" if table == "first" else _SELECT
            self._table("facts", table, self.format, f"INSERT INTO {table} {select};")

    def _table(self, layer: str, table: str, stored: str, dml: str) -> None:
        scripts = self.folder / f"pipelines/{layer}/p/{table}/sql-scripts"
        scripts.mkdir(parents=True)
        (scripts / f"ddl.{table}.sql").write_text(f"CREATE TABLE {table} (id BIGINT, kind STRING) USING {stored};")
        if dml:
            (scripts / f"dml.{table}.sql").write_text(dml)

    def land(self) -> None:
        """Land one file of ROWS rows."""
        rows = [{"id": self.landed + n, "kind": "ab"[n % 2]} for n in range(ROWS)]
        self.landed += ROWS
        hidden = self.folder / "data/landing/.part"
        hidden.write_text("".join(json.dumps(row) + "\n" for row in rows))
        hidden.rename(self.folder / f"data/landing/{self.landed:09}.json")

    def started(self) -> int:
        """Count the statements that the agent has started."""
        sql = "SELECT count(*) FROM deployment WHERE started_at IS NOT NULL AND NOT external"
        return int(str(self.ledger(sql)[0][0]))

    def batches(self) -> dict[str, int]:
        """Return the number of batches that each statement has committed, by table."""
        folder = self.folder / "data/checkpoints"
        return {t: _numbered(folder / f"{t}__v1/commits") for t in self.tables}

    def begun(self) -> int:
        """Count the statements that have committed a batch."""
        return sum(1 for committed in self.batches().values() if committed)

    def complete(self) -> int:
        """Count the tables that contain every row."""
        folder = self.folder / "data/tables"
        held = (self.files.rows(str(folder / f"{table}__v1"), self.format) for table in self.tables)
        return sum(1 for rows in held if rows == self.landed)


_SELECT = "SELECT id, upper(kind) AS kind FROM STREAM first"


@dataclass
class Figures:
    """The measurements of one size and format, in the order of the table."""

    by_name: dict[str, str] = field(default_factory=dict)

    def put(self, name: str, value: float, unit: str, done: int = 0, of: int = 0) -> None:
        """Record a figure, with the share that was done if the time limit cut it off."""
        digits = 0 if unit == "MB" else 2 if unit == "cores" else 1
        more = "> " if done < of else ""
        self.by_name[name] = f"{more}{value:.{digits}f} {unit}" + (f" ({done} of {of})" if done < of else "")


def measure(count: int, format: str, root: Path) -> dict[str, str]:
    """Measure statements of one format; return the figures with units, by name, even if the run ends early."""
    found, driven = Figures(), Statements(root, format=format, count=count)
    try:
        _measure(driven, found)
    except (AssertionError, OSError, subprocess.TimeoutExpired) as error:
        found.by_name["ended early"] = " ".join(str(error).split())[:200]
    return found.by_name


def _measure(driven: Statements, found: Figures) -> None:
    driven.write()
    driven.land()
    began = time.monotonic()
    try:
        driven.done("up")
        found.put("pool and agent are up", time.monotonic() - began, "s")
        plan = driven.plan("--all")
        confirm = driven.confirmation(plan)
        began = time.monotonic()
        applied = subprocess.Popen(
            [str(Path(sys.executable).with_name("headgate")), "apply", plan["hash"][:12], "--confirm", confirm],
            cwd=driven.folder,
            env={**os.environ, "HEADGATE_HOME": str(driven.root / "home")},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for name, counted in (("all are started", driven.started), ("all have a first batch", driven.begun)):
            found.put(name, *_waited(counted, driven.count, began + BEGINS_S, began))
        _until_rest(driven)
        applied.kill()
        applied.wait()
        _resting(driven, found)
        _under_load(driven, found)
    finally:
        driven.down()


def _resting(driven: Statements, found: Figures) -> None:
    pids, before, batches = _pids(driven), _cpu(driven), driven.batches()
    time.sleep(IDLE_S)
    for who in pids:
        found.put(f"idle, {who}", (_cpu(driven)[who] - before[who]) / IDLE_S, "cores")
    if driven.batches() != batches:
        found.by_name["idle, server"] += ", with batches"


def _under_load(driven: Statements, found: Figures) -> None:
    began, before = time.monotonic(), _cpu(driven)
    while time.monotonic() - began < LANDS_S:
        driven.land()
        time.sleep(EVERY_S)
    last = time.monotonic()
    waited = _waited(driven.complete, driven.count, last + ARRIVES_S, last)
    seconds, after = time.monotonic() - began, _cpu(driven)
    for who in after:
        found.put(f"while rows land, {who}", (after[who] - before[who]) / seconds, "cores")
    found.put("all hold the last row, after it has landed", *waited)
    for who, pid in _pids(driven).items():
        found.put(f"memory, {who}", _rss_mb(pid), "MB")


def _waited(counted: Callable[[], int], of: int, ends_at: float, since: float) -> tuple[float, str, int, int]:
    """Wait until the count is `of` or until `ends_at`; return the seconds since `since`, the unit, count and `of`."""
    while (done := counted()) < of and time.monotonic() < ends_at:
        time.sleep(0.2)
    return time.monotonic() - since, "s", done, of


def _until_rest(driven: Statements) -> None:
    """Wait until no statement has committed a batch for ten seconds, or until RESTS_S seconds have passed."""
    ends_at, seen, since = time.monotonic() + RESTS_S, driven.batches(), time.monotonic()
    while time.monotonic() < ends_at and time.monotonic() - since < 10:
        time.sleep(0.5)
        if (now := driven.batches()) != seen:
            seen, since = now, time.monotonic()


def _pids(driven: Statements) -> Mapping[str, int]:
    return {"server": driven.pool_pid(), "agent": driven.agent_pid()}


def _cpu(driven: Statements) -> dict[str, float]:
    """Return the CPU seconds of each process."""
    ticks = os.sysconf("SC_CLK_TCK")
    found = {}
    for who, pid in _pids(driven).items():
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        found[who] = (int(fields[11]) + int(fields[12])) / ticks
    return found


def _rss_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


def _numbered(folder: Path) -> int:
    return sum(1 for name in os.listdir(folder) if name.isdigit()) if folder.is_dir() else 0


def _ratio(values: Mapping[str, str]) -> str:
    """Return the second format's figure divided by the first's, or "" if either is missing or zero."""
    try:
        first, second = (float(values[format].removeprefix("> ").split()[0]) for format in FORMATS)
    except (KeyError, ValueError):
        return ""
    more = "> " if values[FORMATS[1]].startswith("> ") else ""
    return f"{more}{second / first:.1f}" if first else ""


def main(counts: tuple[int, ...]) -> None:
    """Print the table of all sizes and formats, with each run's load average."""
    rows: dict[tuple[int, str], dict[str, str]] = {}
    for count in counts:
        for format in FORMATS:
            with tempfile.TemporaryDirectory(prefix="headgate-bench-") as folder:
                load, began = os.getloadavg()[0], time.monotonic()
                for name, value in measure(count, format, Path(folder)).items():
                    rows.setdefault((count, name), {})[format] = value
                loads = f"load average {load:.1f} before, {os.getloadavg()[0]:.1f} after"
                told = {
                    name: values[format] for (size, name), values in rows.items() if size == count and format in values
                }
                print(f"{count} on {format}: {time.monotonic() - began:.0f} s, {loads}: {told}", flush=True)
    print(f"\n| statements | what | {' | '.join(FORMATS)} | {FORMATS[1]} : {FORMATS[0]} |\n|---|---|---|---|---|")
    for (count, name), values in rows.items():
        print(f"| {count} | {name} | {' | '.join(values.get(each, '') for each in FORMATS)} | {_ratio(values)} |")


if __name__ == "__main__":
    main(tuple(map(int, sys.argv[1:])) or COUNTS)
