"""Every strategy of a new version on Delta and real Spark, with numbered rows, while rows land.

The agent is killed between an action of a fork or seed and its record, and the next agent continues. The tests form one
history and must run in order. Each prints the result of its strategy: rows expected, got, doubled, missed.
"""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
from tiny_project import DDL, DML, Tiny, alive, tiny_that_runs, until

from pipelines.storage.delta_log import DeltaLog

pytestmark = [pytest.mark.spark, pytest.mark.drill, pytest.mark.long]


@dataclass
class History:
    """The project, and the id of the first row that the serving version of `marked` holds."""

    tiny: Tiny
    first: int = 1
    text: str = DML["marked"]

    @property
    def version(self) -> int:
        return int(str(self.tiny.statements()["marked"]["version"]).lstrip("v"))

    def edit(self) -> None:
        """Edit `marked` so that rows show which version made them."""
        self.text = DML["marked"].replace("upper(kind)", f"concat(upper(kind), '{self.version + 1}')")
        self.tiny.write(marked=self.text)

    def log(self, table: str, version: int) -> DeltaLog:
        log = DeltaLog(f"{self.tiny.folder}/data/tables/{table}__v{version}/delta")
        log.refresh()
        return log


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Iterator[History]:
    """A project with the tables landed → kept → marked, where each version of the log of kept adds ten rows."""
    with tiny_that_runs(tmp_path_factory.mktemp("delta"), landed=10, format="delta") as tiny:
        assert tiny.apply(tiny.plan("--all")).returncode == 0
        for _ in range(4):
            seen = tiny.landed
            until(lambda seen=seen: len(tiny.ids("marked", 1)) == seen, 90, "all rows are read")  # type: ignore[misc]
            tiny.land(10)
        yield History(tiny)


def told(capsys: Any, words: str) -> None:
    """Print figures even if the test passes."""
    with capsys.disabled():
        print(f"\n{words}", flush=True)


def exact(history: History, capsys: Any, table: str = "marked", version: int = 0, first: int = 0) -> None:
    """Wait until a version holds as many rows as expected, and assert that they are the expected ones."""
    tiny, version = history.tiny, version or history.version
    expected = range(first or history.first, tiny.landed + 1)
    until(lambda: len(tiny.ids(table, version)) >= len(expected), 120, f"{len(expected)} rows are in {table}")
    got, wanted = Counter(tiny.ids(table, version)), Counter(expected)
    doubled, missed = (got - wanted).total(), (wanted - got).total()
    told(
        capsys, f"{table}__v{version}: expected {len(expected)}, got {got.total()}, doubled {doubled}, missed {missed}"
    )
    assert got == wanted


def change(history: History, strategy: str, dies_at: str) -> int:
    """Edit, plan and apply; the agent dies at a point, and the next one ends the run; return the landed rows."""
    tiny = history.tiny
    history.edit()
    tiny.done("down", "--keep-pool", "--confirm", "")
    tiny.done("up", HEADGATE_FAULT_AT=dies_at)
    until(lambda: tiny.statements()["marked"]["state"] == "running", 60, "the agent has found the running statements")
    tiny.apply(tiny.plan("marked", "--strategy", f"marked={strategy}"))
    pid = tiny.agent_pid()
    until(lambda: not alive(pid), 60, "the agent is dead")
    there = tiny.landed
    for _ in range(3):
        tiny.land(10)
    tiny.done("up")
    until(lambda: '"running"' not in tiny.done("runs", "--json"), 180, "the resumed run has ended")
    newest = json.loads(tiny.done("runs", "--json"))[0]
    assert newest["state"] == "done", [step["note"] for step in newest["steps"]]
    return there


@pytest.mark.parametrize("dies_at", ["fork record", "fork clone"])
def test_a_fork_has_each_row_once_and_keeps_its_base(history: History, capsys: Any, dies_at: str) -> None:
    """The second fork is a clone of a clone."""
    tiny, base = history.tiny, history.version
    exact(history, capsys)
    change(history, "fork", dies_at)
    tiny.land(10)
    assert history.version == base + 1
    exact(history, capsys)
    log = history.log("marked", base + 1)
    elsewhere = [file for file in log.files_at(log.head) if f"/marked__v{base + 1}/" not in log.place_of(file)]
    told(capsys, f"{len(elsewhere)} files are named that are another version's")
    assert elsewhere
    refused = tiny.run("plan", "retire", "marked")
    said = refused.stdout + refused.stderr
    assert refused.returncode != 0 and f"marked__v{base + 1} is a clone of marked__v{base}" in said


def test_a_clone_is_registered_again_in_an_empty_catalog(history: History, capsys: Any) -> None:
    history.tiny.replace_pool()
    history.tiny.land(10)
    exact(history, capsys)


def test_a_deleted_clone_is_restored_with_all_its_rows(history: History, capsys: Any) -> None:
    tiny, version = history.tiny, history.version
    assert tiny.apply(tiny.plan("delete", "marked")).returncode == 0
    tiny.land(10)
    undone = tiny.apply(tiny.plan("undelete", "marked"))
    assert undone.returncode == 0, undone.stdout + undone.stderr
    assert history.version == version
    exact(history, capsys)


def test_a_clone_is_rebuilt_into_files_of_its_own(history: History, capsys: Any) -> None:
    """It is compared with the clone, whose files are in three folders; then everything replaced is retired."""
    tiny = history.tiny
    history.edit()
    rebuilt = tiny.apply(tiny.plan("marked", "--rebuild"))
    steps = json.loads(tiny.done("runs", "--json"))[0]["steps"]
    told(capsys, str([step["note"] for step in steps if step["do"] == "validate"]))
    assert rebuilt.returncode == 0, rebuilt.stdout + rebuilt.stderr
    exact(history, capsys)
    retired = tiny.apply(tiny.plan("retire", "marked"))
    assert retired.returncode == 0, retired.stdout + retired.stderr
    left = {path.name for path in (tiny.folder / "data/tables").iterdir() if "marked" in path.name}
    assert left == {f"marked__v{history.version}"}
    tiny.land(10)
    exact(history, capsys)


@pytest.mark.parametrize("by", ["version", "time"])
def test_a_version_that_starts_at_a_log_version_has_each_later_row_once(history: History, capsys: Any, by: str) -> None:
    tiny = history.tiny
    exact(history, capsys)
    commits = [commit for commit in history.log("kept", 1).since(0) if commit.files]
    earlier, begins = commits[1], commits[2]
    history.first = 1 + sum(commit.rows or 0 for commit in commits[:2])
    at = str(begins.version)
    if by == "time":
        moment = datetime.fromtimestamp((earlier.at + begins.at) / 2, UTC)
        at = f"committed:{moment.isoformat().replace('+00:00', 'Z')}"
    history.edit()
    plan = tiny.plan("marked", "--strategy", f"marked=partial@{at}")
    (node,) = [node for node in plan["nodes"] if node["table"] == "marked"]
    assert (node["replay_rows"], node["retention"]["kind"]) == (tiny.landed - history.first + 1, "ok"), node
    assert node["evidence"][-1]["sentence"].endswith("earlier rows are not replayed")
    tiny.land(10)
    applied = tiny.apply(plan)
    assert applied.returncode == 0, applied.stdout + applied.stderr
    tiny.land(10)
    exact(history, capsys)
    tiny.done("restart", "marked", "--confirm", "yes")
    tiny.land(10)
    exact(history, capsys)
    beyond = tiny.run("plan", "marked", "--strategy", "marked=partial@9999")
    assert beyond.returncode != 0 and "ends with version" in beyond.stdout + beyond.stderr


def test_a_carry_over_has_each_row_after_the_cut_once_and_its_rollback_all_rows(history: History, capsys: Any) -> None:
    base, before = history.version, (history.first, history.text)
    history.first = change(history, "carry-over", "fork record") + 1
    exact(history, capsys)
    assert history.tiny.apply(history.tiny.plan("rollback", "marked")).returncode == 0
    history.first, history.text = before
    assert history.version == base
    exact(history, capsys)


def test_a_version_that_begins_now_has_each_later_row_once(history: History, capsys: Any) -> None:
    exact(history, capsys)
    there = change(history, "seeded@now", "seed record")
    history.tiny.land(10)
    history.first = there + 1
    exact(history, capsys)


def test_a_chain_serves_each_row_once_from_both_layouts(history: History, capsys: Any) -> None:
    tiny = history.tiny
    exact(history, capsys)
    there = tiny.landed
    tiny.ddl = DDL | {"kept": DDL["kept"].replace(";", " PARTITIONED BY (kind);")}
    tiny.write(marked=history.text)
    applied = tiny.apply(tiny.plan("kept", "--strategy", "kept=chain"))
    assert applied.returncode == 0, applied.stdout + applied.stderr
    tiny.land(20)
    exact(history, capsys, "kept", 2, there + 1)
    # The reader keeps its own table, and continues in the new version from its position in the old one.
    exact(history, capsys)

    def served() -> list[int]:
        found = tiny.run("peek", "kept", "--limit", "1000", "--json")
        return sorted(row[0] for row in json.loads(found.stdout)["rows"]) if found.returncode == 0 else []

    until(lambda: served() == list(range(1, tiny.landed + 1)), 60, "the pointer serves all rows")
    tiny.replace_pool()
    until(lambda: served() == list(range(1, tiny.landed + 1)), 60, "the pointer is back")
