"""Backup and restore: a copy is complete or absent, and a restore loses neither ledger."""

import json
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import asdict
from pathlib import Path

import pytest

from core.model.errors import LedgerUnavailable, Refused
from core.model.names import TableName
from core.observed.versions import Deployment
from core.policy.unlocking import Unlock
from state import backup as backups
from state.backup import Restored, back_up, restore
from state.ledger import Ledger, LedgerReader, create_or_open
from state.migrations import FIRST_VERSION, MIGRATIONS, SCHEMA_VERSION, migrate
from state.row_types import EnvironmentRow, EventRow
from state.transactions import sqlite_errors_translated

Made = Callable[..., Deployment]
NOW = 1_800_000_000.0
ROOT = Path(__file__).parents[2]


@pytest.fixture
def ledger(path: Path, facts: EnvironmentRow) -> Iterator[Ledger]:
    """A ledger that a test may close itself."""
    opened = create_or_open(path, facts)
    yield opened
    with suppress(sqlite3.ProgrammingError):
        opened.close()


def tables(path: Path) -> list[str]:
    with LedgerReader(path) as reader:
        return [deployment.table for deployment in reader.deployments()]


def test_a_backup_on_a_full_disk_names_the_backup_and_not_the_ledger(
    ledger: Ledger, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: LedgerReader, into: Path) -> None:
        with sqlite_errors_translated(into), closing(sqlite3.connect(into)) as copy:
            copy.execute("PRAGMA max_page_count = 1")
            copy.execute("CREATE TABLE a (b)")

    monkeypatch.setattr(LedgerReader, "copy_to", full)
    into = tmp_path / "b.db"
    with pytest.raises(LedgerUnavailable) as raised:
        back_up(path, into)
    assert (raised.value.summary, raised.value.remedy) == (
        f"{into} cannot be written: the disk is full", "free some space, or write to another disk",
    )  # fmt: skip
    assert not list(tmp_path.glob("b.db*"))


def put_back(file: Path, path: Path, facts: EnvironmentRow, now: float = NOW) -> Restored:
    return restore(
        file, path, project_id=facts.project_id, project=facts.project, environment=facts.environment, actor="ana",
        now=now,
    )  # fmt: skip


def test_a_backup_while_the_agent_writes_is_a_consistent_snapshot(ledger: Ledger, path: Path, tmp_path: Path) -> None:
    over = threading.Event()

    def write() -> None:
        while not over.is_set():
            ledger.add_event(EventRow(0, NOW, "orders", 1, "state", "x" * 2000))

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for n in range(5):
            into = tmp_path / f"backup {n}.db"
            assert back_up(path, into) == into.stat().st_size
            with LedgerReader(into) as copy:
                copy.check_integrity()
    finally:
        over.set()
        writer.join()
    assert {found.name for found in tmp_path.glob("backup*")} == {f"backup {n}.db" for n in range(5)}, "nothing beside"


def test_a_backup_overwrites_nothing(ledger: Ledger, path: Path, tmp_path: Path) -> None:
    into = tmp_path / "there"
    into.write_text("mine")
    with pytest.raises(Refused, match="exists already"):
        back_up(path, into)
    assert into.read_text() == "mine"


def test_an_incomplete_copy_gets_no_name(
    ledger: Ledger, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied = LedgerReader.copy_to

    def damaged(self: LedgerReader, into: Path) -> None:
        copied(self, into)
        body = into.read_bytes()
        into.write_bytes(body[: len(body) // 2] + b"\xff" * 4096 + body[len(body) // 2 + 4096 :])

    monkeypatch.setattr(LedgerReader, "copy_to", damaged)
    with pytest.raises(LedgerUnavailable, match="damaged"):
        back_up(path, tmp_path / "copy.db")
    assert not list(tmp_path.glob("copy.db*"))


def test_a_restore_installs_the_backup_and_keeps_the_replaced_ledger(
    ledger: Ledger, path: Path, facts: EnvironmentRow, deployment: Made, tmp_path: Path
) -> None:
    ledger.put_deployment(deployment("orders"))
    back_up(path, tmp_path / "monday.db")
    ledger.put_deployment(deployment("payments"))
    ledger.close()
    done = put_back(tmp_path / "monday.db", path, facts)
    assert done.kept is not None and done.kept.parent == path.parent
    assert (tables(path), tables(done.kept)) == (["orders"], ["orders", "payments"])
    with create_or_open(path, facts) as restored:
        assert restored.facts().epoch == done.epoch == 2
        assert (restored.audits()[0].action, restored.audits()[0].actor) == ("restore", "ana")
        assert restored.events()[0].summary == "restored from monday.db, epoch 2"


def test_a_restore_revives_no_unlock_that_was_ended(
    ledger: Ledger, path: Path, facts: EnvironmentRow, tmp_path: Path
) -> None:
    ledger.put_unlock(Unlock(1, "ana", "OPS-1", NOW, NOW + 1800, "boot", 0.0, 1800.0))
    back_up(path, tmp_path / "monday.db")
    assert ledger.end_unlock(1)
    ledger.close()
    put_back(tmp_path / "monday.db", path, facts)
    with LedgerReader(path) as restored:
        assert restored.unlocks() == ()


def test_entries_in_the_log_of_a_killed_agent_stay_with_the_old_ledger(
    ledger: Ledger, path: Path, facts: EnvironmentRow, deployment: Made, tmp_path: Path
) -> None:
    back_up(path, tmp_path / "monday.db")
    ledger.put_deployment(deployment("payments"))
    assert Path(f"{path}-wal").stat().st_size, "as after a kill: not in the database yet"
    done = put_back(tmp_path / "monday.db", path, facts)
    assert done.kept is not None
    assert (tables(path), tables(done.kept)) == ([], ["payments"])


def test_each_restore_begins_a_later_epoch_also_from_the_same_file(
    ledger: Ledger, path: Path, facts: EnvironmentRow, tmp_path: Path
) -> None:
    back_up(path, tmp_path / "monday.db")
    ledger.close()
    epochs = [put_back(tmp_path / "monday.db", path, facts).epoch for _ in range(3)]
    assert epochs == [2, 3, 4]


def test_a_ledger_that_is_gone_or_damaged_can_be_restored(
    ledger: Ledger, path: Path, facts: EnvironmentRow, deployment: Made, tmp_path: Path
) -> None:
    ledger.put_deployment(deployment("orders"))
    back_up(path, tmp_path / "monday.db")
    ledger.close()
    path.write_bytes(b"no ledger any more")
    done = put_back(tmp_path / "monday.db", path, facts)
    assert done.kept is not None and done.kept.read_bytes() == b"no ledger any more"
    path.unlink()
    assert put_back(tmp_path / "monday.db", path, facts).kept is None
    assert tables(path) == ["orders"]


def test_a_backup_of_an_older_version_is_migrated(
    path: Path, facts: EnvironmentRow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_or_open(path, facts).close()
    back_up(path, tmp_path / "old.db")
    newer = (*MIGRATIONS, "ALTER TABLE run ADD COLUMN more TEXT;")
    monkeypatch.setattr("state.ledger.SCHEMA_VERSION", SCHEMA_VERSION + 1)
    monkeypatch.setattr("state.ledger.migrate", lambda connection: migrate(connection, newer))
    assert put_back(tmp_path / "old.db", path, facts).epoch == 2
    assert sqlite3.connect(path).execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION + 1,)


@pytest.mark.parametrize("what", ["no database", "another project", "damaged", "in use"])
def test_an_incomplete_or_foreign_ledger_is_refused_without_changes(
    what: str, ledger: Ledger, path: Path, facts: EnvironmentRow, deployment: Made, tmp_path: Path
) -> None:
    for n in range(40):
        ledger.put_deployment(deployment(f"t{n}"))
    file = tmp_path / "file.db"
    back_up(path, file)
    ledger.close()
    before = path.read_bytes(), sorted(path.parent.iterdir())
    if what == "no database":
        file.write_text("text" * 2000)
    elif what == "another project":
        connection = sqlite3.connect(file)
        connection.execute("UPDATE facts SET project_id = 'other'")
        connection.commit()
        connection.close()
    elif what == "damaged":
        body = bytearray(file.read_bytes())
        body[len(body) // 2 : len(body) // 2 + 8192] = b"\xff" * 8192
        file.write_bytes(body)
    else:
        Path(f"{file}-wal").write_bytes(b"x")
    with pytest.raises(Refused) as refused:
        put_back(file, path, facts)
    assert str(file) in refused.value.summary and "restor" not in refused.value.summary
    assert (path.read_bytes(), sorted(path.parent.iterdir())) == before


@pytest.mark.parametrize(
    ("version", "remedy"),
    [
        (FIRST_VERSION - 1, "restore a newer backup, or rebuild the ledger from the data folder's records: "),
        (SCHEMA_VERSION + 1, "upgrade this program to the version of the agent that wrote it"),
        (SCHEMA_VERSION, "restore a backup that headgate backup made of this environment"),
    ],
)
def test_the_remedy_fits_the_schema_version_of_a_backup_that_is_refused(
    version: int, remedy: str, ledger: Ledger, path: Path, facts: EnvironmentRow, tmp_path: Path
) -> None:
    file = tmp_path / "file.db"
    back_up(path, file)
    ledger.close()
    with closing(sqlite3.connect(file)) as changed:
        changed.execute(f"PRAGMA user_version = {version}")
        changed.execute("UPDATE facts SET environment = 'other'")
        changed.commit()
    with pytest.raises(Refused) as refused:
        put_back(file, path, facts)
    assert refused.value.remedy.startswith(remedy) and "restoring" not in refused.value.sentence


def test_a_restore_that_is_killed_leaves_a_ledger_in_place(
    ledger: Ledger, path: Path, facts: EnvironmentRow, deployment: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    back_up(path, tmp_path / "monday.db")
    ledger.put_deployment(deployment("payments"))
    ledger.close()

    def killed(ledger: Path, now: float) -> None:
        keep(ledger, now)
        raise KeyboardInterrupt

    keep = backups._keep
    monkeypatch.setattr(backups, "_keep", killed)
    with pytest.raises(KeyboardInterrupt):
        put_back(tmp_path / "monday.db", path, facts)
    assert tables(path) == ["payments"]


def test_the_names_of_tables_survive(ledger: Ledger, path: Path, deployment: Made, tmp_path: Path) -> None:
    ledger.put_deployment(deployment("größe"))
    back_up(path, tmp_path / "b.db")
    assert tables(tmp_path / "b.db") == [TableName("größe")]


def events(path: Path) -> set[str]:
    with LedgerReader(path) as reader:
        return {event.summary for event in reader.events()}


DYING = """
import json, os, sys
from pathlib import Path
from state.backup import restore
step, backup, ledger, facts = sys.argv[1:]
left, facts = int(step), json.loads(facts)
def dying(move):
    def moves(*words, **more):
        global left
        if not left:
            os._exit(7)
        left -= 1
        return move(*words, **more)
    return moves
os.link, os.rename, os.replace = dying(os.link), dying(os.rename), dying(os.replace)
named = {name: facts[name] for name in ("project_id", "project", "environment")}
restore(Path(backup), Path(ledger), **named, actor="ana", now=1_800_000_000.0)
"""
"""Program that restores a backup and exits before the given move; it is not a fork, which could inherit gRPC threads.
"""


@pytest.mark.sampled
@pytest.mark.parametrize("step", range(6))
def test_a_restore_that_is_killed_leaves_the_old_ledger_or_the_new_one(
    step: int, path: Path, facts: EnvironmentRow, tmp_path: Path
) -> None:
    """The agent was killed before, so the newest entries of the old ledger are in its log. `step` moves are made."""
    old = create_or_open(path, facts)
    old.add_event(EventRow(0, NOW, "a", 1, "state", "in the backup"))
    back_up(path, tmp_path / "backup.db")
    old.add_event(EventRow(0, NOW, "a", 1, "state", "in the log alone"))
    killed = tmp_path / "killed"
    killed.mkdir()
    for part in ("", "-wal"):
        shutil.copyfile(f"{path}{part}", f"{killed / path.name}{part}")
    old.close()
    ledger = killed / path.name
    words = [str(step), str(tmp_path / "backup.db"), str(ledger), json.dumps(asdict(facts))]
    code = subprocess.run([sys.executable, "-c", DYING, *words], cwd=ROOT, check=False).returncode
    assert code in (0, 7)
    found = events(ledger)
    if code == 7:
        assert found == {"in the backup", "in the log alone"}
    else:
        assert "in the backup" in found and "in the log alone" not in found
    put_back(tmp_path / "backup.db", ledger, facts, now=NOW + 1)
    assert "in the log alone" not in events(ledger)
