"""The serving version, over every combination of states of a table's versions, as seen by every consumer."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ledger_rows import deployment_row, environment_row, statement_line

from core.model.errors import UsageError
from core.model.names import TableName
from core.observed.versions import (
    INTERVAL_S,
    STALE_S,
    Binding,
    Deployment,
    Measurement,
    bindings_of,
    heartbeat_age_s,
    is_stale,
    serving_version,
    serving_versions,
)
from core.project.revision import RevisionTexts
from pipelines.agent.context import AgentContext
from pipelines.agent.statement_locks import StatementLocks
from pipelines.agent.statements.statement_control import StatementControl
from state.emergency_journal import EmergencyJournal
from state.ledger import LedgerReader, create_or_open
from state.ledger_snapshot import SnapshotCache
from state.planner_input_from_registry import observe
from tests.terminal.ledger_under_load import place_of
from tui.presentation.view.ledger_view import make_ledger_view
from tui.screens.backend import ConsoleBackend
from tui.services.deployed_statements import statement_details
from tui.services.environment_service import EnvironmentService

FACTS = environment_row(project="shop", agent_pid=1, agent_started_at=1.0, agent_seen_at=1.0)


@dataclass(frozen=True)
class Stands:
    """The flags of one version."""

    active: bool
    deleted: bool
    started: bool


WAYS = [Stands(*each) for each in product((False, True), repeat=3) if not (each[0] and each[1])]
"""All combinations of flags. A tombstone removes the pointer, so a deleted version is never active."""


def ways_of(count: int) -> Iterator[tuple[Stands, ...]]:
    return (ways for ways in product(WAYS, repeat=count) if sum(way.active for way in ways) <= 1)


CASES: dict[TableName, tuple[Stands, ...]] = {
    TableName(f"t{place}"): ways for place, ways in enumerate((*ways_of(1), *ways_of(2)))
}


def expected(ways: tuple[Stands, ...]) -> int:
    """Return the serving version, found by narrowing the versions down by one criterion after another."""
    left = dict(enumerate(ways, 1))
    for holds in (lambda way: not way.deleted, lambda way: way.active, lambda way: way.started):
        left = {version: way for version, way in left.items() if holds(way)} or left
    return max(left)


def deployment(table: TableName, version: int, way: Stands) -> Deployment:
    return Deployment(
        table=table, version=version, product="p", layer="fact", owner="", revision="r", texts=RevisionTexts(),
        compiled="", compiled_ddl="", columns=(), format="parquet", folder="/t", checkpoint="/c", checkpoint_id="",
        trigger="1 second", mode="append", stateful=False, wanted="running", state="running", state_since=1.0,
        active=way.active, bindings=(Binding(TableName("landed"), 0, True),),
        started_at=2.0 if way.started else None, drop_after=9e9 if way.deleted else None,
    )  # fmt: skip


DEPLOYMENTS = [deployment(table, n, way) for table, ways in CASES.items() for n, way in enumerate(ways, 1)]
SERVING = {table: expected(ways) for table, ways in CASES.items()}
THERE = {table: SERVING[table] for table, ways in CASES.items() if not all(way.deleted for way in ways)}
"""The expected serving versions, without tables whose versions are all tombstones."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger with every case as a table of its own."""
    made: Path = tmp_path_factory.mktemp("serving")
    with create_or_open(made / "ledger.db", FACTS) as ledger:
        ledger._connection.execute("PRAGMA synchronous = OFF")
        for each in DEPLOYMENTS:
            ledger.put_deployment(each)
        ledger.put_measurements(Measurement(d.table, d.version, at=3.0, lag_rows=d.version) for d in DEPLOYMENTS)
    return made


@pytest.fixture(scope="module")
def reader(folder: Path) -> Iterator[LedgerReader]:
    with LedgerReader(folder / "ledger.db") as opened:
        yield opened


@pytest.fixture(scope="module")
def console(folder: Path) -> Iterator[ConsoleBackend]:
    service = EnvironmentService(place_of(folder), {})
    yield ConsoleBackend(service)
    service.close()


def found(versions: Any) -> dict[TableName, int]:
    return {one.table: one.version for one in versions}


def test_every_combination_of_states_has_one_answer_in_any_order() -> None:
    assert found(serving_versions(DEPLOYMENTS).values()) == SERVING
    assert found(serving_versions(reversed(DEPLOYMENTS)).values()) == SERVING
    for ways in (*ways_of(1), *ways_of(2), *ways_of(3)):
        versions = [deployment(TableName("a"), n, way) for n, way in enumerate(ways, 1)]
        for order in (versions, versions[::-1]):
            one = serving_version(order)
            assert one is not None and one.version == expected(ways), ways
    assert serving_version([]) is None


def test_the_version_that_the_planner_observes(reader: LedgerReader) -> None:
    observed = observe(reader.deployments(include_deleted=True))
    assert {table: seen.version for table, seen in observed.items() if seen.state != "absent"} == THERE


def test_the_version_that_the_inventory_and_the_command_line_show(reader: LedgerReader) -> None:
    assert found(SnapshotCache(reader).snapshot().serving) == THERE
    shown = {table: statement_details(reader, table, since=0.0) for table in CASES}
    assert {table: one.serving.version for table, one in shown.items() if one.serving} == SERVING
    assert {table: one.measurement.version for table, one in shown.items() if one.measurement} == SERVING


def test_the_version_that_the_agent_stops_and_peeks_at(reader: LedgerReader, tmp_path: Path) -> None:
    world: Any = SimpleNamespace(ledger=reader, locks=StatementLocks())
    lane = StatementControl(world, EmergencyJournal(tmp_path / "emergency.jsonl"))
    assert found(lane._find(tuple(THERE))) == THERE
    assert {t: one.version for t in CASES if (one := AgentContext.serving(world, t)) is not None} == THERE
    for table in CASES.keys() - THERE.keys():
        with pytest.raises(UsageError):
            lane._find((table,))


def test_the_version_that_the_console_shows(console: ConsoleBackend) -> None:
    world = make_ledger_view(console.snapshot(None))
    assert found(world.statements.values()) == THERE
    assert all(one.version != THERE[t] for t, others in world.others.items() for one in others)
    details = {table: console.detail(table) for table in CASES}
    assert {table: one.measurement.version for table, one in details.items() if one.measurement} == SERVING


def test_data_is_stale_after_three_intervals_or_when_nobody_writes() -> None:
    assert STALE_S == 3 * INTERVAL_S
    assert [heartbeat_age_s(seen, 10.0) for seen in (None, 4.0, 11.0)] == [None, 6.0, 0.0]
    pids, ages = (None, 7), (None, 0.0, STALE_S, STALE_S + 0.1)
    assert [age for pid, age in product(pids, ages) if not is_stale(age, pid)] == [0.0, STALE_S]


def test_bindings_are_decoded_together_as_one_by_one() -> None:
    some = (Binding(TableName("a"), 1, True), Binding(TableName("b"), 0, False))
    lines = [statement_line(deployment_row(bindings=bindings)) for bindings in ((), some, some[:1])]
    assert bindings_of(lines) == [line.bindings for line in lines] == [(), some, some[:1]]
