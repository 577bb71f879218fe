"""Migrations: each is applied completely or not at all, and every field of a row has a column."""

import sqlite3
import uuid
from contextlib import closing
from dataclasses import fields, replace
from pathlib import Path

import pytest

from core.model.errors import VersionMismatch
from core.observed.table_statistics import Headroom
from core.observed.versions import Deployment, Measurement
from core.policy.unlocking import Unlock
from core.run.records import CheckResultRow, MigrationTicket, RunRow, StepRow
from state import migrations
from state.backup import back_up
from state.ledger import Ledger, LedgerReader, create_or_open, says_protected
from state.migrations import MIGRATIONS, SCHEMA_VERSION, migrate
from state.row_types import (
    ApprovalRow,
    AuditArchiveRow,
    AuditRow,
    ClockCheck,
    CommandRow,
    EnvironmentRow,
    EventRow,
    PlanRow,
    PolicyRow,
    PoolRow,
    SampleRow,
    StagedRow,
)

KEPT_ELSEWHERE = {"deployment": {"texts"}, "measurement": {"table", "version"}, "run": {"steps", "continued_by"},
                  "sample": {"at"}, "facts": {"pools"}}  # fmt: skip


def schema_of(connection: sqlite3.Connection) -> list[tuple[str, str]]:
    return connection.execute("SELECT name, sql FROM sqlite_schema ORDER BY name").fetchall()


@pytest.mark.parametrize(
    "kind, table",
    [(Deployment, "deployment"), (Measurement, "measurement"), (SampleRow, "sample"), (EventRow, "event"),
     (PlanRow, "plan"), (ApprovalRow, "approval"), (PolicyRow, "policy"), (RunRow, "run"), (StepRow, "step"),
     (CommandRow, "command"), (AuditRow, "audit"), (AuditArchiveRow, "audit_archive"), (StagedRow, "staged"),
     (EnvironmentRow, "facts"), (PoolRow, "pool"), (ClockCheck, "clock_check"), (Headroom, "headroom"),
     (CheckResultRow, "check_result"), (MigrationTicket, "migration_ticket"), (Unlock, "unlock")],
)  # fmt: skip
def test_every_field_of_a_row_has_its_column(kind: type, table: str) -> None:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    migrate(connection)
    columns = {name for _, name, *_ in connection.execute(f"PRAGMA table_info({table})")}
    assert {field.name for field in fields(kind)} - KEPT_ELSEWHERE.get(table, set()) <= columns


def test_migration_that_fails_leaves_no_trace_and_can_be_repeated() -> None:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    migrate(connection)
    before = schema_of(connection)
    with pytest.raises(sqlite3.OperationalError):
        migrate(connection, (*MIGRATIONS, "CREATE TABLE more (a);\nCREATE TABLE audit (b);"))
    assert schema_of(connection) == before
    assert connection.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION,)
    migrate(connection, (*MIGRATIONS, "CREATE TABLE more (a);"))
    assert connection.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION + 1,)


def test_versions_of_an_older_ledger_get_ids_of_their_own() -> None:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    older = next(n for n, script in enumerate(MIGRATIONS) if "version_id" in script)
    migrate(connection, MIGRATIONS[:older])
    filled = {name: 0 for _, name, _, _, _, key in connection.execute("PRAGMA table_info(deployment)") if not key}
    for table, external in (("a", 0), ("b", 0), ("landed", 1)):
        values = filled | {"table": table, "external": external}
        names = ", ".join(f'"{name}"' for name in values)
        marks = ", ".join("?" * len(values))
        connection.execute(f"INSERT INTO deployment ({names}) VALUES ({marks})", tuple(values.values()))
    migrate(connection)
    a, b, landed = (id for (id,) in connection.execute('SELECT version_id FROM deployment ORDER BY "table"'))
    assert a != b and landed == ""
    assert all((str(uuid.UUID(id)), uuid.UUID(id).version) == (id, 4) for id in (a, b))


def test_ledger_newer_than_the_program_is_refused_naming_both(
    path: Path, facts: EnvironmentRow, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_or_open(path, facts).close()
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    connection.close()
    for opening in (lambda: create_or_open(path, facts), lambda: LedgerReader(path)):
        with pytest.raises(
            VersionMismatch,
            match=f"schema version {SCHEMA_VERSION + 1}; this program supports versions up to {SCHEMA_VERSION}",
        ):
            opening()


def test_ledger_of_an_older_agent_is_refused_until_the_next_agent_migrates_it(
    path: Path, facts: EnvironmentRow, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_or_open(path, facts).close()
    newer = (*MIGRATIONS, "ALTER TABLE run ADD COLUMN more TEXT;")
    monkeypatch.setattr("state.ledger.SCHEMA_VERSION", SCHEMA_VERSION + 1)
    monkeypatch.setattr("state.ledger.migrate", lambda connection: migrate(connection, newer))
    with pytest.raises(VersionMismatch, match="written by an older agent") as caught:
        LedgerReader(path)
    assert "headgate down --keep-pool" in caught.value.remedy
    create_or_open(path, facts).close()
    with LedgerReader(path) as reader:
        assert reader.facts() == facts


def test_a_ledger_from_before_the_first_release_is_refused_everywhere_and_left_unchanged(
    path: Path, facts: EnvironmentRow, tmp_path: Path
) -> None:
    create_or_open(path, facts).close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("ALTER TABLE run RENAME COLUMN continues TO gone")
        connection.execute("PRAGMA user_version = 36")
    before = path.read_bytes()
    openings = (lambda: create_or_open(path, facts), lambda: LedgerReader(path), lambda: back_up(path, tmp_path / "b"))
    for opening in openings:
        with pytest.raises(VersionMismatch, match="schema version 36, from before the first release") as caught:
            opening()
        assert "headgate adopt" in caught.value.remedy and "headgate demo" in caught.value.remedy
    assert path.read_bytes() == before and says_protected(path) is facts.protected and not (tmp_path / "b").exists()


def test_ledger_of_another_project_is_refused(path: Path, facts: EnvironmentRow) -> None:
    create_or_open(path, facts).close()
    with pytest.raises(VersionMismatch, match="belongs to project 0b8e"):
        create_or_open(path, replace(facts, project_id="other"))


def test_ledger_keeps_its_id_and_follows_the_project(path: Path, facts: EnvironmentRow) -> None:
    create_or_open(path, facts).close()
    with create_or_open(path, replace(facts, ledger_id="new", project="pizza", protected=True)) as ledger:
        assert ledger.facts() == replace(facts, project="pizza", protected=True)
    with create_or_open(path, facts) as ledger:
        assert ledger.facts() == replace(facts, protected=True), "a file took protection away"


def test_file_gives_freed_pages_back(ledger: Ledger, path: Path) -> None:
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA auto_vacuum").fetchone() == (2,)
    assert connection.execute("PRAGMA application_id").fetchone() == (migrations.APPLICATION_ID,)
    connection.close()


def test_the_one_pool_of_an_older_ledger_keeps_its_session_and_state() -> None:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    older = MIGRATIONS.index(next(each for each in MIGRATIONS if "CREATE TABLE pool" in each))
    migrate(connection, MIGRATIONS[:older])
    known = {"pool": "eu", "pool_state": "up", "pool_detail": "d", "pool_generation": 7, "session_id": "s-1"}
    texts = {"ledger_id": "l", "project_id": "p", "project": "p", "environment": "dev", "doubt": ""}
    numbers = {"one": 1, "protected": 0, "epoch": 1, "mark": 0, "served": 0}
    row = {**known, **texts, **numbers}
    connection.execute(
        f"INSERT INTO facts ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})", tuple(row.values())
    )
    migrate(connection)
    columns = "place, n, name, state, detail, generation, session_id"
    assert connection.execute(f"SELECT {columns} FROM pool").fetchall() == [("", 0, "eu", "up", "d", 7, "s-1")]
    assert not {name for _, name, *_ in connection.execute("PRAGMA table_info(facts)")} & known.keys()
