"""Measuring lag: the results of a round, and what remains of earlier rounds."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from typing import Any

import pytest
from ledger_rows import deployment_row

from core.lag.liveness import usual_batch_s
from core.lag.slowness import Slowness, slowness_of
from core.model.errors import TryAgain
from core.model.names import TableName
from core.observed.time_left import Bound, Left, TimeLeft, lost, time_left_from_json, time_left_of
from core.observed.versions import Binding, Deployment
from core.ports.spark import ReportedQuery
from core.ports.storage import CheckpointState, MeasuredFiles, SourceLag, StatementFolders
from core.project.revision import RevisionTexts
from core.text.sentence import Fact
from pipelines.agent.context import AgentContext
from pipelines.agent.measurements import lag_collector
from pipelines.agent.measurements.lag_collector import LagCollector

A, LANDED = TableName("a"), TableName("landed")
SQL = "INSERT INTO a SELECT id FROM STREAM landed"


@dataclass
class Files:
    """A source that grows by 100 rows between measurements, and a statement that reads 10 of them."""

    looks: Iterator[int] = field(default_factory=count)

    def rows(self, folder: str, format: str) -> int | None:
        return None

    encoded: Mapping[str, str] = field(default_factory=dict)

    def encoded_lag(self) -> Mapping[str, str]:
        return {"source parquet /a": f"after look {self.looks}"}

    def restore_lag(self, encoded: Mapping[str, str]) -> None:
        self.encoded = encoded

    def lag(self, checkpoint: str, sources: tuple[tuple[int, TableName, str, str], ...]) -> tuple[SourceLag, ...]:
        n = next(self.looks)
        return (SourceLag(LANDED, n, 90 * n, 90 * n, True, 5.0 * n, produced_rows=100 * n, consumed_rows=10 * n),)

    def read(self, folder: str) -> CheckpointState:
        return CheckpointState(id="c", owner="ledger", batch=1)


@pytest.fixture
def measured(agent: AgentContext) -> AgentContext:
    """A running a@v1 that reads the external table landed."""
    deployment = deployment_row(
        texts=RevisionTexts("d", SQL, ""), checkpoint_id="c", trigger="5 seconds", query_id="q", run_id="r1"
    )
    external = replace(
        deployment,
        table=LANDED,
        version=0,
        revision="x",
        texts=RevisionTexts("d", "", ""),
        bindings=(),
        folder="/landed",
        external=True,
    )
    agent.ledger.put_deployment(external)
    agent.ledger.put_deployment(deployment)
    agent.files = Files()  # type: ignore[assignment]
    agent.clock = lambda: 1_800_000_000.0
    return agent


def rounds(agent: AgentContext, measurer: LagCollector, number: int) -> str:
    """Measure `number` times, five seconds apart, and return the last trend."""
    for _ in range(number):
        now = agent.clock() + 5.0
        agent.clock = partial(float, now)
        measurer.round(tuple(agent.ledger.deployments()), ())
    found: Any = {m.table: m for m in agent.ledger.measurements()}[A]
    return str(found.trend)


def test_a_new_agent_continues_from_the_samples_of_the_previous_one(measured: AgentContext) -> None:
    assert rounds(measured, LagCollector(measured), 5) == "unknown"
    assert rounds(measured, LagCollector(measured), 4) == "growing"


def test_a_statement_whose_source_does_not_answer_keeps_its_batch_and_says_why(measured: AgentContext) -> None:
    measurer = LagCollector(measured)
    rounds(measured, measurer, 1)

    class Silent(Files):
        def lag(self, checkpoint: str, sources: tuple[tuple[int, TableName, str, str], ...]) -> tuple[SourceLag, ...]:
            raise TryAgain("no broker of a:9092 answers", remedy="check that Kafka runs")

    measured.files = Silent()  # type: ignore[assignment]
    assert rounds(measured, measurer, 1) == "unknown"
    (found,) = (each for each in measured.ledger.measurements() if each.table == A)
    assert (found.lag_rows, found.why_unmeasured) == (None, "no broker of a:9092 answers")
    assert found.batch == 1


def test_the_lag_behind_other_sources_is_kept_if_one_does_not_answer(measured: AgentContext) -> None:
    silent = TryAgain("no broker of a:9092 answers", remedy="check that Kafka runs")

    class OneSilent(Files):
        def lag(self, checkpoint: str, sources: tuple[tuple[int, TableName, str, str], ...]) -> tuple[SourceLag, ...]:
            known = SourceLag(LANDED, 3, 90, 30, exact=True, oldest_s=5.0)
            return known, replace(known, table=TableName("clicks"), unmeasured=silent)

    measured.files = OneSilent()  # type: ignore[assignment]
    rounds(measured, LagCollector(measured), 1)
    (found,) = (each for each in measured.ledger.measurements() if each.table == A)
    assert (found.lag_rows, found.lag_files, found.behind_s, found.why_unmeasured) == (None, None, None, silent.summary)
    landed, clicks = found.sources
    assert (landed["table"], landed["rows"], landed["files"], landed["behind_s"]) == (LANDED, 30, 3, 5.0)
    assert (clicks["table"], clicks["rows"], clicks["files"], clicks["unmeasured"]) == (
        "clicks",
        None,
        None,
        silent.summary,
    )
    assert found.batch == 1


def test_a_statement_in_a_store_that_does_not_answer_is_not_read_again_and_delays_no_other(
    measured: AgentContext,
) -> None:
    remote = "hdfs://one:8020/checkpoints/b__v1"
    (local,) = (each for each in measured.ledger.deployments() if each.table == A)
    texts = RevisionTexts("d", SQL.replace("INTO a", "INTO b"), "")
    other = replace(local, table=TableName("b"), revision="s", texts=texts, checkpoint=remote, checkpoint_id="d")
    measured.ledger.put_deployment(other)

    class Frozen(Files):
        ahead: object = TryAgain(f"{remote} cannot be reached: no answer within 5 s")

        def measure_ahead(self, statements: Iterable[StatementFolders]) -> dict[str, object]:
            return {each.checkpoint: self.ahead for each in statements}

        def read(self, folder: str) -> CheckpointState:
            assert folder != remote
            return super().read(folder)

    measured.files = files = Frozen()  # type: ignore[assignment]
    measurer = LagCollector(measured)
    for ahead, lag, why in (
        (files.ahead, None, f"{remote} cannot be reached: no answer within 5 s"),
        (MeasuredFiles(CheckpointState("c", "ledger", 7), (SourceLag(LANDED, 3, 9, 30, True, 5.0),), None), 30, ""),
    ):
        files.ahead = ahead
        rounds(measured, measurer, 1)
        found = {each.table: each for each in measured.ledger.measurements()}
        assert (found[TableName("b")].lag_rows, found[TableName("b")].why_unmeasured or "") == (lag, why)
        assert found[A].lag_rows is not None


def test_a_new_agent_does_not_judge_a_stopped_statement_by_earlier_measurements(measured: AgentContext) -> None:
    assert rounds(measured, LagCollector(measured), 9) == "growing"

    class Stopped(Files):
        def lag(self, checkpoint: str, sources: tuple[tuple[int, TableName, str, str], ...]) -> tuple[SourceLag, ...]:
            n = next(self.looks)
            return (
                SourceLag(LANDED, n, 100 * n, 100 * n, True, 5.0 * n, produced_rows=90 + 100 * n, consumed_rows=90),
            )

    measured.files = Stopped(count(9))  # type: ignore[assignment]
    measured.ledger.update_deployment(A, 1, state="stopped", wanted="stopped", state_since=measured.clock() + 1.0)
    again = LagCollector(measured)
    assert [rounds(measured, again, 1) for _ in range(6)] == ["unknown"] * 5 + ["growing"]


def test_input_that_waits_longer_than_the_objective_is_a_fault_for_a_new_agent_too(
    measured: AgentContext,
) -> None:
    said = []
    measurer = LagCollector(measured)
    for _ in range(16):
        rounds(measured, measurer, 1)
        (found,) = (one for one in measured.ledger.statements() if one.table == A)
        said.append((found.behind_s, found.fault_word))
    # The objective for a trigger of 5 s is a minute; three measurements in a row make a fault.
    assert [fault for _, fault in said] == [""] * 15 + ["behind"]
    assert said[-1] == (75.0, "behind")
    rounds(measured, LagCollector(measured), 1)
    (found,) = (one for one in measured.ledger.statements() if one.table == A)
    assert found.fault_word == "behind"
    measured.ledger.update_deployment(A, 1, state="stopped", wanted="stopped")
    (found,) = (one for one in measured.ledger.statements() if one.table == A)
    assert found.fault_word == ""


def test_a_round_without_a_measured_lag_does_not_count_as_meeting_the_objective(measured: AgentContext) -> None:
    ages = iter([*[90.0] * 5, *[5.0] * 11, None, *[5.0] * 14])

    class Aged(Files):
        """A backlog of the scripted ages, which cannot be read where the age is None."""

        def lag(self, checkpoint: str, sources: tuple[tuple[int, TableName, str, str], ...]) -> tuple[SourceLag, ...]:
            if (age_s := next(ages)) is None:
                raise TryAgain("no broker of a:9092 answers", remedy="check that Kafka runs")
            return (SourceLag(LANDED, 1, 9, 9, True, age_s, produced_rows=100, consumed_rows=91),)

    measured.files = Aged()  # type: ignore[assignment]
    measurer = LagCollector(measured)
    rounds(measured, measurer, 28)
    assert [event.kind for event in measured.ledger.events(A)] == ["missed"]
    rounds(measured, measurer, 3)
    assert [event.kind for event in measured.ledger.events(A)] == ["met", "missed"]


@dataclass
class Skipping(Files):
    """A table over topics whose messages were deleted unread, as many as `lost`."""

    lost: int = 0

    def lag(self, checkpoint: str, sources: tuple[tuple[int, TableName, str, str], ...]) -> tuple[SourceLag, ...]:
        return (SourceLag(LANDED, 0, 0, 0, True, None, topics=True, skipped=self.lost),)


@pytest.mark.parametrize("stopped", [False, True])
def test_messages_that_are_skipped_are_recorded_once_also_if_they_were_lost_while_it_was_stopped(
    measured: AgentContext, stopped: bool
) -> None:
    measured.files = files = Skipping(lost=3)  # type: ignore[assignment]
    measurer = LagCollector(measured)
    if stopped:
        measured.ledger.update_deployment(A, 1, state="stopped")
        rounds(measured, measurer, 2)
        assert measured.ledger.events(A) == ()
        measured.ledger.update_deployment(A, 1, state="running")
        files.lost = 0
    rounds(measured, measurer, 3)
    (event,) = measured.ledger.events(A)
    assert event.detail == (
        "a@v1 skips 3 messages of landed that retention has deleted unread, by failOnDataLoss = false"
    )


@dataclass
class Expiring(Files):
    """A source whose position has the given time left in each round; the last value is repeated."""

    lefts: list[TimeLeft | None] = field(default_factory=list)
    missing: bool = False

    def lag(self, checkpoint: str, sources: tuple[tuple[int, TableName, str, str], ...]) -> tuple[SourceLag, ...]:
        left = self.lefts.pop(0) if len(self.lefts) > 1 else self.lefts[0]
        return (SourceLag(LANDED, 0, 0, 0, True, None, missing=self.missing, time_left=left),)


def hours(number: float) -> TimeLeft:
    bound = Bound.MESSAGE_AGE.of(topic="orders", kept_s=7 * 86_400.0, set="alter", raised=1)
    return TimeLeft(Left.LIMITED, bound, 3600 * number, 7 * 86_400.0)


def test_a_position_in_danger_is_recorded_once_until_it_is_safe_again(measured: AgentContext) -> None:
    gone = lost(Bound.MESSAGES_GONE, messages=3, topics=("orders",))
    measured.files = Expiring(lefts=[hours(30), hours(20), hours(19), hours(160), hours(5), gone])  # type: ignore[assignment]
    rounds(measured, LagCollector(measured), 8)
    said = [(event.summary, event.count, event.detail) for event in measured.ledger.events(A)]
    raised = "Kafka deletes messages of orders 7d after their time; raise its retention: alter retention.ms=1"
    words = "3 messages of orders were deleted before they were read"
    assert said == [
        ("HEADGATE_POSITION_LOST", 1, f"the position of a@v1 in landed: lost: {words}"),
        ("HEADGATE_POSITION_EXPIRES", 2, f"the position of a@v1 in landed: at least 5h: {raised}"),
    ]
    (line,) = (one for one in measured.ledger.statements() if one.table == A)
    found = time_left_of(line.time_left)
    assert found == replace(gone, at=measured.clock())
    statistics = measured.ledger.table_statistics()[A, 1]
    assert time_left_of(statistics.time_left) == found
    (source,) = next(m for m in measured.ledger.measurements() if m.table == A).sources
    assert time_left_from_json(source["time_left"]) == found


def test_the_holder_of_a_log_is_determined_once_a_round_for_all_readers_and_delays_no_lag(
    measured: AgentContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = measured.ledger.deployment(A, 1)
    assert reader is not None
    texts = RevisionTexts("d", SQL.replace("INTO a", "INTO b"), "")
    measured.ledger.put_deployment(replace(reader, table=TableName("b"), texts=texts, revision="b"))
    asked: list[str] = []

    def holder(agent: AgentContext, table: Deployment, by_version: object) -> Deployment:
        asked.append(table.table)
        if len(asked) > 1:
            raise TryAgain("not mounted", remedy="mount it")
        return reader

    monkeypatch.setattr(lag_collector, "holder_of_log", holder)
    measured.files = Expiring(lefts=[replace(hours(30), held_bytes=1)])  # type: ignore[assignment]
    measurer = LagCollector(measured)
    found = []
    for _ in range(2):
        rounds(measured, measurer, 1)
        lines = {line.table: line for line in measured.ledger.statements()}
        lefts = [time_left_of(lines[TableName(name)].time_left) for name in ("a", "b")]
        found.append([(left.held_by, left.held_version) for left in lefts if left is not None])
    assert asked == [LANDED, LANDED]
    assert found == [[("a", 1), ("a", 1)], [("", 0), ("", 0)]]


@pytest.mark.parametrize(
    ("external", "missing", "bound"),
    [
        (True, False, Bound.FILES_OF_OTHERS),
        (False, False, Bound.OWN_TABLE),
        (True, True, Bound.SOURCE_GONE),
    ],
)
def test_the_time_left_in_files_depends_on_who_writes_them(
    measured: AgentContext, external: bool, missing: bool, bound: Bound
) -> None:
    parent = measured.ledger.deployment(LANDED, 0)
    assert parent is not None
    measured.ledger.put_deployment(replace(parent, external=external, format="json"))
    measured.files = Expiring(lefts=[None], missing=missing)  # type: ignore[assignment]
    rounds(measured, LagCollector(measured), 1)
    (line,) = (one for one in measured.ledger.statements() if one.table == A)
    found = time_left_of(line.time_left)
    assert found is not None and found.bound.kind is bound


@pytest.mark.parametrize("declared_by", ["table", "environment"])
def test_a_declared_objective_replaces_the_default_minute(measured: AgentContext, declared_by: str) -> None:
    if declared_by == "table":
        texts = RevisionTexts("d", SQL, "objective: {behind: 5 minutes}\n")
        measured.ledger.update_deployment(A, 1, texts=texts, revision="patient")
    else:
        environment = replace(measured.layout.environment, objective="5 minutes")
        measured.layout = replace(measured.layout, environment=environment)
    rounds(measured, LagCollector(measured), 30)
    (found,) = (one for one in measured.ledger.statements() if one.table == A)
    assert (found.behind_s, found.fault_word) == (145.0, "")
    kept = measured.ledger.measurement(A, 1)
    assert kept is not None and kept.objective_s == 300.0


@pytest.mark.parametrize(
    ("state", "committed_ago_s", "rates"),
    [("running", 5.0, (20.0, 30.0)), ("running", 31.0, (0.0, 0.0)), ("stopped", 5.0, (None, None))],
)
def test_rates_of_a_statement_that_does_nothing_are_not_those_of_its_last_batch(
    measured: AgentContext, state: str, committed_ago_s: float, rates: tuple[float | None, float | None]
) -> None:
    class Quiet(Files):
        def read(self, folder: str) -> CheckpointState:
            return CheckpointState(id="c", owner="l", batch=1, committed_at=measured.clock() - committed_ago_s)

    measured.files = Quiet()  # type: ignore[assignment]
    measured.ledger.update_deployment(A, 1, state=state)
    sources = [{"inputRowsPerSecond": 20.0, "processedRowsPerSecond": 30.0}]
    query = ReportedQuery("a@v1", "q", "r1", True, progress={"batchId": 1, "sources": sources})
    LagCollector(measured).round(tuple(measured.ledger.deployments()), (query,))
    (found,) = (one for one in measured.ledger.measurements() if one.table == A)
    assert (found.in_rows_s, found.out_rows_s) == rates


def test_a_first_batch_has_no_rate_and_its_time_is_not_usual(measured: AgentContext) -> None:
    measured.ledger.update_deployment(A, 1, state="running")
    sources = [{"numInputRows": 90, "inputRowsPerSecond": 0.0, "processedRowsPerSecond": 30.0}]
    progress = {"batchId": 0, "batchDuration": 9000, "sources": sources}
    LagCollector(measured).round(
        tuple(measured.ledger.deployments()), (ReportedQuery("a@v1", "q", "r1", True, progress=progress),)
    )
    found = measured.ledger.measurement(A, 1)
    assert found is not None and (found.in_rows_s, found.out_rows_s) == (None, 30.0)
    assert usual_batch_s(measured.ledger.samples(A, 1)) is None


def test_a_file_every_ten_seconds_is_no_file_each_second(measured: AgentContext) -> None:
    measured.ledger.update_deployment(A, 1, state="running")
    collector, sources = LagCollector(measured), [{"numInputRows": 1, "inputRowsPerSecond": 1.0}]
    for batch in (1, 2):
        at = f"2026-11-28T00:00:{batch}0.000Z"
        progress = {"batchId": batch, "timestamp": at, "durationMs": {"addBatch": 200}, "sources": sources}
        query = ReportedQuery("a@v1", "q", "r1", True, progress=progress)
        collector.round(tuple(measured.ledger.deployments()), (query,))
    found = measured.ledger.measurement(A, 1)
    assert found is not None and found.in_rows_s == 0.1


def test_a_statement_whose_batches_outlast_its_trigger_says_why_until_its_query_starts_anew(
    measured: AgentContext,
) -> None:
    measured.ledger.update_deployment(A, 1, state="running")
    collector = LagCollector(measured)

    def reason_after(run: str, second: int, ms: int) -> Fact[Slowness] | None:
        durations = {"triggerExecution": ms, "addBatch": 100, "walCommit": ms - 100}
        progress = {"batchId": second, "timestamp": f"2026-11-28T00:00:{second:02}.000Z", "durationMs": durations}
        query = ReportedQuery("a@v1", "q", run, True, progress=progress)
        collector.round(tuple(measured.ledger.deployments()), (query,))
        found = measured.ledger.measurement(A, 1)
        return slowness_of(found.slow) if found is not None else None

    assert reason_after("r1", 10, 9000) is None, "its first batch"
    assert reason_after("r1", 10, 9000) is None, "the same event again"
    assert reason_after("r1", 20, 9000) == Slowness.COMMITTING.of(share=99, part_s=8.9, batch_s=9.0)
    assert reason_after("r2", 30, 9000) is None
    measured.ledger.update_deployment(A, 1, state="stopped")
    assert reason_after("r2", 40, 9000) is None


def test_a_new_agent_is_given_what_the_one_before_has_saved_every_five_minutes(measured: AgentContext) -> None:
    measured.monotonic = partial(next, count(0.0, 100.0))
    rounds(measured, LagCollector(measured), 2)
    assert measured.ledger.encoded_lag() == {}
    rounds(measured, LagCollector(measured), 4)
    LagCollector(measured)
    assert measured.files.encoded == measured.ledger.encoded_lag() != {}  # type: ignore[attr-defined]  # A double's.


@pytest.mark.parametrize(("running_s", "word"), [(20.0, False), (3_000.0, True)])
def test_a_statement_is_not_stalled_for_the_time_that_it_was_stopped(
    measured: AgentContext, running_s: float, word: bool
) -> None:
    class Waiting(Files):
        """A backlog from which nothing has been read for an hour."""

        def lag(self, checkpoint: str, sources: tuple[tuple[int, TableName, str, str], ...]) -> tuple[SourceLag, ...]:
            n = next(self.looks)
            return (SourceLag(LANDED, n, 90 + n, 90 + n, True, 1.0, produced_rows=100 + n, consumed_rows=10),)

        def read(self, folder: str) -> CheckpointState:
            return CheckpointState(id="c", owner="ledger", batch=1, committed_at=1_800_000_000.0 - 3_600)

    measured.files = Waiting()  # type: ignore[assignment]
    measurer = LagCollector(measured)
    rounds(measured, measurer, 12)
    measured.ledger.update_deployment(A, 1, started_at=measured.clock() + 5.0 - running_s)
    assert (rounds(measured, measurer, 1) == "stalled") == word


def test_a_round_judges_parents_before_their_readers_so_that_what_starves_one_starves_all_below_at_once(
    measured: AgentContext,
) -> None:
    """In order of names, readers would learn of a starved parent only in the next round: five seconds per level."""
    (own,) = (each for each in measured.ledger.deployments() if each.table == A)
    above = RevisionTexts("d", SQL.replace("INTO a", "INTO z"), "")
    parent = replace(own, table=TableName("z"), checkpoint="/z", revision="z", texts=above)
    measured.ledger.put_deployment(parent)
    measured.ledger.put_deployment(replace(own, checkpoint="/a", bindings=(Binding(parent.table, 1, True),)))
    asked: list[str] = []
    measured.files.lag = lambda checkpoint, sources: asked.append(checkpoint) or ()  # type: ignore[method-assign, assignment, func-returns-value]
    LagCollector(measured).round(tuple(measured.ledger.deployments()), ())
    assert asked == ["/z", "/a"]
