"""Copies of tables of a database: when they are due, what a failure leaves, and which files are deleted."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from delta_files import WrittenLog
from ledger_rows import deployment_row, external_row

from core.model.errors import EngineRefused, PoolUnreachable
from core.model.states import State
from core.observed.versions import Binding
from core.ports.storage import CheckpointState
from core.project.revision import RevisionTexts
from core.sql.compiler import compile_ddl
from core.sql.ddl_reader import read_ddl
from core.sql.jdbc_tables import with_copy
from pipelines.agent.tables import database_copies
from pipelines.agent.tables.database_copies import DatabaseCopies

OPTIONS = "url 'jdbc:postgresql://db/shop', user 'reader', dbtable 'products'"
NOW = 2e9


@pytest.fixture
def written(tmp_path: Path) -> WrittenLog:
    """The existing copy, without any commit yet."""
    return WrittenLog(tmp_path)


@pytest.fixture
def copied(agent: Any, written: WrittenLog, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Results of copying the registered table in sequence: each is a commit, or an error to raise instead."""
    text = f"CREATE TABLE products (id BIGINT) USING jdbc OPTIONS ({OPTIONS}, refresh '60 seconds');"
    ddl, _ = read_ddl(text, "d.sql")
    assert ddl is not None
    compiled = compile_ddl(with_copy(ddl, f"{written.folder}/delta"), "products", ddl.location)
    row = external_row("products", texts=RevisionTexts(text, "", ""), format="jdbc", compiled_ddl=compiled)
    agent.ledger.put_deployment(row)
    found: list[object] = []

    def copy(context: Any, table: Any) -> float:
        if found and isinstance(found[-1], Exception):
            raise found[-1]
        found.append(table.table)
        written.commit(1, tag=str(context.clock()))
        return float(context.clock())

    monkeypatch.setattr(database_copies, "_copy", copy)
    return found


class Clock:
    """The wall clock and the monotonic clock of an agent; each moves only when a test moves it."""

    def __init__(self, agent: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.wall, self.steady = NOW, 0.0
        self.agent = replace(agent, clock=lambda: self.wall)
        monkeypatch.setattr("time.monotonic", lambda: self.steady)

    def pass_s(self, seconds: float) -> None:
        self.wall, self.steady = self.wall + seconds, self.steady + seconds


@pytest.fixture
def clock(agent: Any, monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(agent, monkeypatch)


def test_a_copy_is_made_when_its_interval_has_passed_since_the_last_one(
    copied: list[object], clock: Clock, written: WrittenLog
) -> None:
    written.commit(1, tag=str(NOW - 20))
    copies = DatabaseCopies(clock.agent)
    copies.round()
    assert copied == [] and clock.agent.ledger.deployment("products", 0).started_at == NOW - 20
    clock.pass_s(39)
    copies.round()
    assert copied == []
    clock.pass_s(2)
    for _ in range(2):
        copies.round()
    assert copied == ["products"] and clock.agent.ledger.deployment("products", 0).started_at == NOW + 41


@pytest.mark.parametrize("jump_s", [-86400.0, 86400.0])
def test_a_clock_that_is_set_neither_delays_nor_repeats_a_copy(
    copied: list[object], clock: Clock, jump_s: float
) -> None:
    copies = DatabaseCopies(clock.agent)
    copies.round()
    clock.wall += jump_s
    copies.round()
    assert copied == ["products"]
    clock.pass_s(60)
    copies.round()
    assert copied == ["products", "products"]
    # A new agent knows only the time of the commit.
    clock.wall -= 2 * jump_s
    other = DatabaseCopies(clock.agent)
    for _ in range(2):
        other.round()
    clock.pass_s(60)
    other.round()
    assert len(copied) == (3 if jump_s > 0 else 4)


def test_a_failure_is_reported_once_keeps_the_copy_and_is_tried_again(copied: list[object], clock: Clock) -> None:
    copies = DatabaseCopies(clock.agent)
    copies.round()
    copied.append(EngineRefused("No space left on device", remedy="free some"))
    for _ in range(3):
        clock.pass_s(61)
        copies.round()
    failed = clock.agent.ledger.deployment("products", 0)
    assert failed.error.startswith("products was not refreshed, and readers use the rows of the last copy: No space")
    assert (failed.error_class, failed.started_at) == ("HEADGATE_NOT_REFRESHED", NOW)
    assert len([e for e in clock.agent.ledger.events() if e.summary == "HEADGATE_NOT_REFRESHED"]) == 1
    copied[-1] = PoolUnreachable("gone")
    clock.pass_s(31)
    copies.round()
    assert clock.agent.ledger.deployment("products", 0).error == failed.error, "the pool has its own fault"
    copied.pop()
    clock.pass_s(31)
    copies.round()
    now = clock.agent.ledger.deployment("products", 0)
    assert (now.error, now.error_class, now.started_at) == ("", "", clock.wall)


@pytest.mark.parametrize(
    ("state", "batch", "planned", "committed_at", "kept"),
    [
        (State.RUNNING, 5, 5, 0.0, False),
        (State.RUNNING, 5, 6, NOW + 61, False),
        (State.RUNNING, 5, 6, NOW + 59, True),
        (State.RUNNING, None, 0, None, True),
        (State.UNKNOWN, 5, 6, NOW, True),
        (State.FAILED, 5, 6, NOW, False),
    ],
)
def test_a_file_is_kept_while_a_batch_may_read_it(
    copied: list[object], clock: Clock, written: WrittenLog, monkeypatch: pytest.MonkeyPatch, state: State,
    batch: int | None, planned: int, committed_at: float | None, kept: bool,
) -> None:  # fmt: skip
    bindings = (Binding("products", 0, False),)
    clock.agent.ledger.put_deployment(deployment_row(bindings=bindings, state=state, checkpoint="c"))
    found = CheckpointState("id", "ledger", batch, planned, committed_at)
    monkeypatch.setattr(clock.agent.files, "read", lambda checkpoint: found)
    folder = written.folder / "delta"

    def commit(at: float, *removes: str) -> str:
        (path,) = written.commit(1, at=at, removes=removes)
        (folder / path).touch()
        os.utime(folder / path, (at, at))
        return path

    first = commit(NOW)
    second = commit(NOW + 60, first)
    third = commit(NOW + 120, second)
    for name, at in (("left-by-a-kill.parquet", NOW), ("being-written.parquet", NOW + 119)):
        (folder / name).touch()
        os.utime(folder / name, (at, at))
    database_copies._remove_replaced(clock.agent, clock.agent.ledger.deployment("products", 0))
    there = {path.name for path in folder.glob("*.parquet")}
    assert there == {second, third, "being-written.parquet", *((first, "left-by-a-kill.parquet") if kept else ())}
