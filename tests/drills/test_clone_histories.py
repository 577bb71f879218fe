"""Histories of clones of a Delta table on real Spark: which versions may be removed, without any loss of rows.

The tests form one history and must run in order. Files that only older versions hold may be deleted at once.
"""

import json
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from subprocess import CompletedProcess
from typing import Any

import pytest
from tiny_project import DDL, DML, Tiny, tiny_that_runs, until

pytestmark = [pytest.mark.spark, pytest.mark.drill, pytest.mark.long]

AT_ONCE = "USING parquet TBLPROPERTIES ('delta.deletedFileRetentionDuration'='interval 0 hours');"
"""A table format, adapted to Delta, whose files are deleted at once when only older versions contain them."""


@dataclass
class History:
    """The project, and the rows that `marked` must hold."""

    tiny: Tiny
    edits: int = 0
    text: str = DML["marked"]

    @property
    def version(self) -> int:
        return int(str(self.tiny.statements()["marked"]["version"]).lstrip("v"))

    def edit(self) -> None:
        """Edit `marked` so that its rows show which SQL produced them."""
        self.edits += 1
        self.text = DML["marked"].replace("upper(kind)", f"concat(upper(kind), '{self.edits}')")
        self.tiny.write(marked=self.text)

    def exact(self, capsys: Any, what: str) -> None:
        """Land rows, and wait until the serving version has each row once."""
        tiny = self.tiny
        tiny.land(10)
        version, wanted = self.version, Counter(range(1, tiny.landed + 1))
        until(lambda: len(tiny.ids("marked", version)) >= len(wanted), 120, f"{len(wanted)} rows are in marked")
        got = Counter(tiny.ids("marked", version))
        figures = f"doubled {(got - wanted).total()}, missed {(wanted - got).total()}"
        told(capsys, f"{what}: marked__v{version}: expected {len(wanted)}, got {got.total()}, {figures}")
        assert got == wanted
        assert self.served() == wanted, "as Spark reads it"
        until(lambda: tiny.statements()["marked"]["rows"] == len(wanted), 20, "a list counts them")

    def served(self) -> Counter[int]:
        """Return the ids that readers of the pointer see."""
        found = self.tiny.run("peek", "marked", "--limit", "1000", "--json")
        return Counter(row[0] for row in json.loads(found.stdout)["rows"]) if found.returncode == 0 else Counter()

    def does(self, *words: str) -> CompletedProcess[str]:
        """Submit a plan for these words and apply it; return the result of the apply command."""
        return self.tiny.apply(self.tiny.plan(*words))

    def done(self, *words: str) -> None:
        """Plan and apply a change that must succeed."""
        found = self.does(*words)
        assert found.returncode == 0, found.stdout + found.stderr

    def refused(self, *words: str) -> str:
        """Return the output of a plan that must be refused."""
        found = self.tiny.run("plan", *words)
        assert found.returncode == 3, found.stdout + found.stderr
        return found.stdout + found.stderr

    def failed(self, *words: str) -> str:
        """Apply a plan that must fail, cancel its run, and return the note of the failed step."""
        assert self.does(*words).returncode == 1
        newest = json.loads(self.tiny.done("runs", "--json"))[0]
        assert newest["state"] == "failed"
        self.tiny.done("runs", "cancel", newest["id"], "--confirm", newest["id"][:4])
        return next(str(step["note"]) for step in newest["steps"] if step["state"] == "failed")

    def on_disk(self) -> set[str]:
        """Return the versions of `marked` that are not in the trash."""
        return {path.name for path in (self.tiny.folder / "data/tables").iterdir() if "marked" in path.name}


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Iterator[History]:
    """A project with the tables landed → kept → marked, each with a few files."""
    ddl = {table: text.replace("USING parquet;", AT_ONCE) for table, text in DDL.items()}
    with tiny_that_runs(tmp_path_factory.mktemp("clones"), landed=10, format="delta", ddl=ddl) as tiny:
        assert tiny.apply(tiny.plan("--all")).returncode == 0
        for _ in range(2):
            until(lambda: len(tiny.ids("marked", 1)) == tiny.landed, 90, "all rows are read")
            tiny.land(10)
        yield History(tiny)


def told(capsys: Any, words: str) -> None:
    """Print words even if the test passes."""
    with capsys.disabled():
        print(f"\n{words}", flush=True)


def test_only_one_of_two_concurrent_forks_of_a_table_is_carried_out(history: History, capsys: Any) -> None:
    tiny = history.tiny
    confirmed = []
    for _ in range(2):
        history.edit()
        plan = tiny.plan("marked", "--strategy", "marked=fork")
        confirmed.append((plan["hash"][:12], tiny.confirmation(plan)))
    found: dict[str, CompletedProcess[str]] = {}

    def apply(plan: str, confirm: str) -> None:
        found[plan] = tiny.run("apply", plan, "--confirm", confirm)

    threads = [threading.Thread(target=apply, args=each) for each in confirmed]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for plan, said in found.items():
        told(capsys, f"{plan}: {said.returncode} {said.stdout[-300:]} {said.stderr[-300:]}")
    assert sorted(said.returncode for said in found.values()) == [0, 3]
    assert history.version == 2 and history.on_disk() == {"marked__v1", "marked__v2"}
    history.exact(capsys, "two forks at once")


def test_vacuuming_a_serving_clone_keeps_the_rows_of_its_base(history: History, capsys: Any) -> None:
    history.done("optimize", "marked")
    history.done("vacuum", "marked", "--retain", "0")
    history.exact(capsys, "vacuum of a clone")
    why = history.refused("retire", "marked")
    told(capsys, why)
    assert "marked__v2 is a clone of marked__v1" in why


def test_a_base_cannot_be_vacuumed_while_a_clone_exists_or_is_in_the_trash(history: History, capsys: Any) -> None:
    history.done("rollback", "marked")
    assert history.version == 1
    history.exact(capsys, "rollback to the base")
    history.done("optimize", "marked")
    why = history.failed("vacuum", "marked", "--retain", "0")
    told(capsys, why)
    assert "marked__v2 holds rows in files of this version; headgate plan retire marked sets it aside" in why
    history.done("rollback", "marked")
    assert history.version == 2
    history.exact(capsys, "forward to the clone")
    history.done("rollback", "marked")
    history.done("retire", "marked")
    assert history.on_disk() == {"marked__v1"}
    why = history.failed("vacuum", "marked", "--retain", "0")
    told(capsys, why)
    assert "marked__v2 holds rows in files of this version: it is in the trash, and purged in" in why
    history.exact(capsys, "its clone is in the trash")


def test_undeleting_a_clone_of_a_clone_restores_both_bases(history: History, capsys: Any) -> None:
    for _ in range(2):
        history.edit()
        history.done("marked", "--strategy", "marked=fork")
        history.exact(capsys, "a fork")
    assert history.version == 4
    history.done("delete", "marked")
    assert history.on_disk() == set()
    history.done("undelete", "marked")
    assert history.on_disk() == {"marked__v1", "marked__v3", "marked__v4"}
    history.exact(capsys, "deleted and back")


def test_a_source_is_not_vacuumed_while_a_rollback_target_needs_its_files(history: History, capsys: Any) -> None:
    tiny = history.tiny
    history.edit()
    history.done("marked", "--rebuild")
    assert history.version == 5
    history.exact(capsys, "rebuilt")
    history.done("optimize", "kept")
    why = history.failed("vacuum", "kept", "--retain", "0")
    told(capsys, why)
    assert "marked@v4 has not read version" in why
    history.done("rollback", "marked")
    assert history.version == 4
    history.exact(capsys, "rolled back to a clone of a clone")
    why = history.refused("retire", "marked")
    assert "marked__v3 is a clone" not in why and "marked__v4 is a clone of marked__v3" in why
    history.done("rollback", "marked")
    history.exact(capsys, "forward again")
    assert tiny.statements()["marked"]["version"] in (5, "v5")


def test_retiring_a_replaced_version_retires_its_bases(history: History, capsys: Any) -> None:
    history.done("retire", "marked")
    assert history.on_disk() == {"marked__v5"}
    assert "marked@v3 has not read version" in history.failed("vacuum", "kept", "--retain", "0"), "nor in the trash"
    history.done("vacuum", "marked", "--retain", "0")
    history.exact(capsys, "after all that was replaced has gone")


def test_undeleting_a_chained_table_restores_both_layouts(history: History, capsys: Any) -> None:
    tiny = history.tiny
    tiny.ddl = {
        **tiny.ddl,
        "marked": tiny.ddl["marked"].replace(" TBLPROPERTIES", " PARTITIONED BY (kind) TBLPROPERTIES"),
    }
    tiny.write(marked=history.text)
    history.done("marked", "--strategy", "marked=chain")
    why = history.refused("retire", "marked")
    assert "marked__v6 is a clone of marked__v5" in why
    for act in ("delete", "undelete"):
        tiny.land(10)
        history.done(act, "marked")
    assert history.on_disk() == {"marked__v5", "marked__v6"}
    tiny.land(10)
    until(lambda: history.served() == Counter(range(1, tiny.landed + 1)), 90, "each row of both is served once")
    told(capsys, f"a chain, deleted and back: {tiny.landed} rows served once")


def test_rebuilding_a_clone_of_a_partitioned_table_reports_that_nothing_was_compared(
    history: History, capsys: Any
) -> None:
    for strategy in (("--rebuild",), ("--strategy", "marked=fork")):
        history.edit()
        history.done("marked", *strategy)
        history.exact(capsys, "a partitioned table, then its clone")
    history.edit()
    history.done("marked", "--rebuild")
    newest = json.loads(history.tiny.done("runs", "--json"))[0]
    (note,) = [step["note"] for step in newest["steps"] if step["do"] == "validate"]
    told(capsys, note)
    why = "the files of marked@v8 are not its rows: some are partitions of another version"
    assert note == f"rows were not compared: {why}"
    history.exact(capsys, "rebuilt")
