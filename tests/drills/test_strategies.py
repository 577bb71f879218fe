"""Every strategy of a new version on real Spark, with numbered rows: each row occurs once, in the announced version.

The agent is killed between an action of a fork or seed and its record, and the next agent continues. Rows land before,
during and after. Each test prints the result of its strategy: rows expected, got, doubled, missed.
"""

import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet
import pytest
from live_project import Driven, alive, committed, until

pytestmark = [pytest.mark.spark, pytest.mark.drill, pytest.mark.long]

HEAD = """project: strategies
id: 5b0e4a52-9df2-4a52-9c0c-0f6f8d1a2b3e
default_env: dev
environments:
  dev:
    pool: {cores: 2, memory: 1g}
defaults: {trigger: 1 second}
"""
FLAT = "INSERT INTO flat SELECT id, kind FROM STREAM landed WITH ('maxFilesPerTrigger'='1') WHERE id > 0;"
COUNTED = """INSERT INTO counted SELECT window.start AS since, count(*) AS n
FROM STREAM landed WATERMARK ts DELAY OF INTERVAL 1 MINUTE
GROUP BY window(ts, '10 minutes');"""
BASE = {
    "ddl.flat": "CREATE TABLE flat (id BIGINT, kind STRING) USING parquet;",
    "dml.flat": FLAT,
    "ddl.below": "CREATE TABLE below (id BIGINT, kind STRING) USING parquet;",
    "dml.below": "INSERT INTO below SELECT id, lower(kind) AS kind FROM STREAM flat;",
    "ddl.counted": "CREATE TABLE counted (since TIMESTAMP, n BIGINT) USING parquet;",
    "dml.counted": COUNTED,
}
EACH = 10
"""Rows per file. Rows are a minute of event time apart, and each file is a window."""


@dataclass
class World(Driven):
    """A project with the tables landed → flat → below, and landed → counted."""

    landed: int = 0

    @property
    def folder(self) -> Path:
        return self.root / "strategies"

    def write(self, edit: Mapping[str, str] = {}) -> None:
        """Write the project's files, some of them edited."""
        self._put("headgate.yml", HEAD)
        (self.folder / "data/landed").mkdir(parents=True, exist_ok=True)
        landed = "CREATE TABLE landed (id BIGINT, kind STRING, ts TIMESTAMP) USING json LOCATION 'landed';"
        self._put("pipelines/sources/p/landed/sql-scripts/ddl.landed.sql", landed)
        for name, text in (BASE | edit).items():
            self._put(f"pipelines/facts/p/{name.partition('.')[2]}/sql-scripts/{name}.sql", text)

    def _put(self, path: str, text: str) -> None:
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def land(self, files: int) -> None:
        """Land files of numbered rows one after another."""
        for _ in range(files):
            rows = []
            for n in range(self.landed + 1, self.landed + EACH + 1):
                moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(1_767_225_600 + 60 * (n - 1)))
                rows.append({"id": n, "kind": "ab"[n % 2], "ts": moment})
            self.landed += EACH
            hidden = self.folder / "data/landed/.part"
            hidden.write_text("".join(json.dumps(row) + "\n" for row in rows))
            hidden.rename(self.folder / f"data/landed/{self.landed:09}.json")

    def table(self, name: str, version: int) -> Path:
        return self.folder / f"data/tables/{name}__v{version}"

    def version(self, table: str) -> int:
        return int(str(self.statements()[table]["version"]).lstrip("v"))

    def values(self, folder: Path, column: str, upto: int | None = None) -> Counter[Any]:
        """Count a column's values over the files in a table's sink log, or over those up to a batch."""
        files = committed(folder) if upto is None else self.files_upto(folder, upto)
        return Counter(v for file in files for v in parquet.ParquetFile(file).read([column])[column].to_pylist())

    @staticmethod
    def files_upto(folder: Path, batch: int) -> list[Path]:
        """Return the files of batches up to one; the sink log keeps each batch for ten minutes."""
        found = []
        for number in range(batch + 1):
            path = folder / "_spark_metadata" / str(number)
            if path.exists():
                entries = path.read_text().splitlines()[1:]
            else:
                # A compacted entry also holds all files before it.
                found, entries = [], Path(f"{path}.compact").read_text().splitlines()[1:]
            found += [folder / Path(json.loads(line)["path"]).relative_to(f"file://{folder}") for line in entries]
        return found

    def change(self, edit: Mapping[str, str], table: str, strategy: str, dies_at: str) -> None:
        """Plan and apply an edit; the agent dies at a point, and the next agent ends the run."""
        self.write(edit)
        self.done("down", "--keep-pool", "--confirm", "")
        self.done("up", HEADGATE_FAULT_AT=dies_at)
        until(lambda: self.statements()[table]["state"] == "running", 60, "the agent has found the running statements")
        self.apply(self.plan(table, "--strategy", f"{table}={strategy}"))
        pid = self.agent_pid()
        until(lambda: not alive(pid), 60, "the agent is dead")
        self.land(3)
        self.done("up")
        until(lambda: '"running"' not in self.done("runs", "--json"), 120, "the resumed run has ended")
        newest = json.loads(self.done("runs", "--json"))[0]
        assert newest["state"] == "done", [step["note"] for step in newest["steps"]]

    def cut(self, table: str, version: int) -> int | None:
        """Return the batch after which a version continues, according to the mark in its checkpoint."""
        mark = json.loads((self.folder / f"data/checkpoints/{table}__v{version}/_headgate_fork").read_text())
        batch: int | None = mark["batch"]
        return batch


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    world = World(tmp_path_factory.mktemp("strategies"), {"HEADGATE_MEASURE_S": "1"})
    world.write()
    world.land(12)
    world.done("up")
    try:
        applied = world.apply(world.plan("--all"))
        assert applied.returncode == 0, applied.stderr
        yield world
    finally:
        world.down()


def told(capsys: Any, words: str) -> None:
    """Print figures even if the test passes."""
    with capsys.disabled():
        print(f"\n{words}", flush=True)


def reads_all(world: World, folder: Path, expected: Counter[Any], column: str, capsys: Any) -> None:
    """Wait until a table holds as many rows as expected, and assert that they are the expected ones."""

    def there() -> bool:
        return world.values(folder, column).total() >= expected.total()

    until(there, 90, f"{expected.total()} rows, of {world.values(folder, column).total()}")
    got = world.values(folder, column)
    doubled, missed = (got - expected).total(), (expected - got).total()
    told(capsys, f"{folder.name}: expected {expected.total()}, got {got.total()}, doubled {doubled}, missed {missed}")
    assert got == expected


def settled(world: World, table: str) -> None:
    """Wait until a table has processed all landed rows."""
    folder = world.table(table, world.version(table))
    until(lambda: world.values(folder, "id").total() == world.landed, 90, "it has read what landed")


def test_a_carry_over_has_every_row_after_the_cut_once_and_its_rollback_all_rows(world: World, capsys: Any) -> None:
    settled(world, "flat")
    old = world.version("flat")
    world.land(2)
    edit = {"dml.flat": FLAT.replace("id, kind", "id, upper(kind) AS kind")}
    world.change(edit, "flat", "carry-over", "fork record")
    world.land(12)
    new, cut = world.version("flat"), world.cut("flat", world.version("flat"))
    assert new > old and cut is not None and cut >= 9
    before = world.values(world.table("flat", old), "id", upto=cut)
    expected = Counter(range(1, world.landed + 1)) - before
    assert expected and max(before.values()) == 1
    reads_all(world, world.table("flat", new), expected, "id", capsys)
    kinds = world.values(world.table("flat", new), "kind")
    assert set(kinds) == {"A", "B"}
    # The rollback: the old version resumes and contains every row, from before and after the cut.
    assert world.apply(world.plan("rollback", "flat")).returncode == 0
    assert world.version("flat") == old
    reads_all(world, world.table("flat", old), Counter(range(1, world.landed + 1)), "id", capsys)
    world.write()


def test_a_fork_holds_every_window_once(world: World, capsys: Any) -> None:
    edit = {"dml.counted": COUNTED.replace(";", " HAVING count(*) > 1;")}
    world.land(2)
    world.change(edit, "counted", "fork", "fork record")
    world.land(2)
    # The watermark closes all windows but the newest.
    windows = world.landed // EACH - 1
    folder = world.table("counted", world.version("counted"))
    until(lambda: world.values(folder, "since").total() >= windows, 90, "all windows are closed")
    sums = world.values(folder, "n")
    found = world.values(folder, "since")
    doubled = found.total() - len(found)
    told(capsys, f"windows: expected {windows}, got {len(found)}, doubled {doubled}, counts {dict(sums)}")
    assert (len(found), doubled, sums) == (windows, 0, Counter({EACH: windows}))
    assert world.cut("counted", world.version("counted")) is not None


def test_a_chain_serves_every_row_once_from_both_layouts(world: World, capsys: Any) -> None:
    """The table is now partitioned by another column; its pointer also serves the rows stored before."""
    settled(world, "flat")
    old, reader = world.version("flat"), world.version("below")
    edit = {"ddl.flat": BASE["ddl.flat"].replace(";", " PARTITIONED BY (kind);")}
    world.change(edit, "flat", "chain", "fork record")
    world.land(12)
    new, everything = world.version("flat"), Counter(range(1, world.landed + 1))
    cut = world.cut("flat", new)
    assert new > old and cut is not None
    own, before = world.table("flat", new), world.table("flat", new) / "_before"
    assert world.values(before, "id") == world.values(world.table("flat", old), "id", upto=cut)
    assert {path.parent.name for path in committed(own)} == {"kind=a", "kind=b"}
    reads_all(world, own, everything - world.values(before, "id"), "id", capsys)
    # The reader keeps its own table, and continues in the new version from its position in the old one.
    assert world.version("below") == reader
    reads_all(world, world.table("below", reader), everything, "id", capsys)
    served = partial(pointed, world, "flat")
    until(lambda: served().total() >= everything.total(), 60, "the pointer serves all rows")
    told(capsys, f"pointer: expected {everything.total()}, got {served().total()}")
    assert served() == everything
    # A new pool has an empty catalog, whose tables and pointers are restored from the registry.
    world.replace_pool()
    until(lambda: served() == everything, 60, "the pointer is back")
    assert world.apply(world.plan("rollback", "flat")).returncode == 0
    assert world.version("flat") == old
    reads_all(world, world.table("flat", old), everything, "id", capsys)
    world.write()


def pointed(world: World, table: str) -> Counter[Any]:
    """Count the ids that a table's pointer serves; empty while the pool does not answer."""
    found = world.run("peek", table, "--limit", "1000", "--json")
    return Counter(row[0] for row in json.loads(found.stdout)["rows"]) if found.returncode == 0 else Counter()


def test_a_version_that_begins_now_has_every_later_row_once(world: World, capsys: Any) -> None:
    settled(world, "flat")
    there = world.landed
    edit = {"dml.flat": FLAT.replace("id > 0", "id > 1")}
    world.change(edit, "flat", "seeded@now", "seed record")
    world.land(12)
    expected = Counter(range(there + 1, world.landed + 1))
    reads_all(world, world.table("flat", world.version("flat")), expected, "id", capsys)
    assert world.statements()["flat"]["state"] == "running"
