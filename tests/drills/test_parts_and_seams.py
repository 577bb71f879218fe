"""Partial rebuilds and seams on real Spark through the command line, while rows keep landing: each row exactly once."""

import json
import os
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import pyarrow.parquet as parquet
import pytest
from tiny_project import DML, Tiny, alive, approved, committed, until

pytestmark = [pytest.mark.spark, pytest.mark.drill, pytest.mark.long]

EDITED = DML["kept"].replace("kind FROM", "concat(kind, '!') AS kind FROM")
TIMED = "CREATE TABLE landed (id BIGINT, kind STRING, ts TIMESTAMP) USING json LOCATION 'landing';"
PER_MINUTE = 100
"""Rows per minute of event time."""


@dataclass
class Timed(Tiny):
    """The tiny project with a hundred rows per minute of event time."""

    def write(self, **dml: str) -> None:
        super().write(**dml)
        (self.folder / "pipelines/sources/p/landed/sql-scripts/ddl.landed.sql").write_text(TIMED)

    def land(self, count: int) -> None:
        rows = []
        for n in range(self.landed, self.landed + count):
            minute, second = divmod(n * 60 // PER_MINUTE, 60)
            rows.append({"id": n + 1, "kind": "ab"[n % 2], "ts": f"2026-01-01T00:{minute:02}:{second:02}Z"})
        self.landed += count
        hidden = self.folder / "data/landing/.part"
        hidden.write_text("".join(json.dumps(row) + "\n" for row in rows))
        hidden.rename(self.folder / f"data/landing/{self.landed:09}.json")

    def kinds(self, table: str, version: int) -> dict[int, str]:
        """Return the kind of each id in a version's table."""
        found: dict[int, str] = {}
        folder = self.folder / f"data/tables/{table}__v{version}"
        for file in self._delta_files(folder) if self.format_of(table) == "delta" else committed(folder):
            rows = parquet.read_table(file, columns=["id", "kind"]).to_pydict()
            found |= dict(zip(rows["id"], rows["kind"], strict=True))
        return found


@contextmanager
def deployed(
    root: Path, format: str = "parquet", formats: Mapping[str, str] = MappingProxyType({}), **dml: str
) -> Iterator[Timed]:
    """Yield the project with 200 rows landed and everything deployed."""
    found = Timed(root, {"HEADGATE_MEASURE_S": "1"}, format=format, formats=formats)
    found.write(**dml)
    found.land(200)
    found.done("up")
    try:
        assert found.apply(found.plan("--all")).returncode == 0
        yield found
    finally:
        found.down()


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Timed]:
    with deployed(tmp_path_factory.mktemp("headgate")) as found:
        until(lambda: found.ids("marked", 1) == list(range(1, 201)), 90, "all rows are there")
        yield found


@contextmanager
def landing(tiny: Timed, *, every: float) -> Iterator[None]:
    """Land files of ten rows throughout the block, one every `every` seconds."""
    over = threading.Event()

    def go_on() -> None:
        while not over.wait(every):
            tiny.land(10)

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_a_reader_keeps_its_table_across_a_rebuild_while_rows_land(tiny: Timed) -> None:
    keeps_its_table(tiny)


def keeps_its_table(tiny: Timed) -> None:
    """Rebuild the parent of `marked` while rows land, and check that `marked` holds each row once in its old table."""
    tiny.write(kept=EDITED)
    plan = approved(tiny, tiny.plan("kept", "--rebuild", "--strategy", "marked=seam"))
    assert [step["do"] for step in plan["steps"] if step["table"] == "marked"] == ["seam"]
    with landing(tiny, every=2.0):
        found = tiny.apply(plan)
    assert found.returncode == 0, found.stdout + found.stderr
    steps = json.loads(tiny.done("runs", "--json"))[0]["steps"]
    print([step["note"] for step in steps if step["do"] == "seam"])
    tiny.land(10)
    last = tiny.landed
    until(lambda: len(tiny.ids("marked", 1)) >= last, 90, "all rows have arrived")
    assert tiny.ids("marked", 1) == list(range(1, last + 1)), "none twice, none missing"
    kinds = tiny.kinds("marked", 1)
    new = {number for number, kind in kinds.items() if kind.endswith("!")}
    assert new == set(range(min(new), last + 1)) and 200 < min(new) <= last, "old rows stay, new ones follow"
    checkpoints = sorted(path.name for path in (tiny.folder / "data/checkpoints").iterdir() if "marked" in path.name)
    assert len(checkpoints) == 1 and checkpoints[0].startswith("marked__v1.kept__v2.")
    until(lambda: tiny.statements()["marked"]["lag_rows"] == 0, 60, "its lag is measured over the new version")
    print(f"{last} rows, {len(new)} of them after the seam; checkpoint {checkpoints[0]}")


def test_a_seam_survives_a_stop_and_a_start(tiny: Timed) -> None:
    tiny.done("stop", "marked", "--confirm", "yes")
    tiny.land(50)
    tiny.done("start", "marked", "--confirm", "yes")
    last = tiny.landed
    until(lambda: len(tiny.ids("marked", 1)) >= last, 60, "what landed meanwhile has arrived")
    assert tiny.ids("marked", 1) == list(range(1, last + 1))


def test_a_version_that_starts_at_a_time_and_its_readers_have_each_later_row_once(tiny: Timed) -> None:
    with landing(tiny, every=1.0):
        plan = tiny.plan("kept", "--strategy", "kept=partial@2026-01-01T00:01:30Z")
        (kept,) = [node for node in plan["nodes"] if node["table"] == "kept"]
        assert kept["loses"] == ["rows from before its start position"]
        assert kept["begins_where"] == ["landed.ts >= TIMESTAMP '2026-01-01T00:01:30Z'"]
        found = tiny.apply(plan)
        assert found.returncode == 0, found.stdout + found.stderr
    tiny.write(kept=EDITED.replace("id > 0", "id > 0 AND kind <> 'c'"))
    assert tiny.apply(tiny.plan("kept")).returncode == 0
    tiny.land(20)
    last = tiny.landed
    expected = list(range(151, last + 1))
    until(lambda: len(tiny.ids("marked", 2)) >= len(expected), 90, "all rows have arrived")
    assert tiny.ids("kept", 3) == expected == tiny.ids("marked", 2)
    assert "TIMESTAMP" not in (tiny.folder / "pipelines/facts/p/kept/sql-scripts/dml.kept.sql").read_text()
    print(f"{len(expected)} rows of {last} from the time on")


@pytest.mark.parametrize("label", ["seam stop marked", "seam seed marked", "seam move marked"])
def test_a_seam_survives_a_killed_agent(tiny: Timed, label: str) -> None:
    number = tiny.statements()["kept"]["version"] + 1
    tiny.write(kept=EDITED.replace("'!'", f"'{number}!'"))
    plan = approved(tiny, tiny.plan("kept", "--rebuild", "--strategy", "marked=seam"))
    restarted(tiny, HEADGATE_FAULT_AT=label)
    with landing(tiny, every=2.0):
        died = tiny.apply(plan)
        until(lambda: not alive(tiny.agent_pid()), 60, "the agent has died")
        restarted(tiny)
        until(
            lambda: json.loads(tiny.done("runs", "--json"))[0]["state"] in ("done", "failed"), 120, "the run has ended"
        )
    assert died.returncode != 0 and json.loads(tiny.done("runs", "--json"))[0]["state"] == "done"
    version, last = tiny.statements()["marked"]["version"], tiny.landed
    expected = list(range(151, last + 1))
    until(lambda: len(tiny.ids("marked", version)) >= len(expected), 90, "all rows have arrived")
    assert tiny.ids("marked", version) == expected
    kinds = tiny.kinds("marked", version)
    assert kinds[last].endswith(f"{number}!"), "the newest row is of the new version"


def restarted(tiny: Timed, **environ: str) -> None:
    """Kill the agent, if it lives, and start one with another environment; the pool continues to run."""
    if alive(tiny.agent_pid()):
        os.kill(tiny.agent_pid(), signal.SIGKILL)
        until(lambda: not alive(tiny.agent_pid()), 10, "the agent is dead")
    assert tiny.run("up", **environ).returncode == 0


def test_on_delta_a_reader_keeps_its_table_across_a_rebuild(tmp_path: Path) -> None:
    with deployed(tmp_path, "delta") as tiny:
        until(lambda: tiny.ids("marked", 1) == list(range(1, 201)), 90, "all rows are there")
        keeps_its_table(tiny)


@pytest.mark.parametrize("formats", [{"kept": "delta"}, {"marked": "delta"}], ids=str)
def test_a_reader_keeps_its_table_when_its_input_changes_format(tmp_path: Path, formats: Mapping[str, str]) -> None:
    with deployed(tmp_path, formats=formats) as tiny:
        until(lambda: tiny.ids("marked", 1) == list(range(1, 201)), 90, "all rows are there")
        keeps_its_table(tiny)


WINDOWED = (
    "INSERT INTO kept SELECT max(id) AS id, date_format(window.start, 'mm') AS kind FROM STREAM landed "
    "WATERMARK ts DELAY OF INTERVAL 10 SECONDS GROUP BY window(ts, '1 minute');"
)


def test_a_seam_over_windows_starts_where_both_versions_closed_the_same_windows(tmp_path: Path) -> None:
    with deployed(tmp_path, kept=WINDOWED) as tiny:
        until(lambda: tiny.ids("marked", 1) == [100], 90, "the first window is there")
        tiny.write(kept=WINDOWED.replace("max(id)", "min(id)"))
        plan = approved(tiny, tiny.plan("kept", "--strategy", "marked=seam"))
        assert [step["do"] for step in plan["steps"] if step["table"] == "marked"] == ["seam"]
        with landing(tiny, every=3.0):
            found = tiny.apply(plan)
        assert found.returncode == 0, found.stdout + found.stderr
        steps = json.loads(tiny.done("runs", "--json"))[0]["steps"]
        print([step["note"] for step in steps if step["do"] == "seam"])
        tiny.land(300)
        closed = (tiny.landed - 17 - 1) // PER_MINUTE
        until(lambda: len(tiny.ids("marked", 1)) >= closed, 90, "all closed windows have arrived")
        kinds = tiny.kinds("marked", 1)
        assert len(tiny.ids("marked", 1)) == len(kinds) == len(set(kinds.values())), "no window twice"
        assert sorted(kinds.values()) == [f"{minute:02}" for minute in range(len(kinds))], "and none missing"
        old = [number for number in kinds if number % PER_MINUTE == 0]
        print(f"{len(kinds)} windows, {len(old)} of the old text")
        assert 0 < len(old) < len(kinds) and all(number % PER_MINUTE == 1 for number in kinds.keys() - {*old})
