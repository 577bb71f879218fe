"""The ledger as a file: modes, journal, and every reason why it cannot be reached."""

import json
import os
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import pytest

from core.model.errors import LedgerUnavailable
from core.observed.versions import Deployment
from state import ledger as store
from state.ledger import Ledger, LedgerReader, create_or_open
from state.row_types import EnvironmentRow
from state.transactions import RESTORE_REMEDY


@contextmanager
def held(path: Path) -> Iterator[None]:
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    yield
    other.execute("ROLLBACK")
    other.close()


def test_modes_do_not_depend_on_the_umask(path: Path, facts: EnvironmentRow) -> None:
    before = os.umask(0o077)
    try:
        with create_or_open(path, facts):
            modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in (path.parent, *path.parent.iterdir())}
    finally:
        os.umask(before)
    assert modes == {"dev": 0o2750, "ledger.db": 0o640, "ledger.db-wal": 0o640, "ledger.db-shm": 0o640}


def test_clean_end_leaves_one_file_that_needs_no_log(path: Path, facts: EnvironmentRow) -> None:
    create_or_open(path, facts).close()
    assert [file.name for file in path.parent.iterdir()] == ["ledger.db"]
    assert sqlite3.connect(path).execute("PRAGMA journal_mode").fetchone() == ("delete",)


def test_end_while_somebody_reads_loses_nothing(path: Path, facts: EnvironmentRow) -> None:
    ledger = create_or_open(path, facts, busy_s=0.05)
    with LedgerReader(path) as reader:
        ledger.heartbeat(7.0)
        ledger.close()
        assert reader.facts().agent_seen_at == 7.0
    with LedgerReader(path) as reader:
        assert reader.facts().agent_seen_at == 7.0


def test_missing_ledger_is_unavailable_with_a_remedy(path: Path) -> None:
    with pytest.raises(LedgerUnavailable, match=str(path)) as caught:
        LedgerReader(path)
    assert caught.value.remedy


@pytest.mark.parametrize(
    "damage, says",
    [
        (lambda good: b"not a database at all, " * 100, "is not a database"),
        (lambda good: b"", "is empty: it was truncated"),
        (lambda good: good[:50], "is not a ledger"),
        (lambda good: good[: len(good) // 2], "is damaged"),
        (lambda good: good[:4096] + b"x" * (len(good) - 4096), "is damaged"),
    ],
)
def test_a_damaged_ledger_is_reported_in_one_way_and_left_alone(
    path: Path, facts: EnvironmentRow, damage: Callable[[bytes], bytes], says: str
) -> None:
    create_or_open(path, facts).close()
    content = damage(path.read_bytes())
    path.write_bytes(content)

    def read() -> None:
        with LedgerReader(path) as reader:
            reader.facts()

    for opening in (read, lambda: create_or_open(path, facts)):
        with pytest.raises(LedgerUnavailable, match=says) as caught:
            opening()
        assert caught.value.remedy == RESTORE_REMEDY
        assert path.read_bytes() == content


def test_a_ledger_appears_complete(path: Path, facts: EnvironmentRow, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(store, "_identify", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            create_or_open(path, facts)
    assert not path.exists()
    with create_or_open(path, facts) as ledger:
        assert ledger.facts().ledger_id == facts.ledger_id
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_locked_ledger_refuses_a_write_after_its_patience_and_still_reads(ledger: Ledger, path: Path) -> None:
    with held(path):
        with pytest.raises(LedgerUnavailable, match="is locked by another program") as caught:
            ledger.heartbeat(1.0)
        assert caught.value.remedy
        assert ledger.facts().agent_seen_at is None
    ledger.heartbeat(2.0)
    assert ledger.facts().agent_seen_at == 2.0


def test_reading_does_not_wait_for_a_thread_that_waits_to_write(path: Path, facts: EnvironmentRow) -> None:
    with create_or_open(path, facts, busy_s=120.0) as ledger:
        waiting = threading.Thread(target=ledger.heartbeat, args=(3.0,))
        with held(path):
            waiting.start()
            read = threading.Thread(target=ledger.deployments)
            read.start()
            read.join(timeout=60)
            assert not read.is_alive() and waiting.is_alive()
        waiting.join()
        assert ledger.facts().agent_seen_at == 3.0


def test_a_full_disk_refuses_the_whole_write_and_the_ledger_stays_usable(
    ledger: Ledger, deployment: Callable[..., Deployment]
) -> None:
    pages = ledger._connection.execute("PRAGMA page_count").fetchone()[0]
    ledger._connection.execute(f"PRAGMA max_page_count = {pages + 4}")
    with pytest.raises(LedgerUnavailable, match="the disk is full"):
        ledger.put_deployment(deployment("orders", compiled="x" * 100_000))
    assert ledger.deployments() == ()
    ledger._connection.execute("PRAGMA max_page_count = 1000000")
    ledger.put_deployment(deployment("orders"))
    assert len(ledger.deployments()) == 1


def test_failed_write_does_not_use_up_a_change_that_consoles_wait_for(
    ledger: Ledger, path: Path, deployment: Callable[..., Deployment]
) -> None:
    with LedgerReader(path) as reader:
        change, _ = reader.changed_since(0)
        with held(path), pytest.raises(LedgerUnavailable):
            ledger.put_deployment(deployment("a"))
        ledger.put_deployment(deployment("b"))
        _, lines = reader.changed_since(change)
    assert [line.table for line in lines] == ["b"]


def test_frame_sees_one_moment(ledger: Ledger, path: Path) -> None:
    with LedgerReader(path) as reader:
        with reader.frame():
            assert reader.facts().agent_seen_at is None
            ledger.heartbeat(5.0)
            assert reader.facts().agent_seen_at is None
        assert reader.facts().agent_seen_at == 5.0


def test_a_reader_reads_the_versions_again_only_after_a_write_also_from_a_frame(
    ledger: Ledger, path: Path, deployment: Callable[..., Deployment]
) -> None:
    ledger.put_deployment(deployment("a"))
    with LedgerReader(path) as reader:
        first = reader.deployments(include_deleted=True)
        assert reader.deployments(include_deleted=True) is first
        with reader.frame():
            assert reader.deployments() == first
            ledger.put_deployment(deployment("b", drop_after=1.0))
            assert reader.deployments(include_deleted=True) == first
        assert [row.table for row in reader.deployments()] == ["a"]
        assert reader.deployments(include_deleted=True) == ledger.deployments(include_deleted=True) != first


def test_reader_follows_a_ledger_that_was_replaced(path: Path, facts: EnvironmentRow, tmp_path: Path) -> None:
    create_or_open(path, facts).close()
    with create_or_open(tmp_path / "other.db", facts) as other:
        other.heartbeat(9.0)
    with LedgerReader(path) as reader:
        before = reader.data_version()
        (tmp_path / "other.db").replace(path)
        assert reader.data_version() != before
        assert reader.facts().agent_seen_at == 9.0


def test_a_writer_whose_file_was_removed_leaves_its_successor_alone(path: Path, facts: EnvironmentRow) -> None:
    before = create_or_open(path, facts)
    assert before.is_in_place()
    for file in list(path.parent.iterdir()):
        file.unlink()
    assert not before.is_in_place()
    with create_or_open(path, facts) as after:
        after.heartbeat(7.0)
        before.close()
        assert path.with_name("ledger.db-wal").exists()
        assert LedgerReader(path).facts().agent_seen_at == 7.0
    assert LedgerReader(path).facts().agent_seen_at == 7.0


def test_reader_cannot_write(ledger: Ledger, path: Path) -> None:
    with LedgerReader(path) as reader, reader._connected() as connection, pytest.raises(sqlite3.OperationalError):
        connection.execute("UPDATE facts SET pool = 'x'")


def test_threads_write_side_by_side(ledger: Ledger, deployment: Callable[..., Deployment]) -> None:
    def work(number: int) -> None:
        for version in range(1, 11):
            ledger.put_deployment(deployment(f"t{number}", version))
            ledger.heartbeat(float(version))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ledger.deployments()) == 60
    assert [d.version for d in ledger.deployments() if d.active] == [10] * 6


DIE_IN_THE_MIDDLE = """
import json, os, signal, sys
from pathlib import Path
from state.row_types import EnvironmentRow, PoolRow
from core.run.records import RunRow, StepRow
from state.ledger import create_or_open
from state.runs import insert_run
ledger = create_or_open(Path(sys.argv[1]), EnvironmentRow(**{**json.loads(sys.argv[2]), "pools": (PoolRow(),)}))
def write(n):
    steps = tuple(StepRow(i, "start", f"t{n}_{i}", 1, "pending") for i in range(1, 11))
    with ledger._transaction() as connection:
        insert_run(connection, RunRow(f"r{n}", "h", "ana", "running", n, None, steps), (), ())
write(1)
left = int(sys.argv[3])
def count(sql):
    global left
    left -= 1
    if not left:
        os.kill(os.getpid(), signal.SIGKILL)
ledger._connection.set_trace_callback(count)
write(2)
"""


@pytest.mark.sampled
@pytest.mark.parametrize("statement", [1, 2, 12, 13, 24, 32, 33])
def test_a_transaction_killed_before_any_statement_leaves_nothing(
    path: Path, facts: EnvironmentRow, statement: int
) -> None:
    script = [sys.executable, "-c", DIE_IN_THE_MIDDLE, str(path), json.dumps(asdict(facts)), str(statement)]
    assert subprocess.run(script).returncode == -9
    with LedgerReader(path) as reader:
        assert [(run.id, len(run.steps)) for run in reader.runs()] == [("r1", 10)]
    with create_or_open(path, facts) as ledger:
        assert [run.id for run in ledger.runs()] == ["r1"]
        assert ledger._connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
