"""Whole lives of readers of another owner's Delta table, on agent and pool: nothing in its folder ever changes.

The tests form one history and must run in order; each test compares names, bytes and times in the folder.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest
from external_table import LANDED, Owner
from tiny_project import DML, Tiny, tiny_that_runs, until

from pipelines.storage.delta_log import DeltaLog

pytestmark = [pytest.mark.spark, pytest.mark.drill, pytest.mark.long]

DDL = {
    "landed": LANDED,
    "clicks": "CREATE TABLE clicks (id BIGINT, kind STRING) USING json LOCATION 'landing';",
    "kept": "CREATE TABLE kept (id BIGINT, kind STRING) USING delta;",
    "joined": "CREATE TABLE joined (id BIGINT, kind STRING) USING delta;",
}
JOINED = "INSERT INTO joined SELECT c.id, l.kind FROM STREAM clicks c JOIN landed l ON l.id = c.id;"
VACUUM = ("SET spark.databricks.delta.retentionDurationCheck.enabled = false", "VACUUM {t} RETAIN 0 HOURS")


@dataclass
class Life:
    """The owner's table, its readers, and the first row that the serving version of `kept` holds."""

    owner: Owner
    first: int = 1
    text: str = DML["kept"]

    @property
    def tiny(self) -> Tiny:
        return self.owner.tiny

    @property
    def version(self) -> int:
        return int(self.tiny.statements()["kept"]["version"])

    def edit(self) -> None:
        """Edit `kept` to a text that it has not had before."""
        self.text = DML["kept"].replace("kind FROM", f"concat(kind, '{self.owner.rows}') AS kind FROM")
        self.tiny.write(kept=self.text)

    def apply(self, *words: str) -> None:
        applied = self.tiny.apply(self.tiny.plan(*words))
        assert applied.returncode == 0, applied.stdout + applied.stderr

    def append(self, rows: int = 10) -> None:
        self.owner.append(rows)

    def exact(self) -> None:
        """Wait until the serving version of `kept` has each row once, beginning with its first."""
        version, wanted = self.version, Counter(range(self.first, self.owner.rows + 1))
        until(lambda: len(self.tiny.ids("kept", version)) >= wanted.total(), 120, f"{wanted.total()} rows in kept")
        assert Counter(self.tiny.ids("kept", version)) == wanted

    def is_running(self) -> bool:
        return self.tiny.statements()["kept"]["state"] == "running"


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Life]:
    dml = {"kept": DML["kept"], "joined": JOINED}
    with tiny_that_runs(tmp_path_factory.mktemp("lives"), landed=5, format="delta", ddl=DDL, dml=dml) as tiny:
        owner = Owner(tiny)
        owner.folder.parent.mkdir(parents=True)
        owner.make()
        for _ in range(3):
            owner.append(10)
        yield Life(owner)


def test_an_external_table_is_streamed_joined_and_shown_by_its_log(life: Life) -> None:
    with life.owner.nothing_changes():
        life.apply("--all")
        life.exact()
        until(lambda: life.tiny.ids("joined", 1) == [1, 2, 3, 4, 5], 60, "the static side is joined")
        assert '"rows"' in life.tiny.done("peek", "landed", "--limit", "3", "--json")
        until(lambda: life.tiny.statements()["landed"]["rows"] == 30, 60, "its rows are listed")
    shown = life.tiny.done("show", "landed")
    assert "holds       30 rows  " in shown and "version     3, committed " in shown, shown


@pytest.mark.parametrize("by", ["version", "time"])
def test_a_reader_begins_at_a_version_or_a_time(life: Life, by: str) -> None:
    log = DeltaLog(str(life.owner.folder))
    log.refresh()
    earlier, begins = list(log.since(0))[1:3]
    moment = datetime.fromtimestamp((earlier.at + begins.at) / 2, UTC).isoformat().replace("+00:00", "Z")
    life.edit()
    with life.owner.nothing_changes():
        life.first = 11
        life.apply("kept", "--strategy", f"kept=partial@{2 if by == 'version' else f'committed:{moment}'}")
        life.exact()
        beyond = life.tiny.run("plan", "kept", "--strategy", "kept=partial@9999")
        assert beyond.returncode != 0 and "ends with version" in beyond.stdout + beyond.stderr
    life.append()
    life.exact()


@pytest.mark.parametrize("strategy", ["fork", "carry-over", "seeded@now", "chain"])
def test_a_fork_continues_after_the_old_version_and_is_rolled_back(life: Life, strategy: str) -> None:
    before, version = (life.first, life.text), life.version
    if strategy == "chain":
        life.tiny.ddl = DDL | {"kept": DDL["kept"].replace(";", " PARTITIONED BY (kind);")}
        life.tiny.write(kept=life.text)
    else:
        life.edit()
    with life.owner.nothing_changes():
        life.exact()
        life.apply("kept", "--strategy", f"kept={strategy}")
    assert life.version > version
    if strategy != "fork":
        life.first = life.owner.rows + 1
    life.append()
    life.exact()
    with life.owner.nothing_changes():
        life.apply("rollback", "kept")
        life.first, life.text = before
        assert life.version == version
        life.exact()


@pytest.mark.parametrize(("at", "first"), [("2", 11), ("99", 0)], ids=["there", "beyond its log"])
def test_a_statement_with_its_own_start_position(life: Life, at: str, first: int) -> None:
    before = (life.first, life.text)
    life.tiny.ddl = DDL
    life.edit()
    life.text = life.text.replace("STREAM landed", f"STREAM landed WITH ('startingVersion'='{at}')")
    life.tiny.write(kept=life.text)
    with life.owner.nothing_changes():
        applied = life.tiny.apply(life.tiny.plan("kept", "--rebuild"))
        if not first:
            said = applied.stdout + applied.stderr
            assert applied.returncode != 0 and "99" in said, said
            life.first, life.text = before
            life.tiny.write(kept=life.text)
            return
        assert applied.returncode == 0, applied.stdout + applied.stderr
        life.first = first
        life.exact()


def test_a_start_is_refused_if_the_owner_has_vacuumed_unread_files(life: Life) -> None:
    tiny = life.tiny
    tiny.done("stop", "kept", "--confirm", "yes")
    life.append()
    life.owner.sql("OPTIMIZE {t}", *VACUUM)
    with life.owner.nothing_changes():
        refused = tiny.run("start", "kept", "--confirm", "yes")
        assert refused.returncode == 3 and "landed, which kept@v" in refused.stderr, refused.stderr
        assert "lacks files of version" in refused.stderr and "VACUUM" in refused.stderr, refused.stderr
        assert "--rebuild reads what is there now" in refused.stderr
        life.edit()
        life.apply("kept", "--rebuild")
        life.first = 1
        life.exact()


def test_a_reader_is_deleted_and_restored(life: Life) -> None:
    with life.owner.nothing_changes():
        life.apply("delete", "kept")
    life.append()
    with life.owner.nothing_changes():
        life.apply("undelete", "kept")
        life.exact()


def test_restored_and_lost_ledgers_are_adopted_without_losing_a_row(life: Life, tmp_path: Path) -> None:
    tiny = life.tiny
    tiny.done("backup", str(tmp_path / "monday.db"))
    life.append()
    life.exact()
    for restored in (True, False):
        with life.owner.nothing_changes():
            tiny.done("stop", "kept", "--confirm", "yes")
            tiny.done("down", "--confirm", "")
            if restored:
                tiny.done("restore", str(tmp_path / "monday.db"), "--confirm", "tiny")
            else:
                for path in tiny.home().glob("ledger.db*"):
                    path.unlink()
            tiny.done("up")
            until(lambda: tiny.run("adopt").returncode == 3, 60, "it asks to be adopted")
            tiny.done("adopt", "--confirm", "dev adopt")
            assert tiny.run("start", "kept", "--confirm", "yes").returncode == 0
            until(life.is_running, 90, "it goes on")
        life.append()
        life.exact()
        until(lambda: tiny.statements()["landed"]["rows"] == life.owner.rows, 60, "and its input is shown")
        assert tiny.plan("--all")["steps"] == [], "what is deployed is what is declared"


def test_all_readers_are_deleted_and_everything_is_purged(life: Life) -> None:
    tiny = life.tiny
    with life.owner.nothing_changes():
        for words in (("delete", "landed"), ("retire", "landed")):
            refused = tiny.run("plan", *words)
            assert refused.returncode != 0 and "external" in refused.stdout + refused.stderr
        life.apply("delete", "kept")
        life.apply("delete", "joined")
        tiny.done("down", "--purge", "--confirm", "tiny")
        data = tiny.folder / "data"
        left = {str(path.relative_to(data)) for path in data.rglob("*") if path.is_file()}
        assert {name for name in left if not name.startswith(("landing/", "lake/"))} <= {"_headgate_pool"}, left
    tiny.done("up")
