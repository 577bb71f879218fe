"""Desired against actual state: lost queries are restarted, failures reported, and unfinished work is left alone."""

from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from agent_scenarios import held_elsewhere, put_made
from ledger_rows import deployment_row, sample_row

from core.model.errors import EngineRefused, LedgerUnavailable, NotAdopted, SparkFailure
from core.model.names import TableName
from core.observed.cluster import ClusterFault
from core.observed.versions import Deployment
from core.ports.spark import QueryStart, ReportedQuery
from core.project.revision import RevisionTexts
from pipelines.agent.context import AgentContext, AlwaysMatchingIdentity
from pipelines.agent.reconciler import UNKNOWN_TOLD, BeforeRound, Reconciler
from pipelines.agent.statements.deployment_lifecycle import start
from state.emergency_journal import EmergencyJournal, JournalledStop
from state.ledger import Ledger
from state.planner_input_from_registry import observe

A = TableName("a")
START = QueryStart("a@v1", "SELECT 1", "a__v1", "parquet", "/c/a__v1", "1 second")


@pytest.fixture
def reconciler(agent: AgentContext, tmp_path: Path) -> Reconciler:
    return Reconciler(agent, EmergencyJournal(tmp_path / "emergency.jsonl"))


def deploy(agent: AgentContext, **changed: Any) -> Deployment:
    """Write a running a@v1 whose checkpoint belongs to this ledger."""
    return put_made(agent, deployment_row(**({"query_id": "q", "run_id": "r1"} | changed)))


def reconcile(
    reconciler: Reconciler, *, ended: tuple[ReportedQuery, ...] = (), before: BeforeRound | None = None
) -> str:
    agent = reconciler.agent
    before = before or BeforeRound.of(agent)
    queries = agent.pools.default.connection().queries.active()
    reconciler.round(before, queries, ended)
    found = agent.ledger.deployment(A, 1)
    assert found is not None
    return found.state


def test_a_query_lost_with_its_session_is_started_again_and_counted(
    agent: AgentContext, pool: Any, reconciler: Reconciler
) -> None:
    deploy(agent)
    assert reconcile(reconciler) == "starting"
    assert pool.starts == ["a@v1"]
    found = agent.ledger.deployment(A, 1)
    assert found is not None and found.restarts == 1


def test_a_query_that_ended_with_headgate_down_is_resumed_and_not_counted_as_an_error(
    agent: AgentContext, pool: Any, reconciler: Reconciler
) -> None:
    deploy(agent, wanted="running", state="stopped")
    assert reconcile(reconciler) == "starting"
    assert pool.starts == ["a@v1"]
    found = agent.ledger.deployment(A, 1)
    assert found is not None and found.restarts == 0
    (event,) = agent.ledger.events()
    assert (event.summary, event.detail.partition(":")[0]) == ("stopped → starting", "resumed from its checkpoint")


def test_a_version_that_is_being_started_is_left_to_the_next_round(
    agent: AgentContext, pool: Any, reconciler: Reconciler
) -> None:
    deploy(agent)
    with held_elsewhere(agent, (A, 1)):
        before = BeforeRound.of(agent)
        assert reconcile(reconciler) == "running", "it is held now"
    assert reconcile(reconciler, before=before) == "running", "it was held when the pool was asked"
    assert pool.starts == []


def test_a_version_that_was_started_after_the_pool_was_asked_is_left_alone(
    agent: AgentContext, pool: Any, reconciler: Reconciler
) -> None:
    deploy(agent)
    before = BeforeRound.of(agent)
    agent.ledger.update_deployment(A, 1, run_id="r2")
    reconciler.round(before, (), ())
    assert pool.starts == []


@pytest.mark.parametrize("wanted", ["running", "stopped"])
@pytest.mark.parametrize("state", ["running", "stopped", "failed", "unknown"])
@pytest.mark.parametrize("listed", [True, False])
def test_a_version_that_was_given_another_text_after_the_pool_was_asked_is_left_to_the_next_round(
    wanted: str, state: str, listed: bool, agent: AgentContext, pool: Any, reconciler: Reconciler
) -> None:
    """A step has written the new SQL, and its start was refused."""
    deploy(agent, wanted=wanted, state=state, run_id="r1")
    before, queries = BeforeRound.of(agent), ReportedQuery("a@v1", "q", "r1", True)
    agent.files.prepare("/c/a__v1.seam", {})
    agent.ledger.update_deployment(A, 1, compiled="SELECT 2", checkpoint="/c/a__v1.seam")
    left = agent.ledger.deployment(A, 1)
    reconciler.round(before, (queries,) if listed else (), ())
    assert (pool.starts, pool.stops) == ([], [])
    assert agent.ledger.deployment(A, 1) == left


def test_a_start_uses_the_text_that_the_ledger_holds_under_the_lock(
    agent: AgentContext, pool: Any, reconciler: Reconciler
) -> None:
    read = deploy(agent)
    agent.ledger.update_deployment(A, 1, compiled="SELECT 2")
    start(agent, read, stops=0)
    assert pool.running["a@v1"].select == "SELECT 2"


def test_a_query_that_ended_with_an_error_has_failed_and_is_not_started_again(
    agent: AgentContext, pool: Any, reconciler: Reconciler
) -> None:
    deploy(agent)
    ended = ReportedQuery("a@v1", "q", "r1", False, error_class="DIVIDE_BY_ZERO", error="Division by zero.")
    assert reconcile(reconciler, ended=(ended,)) == "failed"
    assert reconcile(reconciler) == "failed"
    assert pool.starts == []
    (event,) = [e for e in agent.ledger.events() if e.kind == "exception"]
    assert (event.summary, event.detail) == ("DIVIDE_BY_ZERO", "Division by zero.")


@pytest.mark.parametrize(
    ("error_class", "other", "told", "said"),
    [
        (
            "DELTA_METADATA_MISMATCH",
            "id-2",
            "HEADGATE_TABLE_REPLACED",
            "the table of a@v1 was re-created: its id is id-2 and was id-1; headgate plan",
        ),
        ("DELTA_METADATA_MISMATCH", "id-1", "DELTA_METADATA_MISMATCH", "A mismatch."),
        ("DIVIDE_BY_ZERO", "id-2", "DIVIDE_BY_ZERO", "A mismatch."),
    ],
)
def test_a_query_that_ended_over_a_replaced_table_names_it_with_a_remedy(
    error_class: str,
    other: str,
    told: str,
    said: str,
    agent: AgentContext,
    pool: Any,
    reconciler: Reconciler,
) -> None:
    found = deploy(agent, format="delta", table_id="id-1")
    agent.files.ids[found.folder] = other  # type: ignore[attr-defined]  # Scripted.
    ended = ReportedQuery("a@v1", "q", "r1", False, error_class=error_class, error="A mismatch.")
    assert reconcile(reconciler, ended=(ended,)) == "failed"
    row = agent.ledger.deployment(A, 1)
    assert row is not None and row.error_class == told and row.error.startswith(said)


@pytest.mark.parametrize(
    ("failure", "said"),
    [
        (SparkFailure.WORKER_DIED, "HEADGATE_WORKER_LOST"),
        (SparkFailure.WORKER_LATE, "HEADGATE_WORKER_LOST"),
        (SparkFailure.WRITTEN_MEANWHILE, "HEADGATE_WRITTEN_MEANWHILE"),
        (SparkFailure.DATABASE_LOST, "HEADGATE_DATABASE_LOST"),
    ],
)
def test_a_transient_failure_is_reported_and_the_statement_restarted_after_growing_pauses(
    failure: SparkFailure, said: str, agent: AgentContext, pool: Any, tmp_path: Path
) -> None:
    now = [1000.0]
    reconciler = Reconciler(replace(agent, monotonic=lambda: now[0]), EmergencyJournal(tmp_path / "emergency.jsonl"))
    deploy(agent)
    for ends, pause in enumerate((0, 15, 60, 120), 1):
        row = agent.ledger.deployment(A, 1)
        assert row is not None
        pool.running.clear()
        ended = ReportedQuery("a@v1", "q", row.run_id, False, error="It was lost.", failure=failure)
        now[0] += 1
        state = reconcile(reconciler, ended=(ended,))
        if pause:
            row = agent.ledger.deployment(A, 1)
            assert row is not None and state == "degraded" and len(pool.starts) == ends - 1
            times = f"it ended {ends} times in 10 minutes, and the next start follows after {pause} s"
            assert (row.error_class, row.error) == (said, f"It was lost; {times}")
            now[0] += pause - 0.5
            assert reconcile(reconciler) == "degraded" and len(pool.starts) == ends - 1
            now[0] += 0.5
            state = reconcile(reconciler)
        assert state == "starting" and len(pool.starts) == ends
    row = agent.ledger.deployment(A, 1)
    assert row is not None
    pool.running.clear()
    assert reconcile(reconciler, ended=(replace(ended, run_id=row.run_id),)) == "failed"
    row = agent.ledger.deployment(A, 1)
    assert row is not None and (row.restarts, row.error) == (4, "It was lost.")
    lost = [e for e in agent.ledger.events() if e.summary == said]
    assert len(lost) >= 1 and lost[0].detail == "It was lost."
    assert len(pool.starts) == 4


def test_a_python_process_that_died_is_reported_with_the_functions_of_the_statement(
    agent: AgentContext, pool: Any, reconciler: Reconciler
) -> None:
    texts = RevisionTexts(ddl="", dml="SELECT score__py_0123abcd(score__py_0123abcd(a)), rate__py_volatile_0123abcd(a)")
    row = deploy(agent, texts=texts)
    died = ReportedQuery("a@v1", "q", row.run_id, False, error="It died.", failure=SparkFailure.WORKER_DIED)
    assert reconcile(reconciler, ended=(died,)) == "starting"
    (event,) = [each for each in agent.ledger.events() if each.summary == "HEADGATE_WORKER_LOST"]
    assert event.detail == "It died; the statement calls rate.py and score.py, which may have ended it"


def test_a_query_lost_after_a_transient_end_is_restarted_without_a_pause(
    agent: AgentContext, pool: Any, tmp_path: Path
) -> None:
    now = [1000.0]
    reconciler = Reconciler(replace(agent, monotonic=lambda: now[0]), EmergencyJournal(tmp_path / "emergency.jsonl"))
    deploy(agent)
    for _ in range(2):
        row = agent.ledger.deployment(A, 1)
        assert row is not None
        pool.running.clear()
        died = ReportedQuery("a@v1", "q", row.run_id, False, error="It died.", failure=SparkFailure.WORKER_DIED)
        reconcile(reconciler, ended=(died,))
        now[0] += 15
    assert reconcile(reconciler) == "starting" and len(pool.starts) == 2
    pool.running.clear()
    assert reconcile(reconciler) == "starting" and len(pool.starts) == 3


def test_a_query_that_is_wanted_stopped_is_stopped_again(
    agent: AgentContext, pool: Any, reconciler: Reconciler
) -> None:
    deployment = deploy(agent)
    pool.running["a@v1"] = pool.running.get("a@v1")
    agent.ledger.update_deployment(A, 1, wanted="stopped", state="stopping")
    assert deployment.wanted == "running"
    assert reconcile(reconciler) == "stopped"
    assert pool.stops == ["a@v1"]


def journal_stop(agent: AgentContext, reconciler: Reconciler, name: str) -> None:
    reconciler.emergency.append(JournalledStop(agent.locks.announce_stop([name]), "alice", 1.0, (name,)), after=0)


def test_a_stop_in_the_emergency_journal_is_taken_first(agent: AgentContext, pool: Any, reconciler: Reconciler) -> None:
    deploy(agent)
    journal_stop(agent, reconciler, "a")
    reconciler.apply_emergencies()
    reconciler.apply_emergencies()
    assert reconcile(reconciler) == "stopped"
    assert pool.starts == []
    told = [event for event in agent.ledger.events() if "recorded late" in event.summary]
    assert [(event.table, "alice" in event.summary) for event in told] == [("a", True)]
    assert [(row.actor, row.action, row.subject) for row in agent.ledger.audits()] == [("alice", "stop", "a")]


def test_journalled_stops_are_reported_once_however_often_the_ledger_is_locked(
    agent: AgentContext, reconciler: Reconciler, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        journal_stop(agent, reconciler, name)
    locks = iter([False, False, True, False, True, True, False])
    for method in ("add_event", "add_audit"):
        write = getattr(Ledger, method)

        def locked_at_times(ledger: Ledger, row: Any, write: Any = write) -> None:
            if next(locks, False):
                raise LedgerUnavailable("the ledger is locked by another program")
            write(ledger, row)

        monkeypatch.setattr(Ledger, method, locked_at_times)
    for _ in range(5):
        with suppress(LedgerUnavailable):
            reconciler.apply_emergencies()
    assert not reconciler.emergency.has_pending()
    assert [event.table for event in agent.ledger.events() if "recorded late" in event.summary] == ["b", "a"]
    assert [row.subject for row in agent.ledger.audits()] == ["b", "a"]


def test_a_stop_of_an_unknown_statement_does_not_block_others(agent: AgentContext, reconciler: Reconciler) -> None:
    deploy(agent)
    journal_stop(agent, reconciler, "gone")
    journal_stop(agent, reconciler, "a")
    reconciler.apply_emergencies()
    assert reconcile(reconciler) == "stopped"
    assert not reconciler.emergency.has_pending()


@pytest.mark.parametrize("mode", ["append", "upsert/2"])
def test_a_keyed_statement_is_not_called_stopped_while_its_last_batch_may_be_written(
    mode: str, agent: AgentContext, pool: Any, reconciler: Reconciler
) -> None:
    """The statement's query is gone, and the stop that ended it was not confirmed."""
    deploy(agent, wanted="stopped", state="running", mode=mode)
    pool.refuse_stop["a@v1"] = EngineRefused("a@v1 is stopped, but its last batch is still being written")
    assert reconcile(reconciler) == ("stopped" if mode == "append" else "running")
    pool.refuse_stop.clear()
    assert reconcile(reconciler) == "stopped"


def test_a_missing_checkpoint_of_a_stopped_statement_is_seen(agent: AgentContext, reconciler: Reconciler) -> None:
    deploy(agent, wanted="stopped", state="stopped")
    del agent.files.folders["/c/a__v1"]  # type: ignore[attr-defined]  # Scripted.
    reconcile(reconciler)
    found = agent.ledger.deployment(A, 1)
    assert found is not None and not found.checkpoint_ok
    assert found.lost.startswith("a@v1 has no readable checkpoint")
    assert observe(agent.ledger.deployments())[A].why_lost == found.lost


def test_a_checkpoint_behind_its_table_is_noticed_before_a_start(agent: AgentContext, reconciler: Reconciler) -> None:
    deploy(agent, wanted="stopped", state="stopped")
    agent.files.sink = 7  # type: ignore[attr-defined]  # Scripted.
    reconcile(reconciler)
    found = agent.ledger.deployment(A, 1)
    assert found is not None and not found.checkpoint_ok


def test_a_foreign_checkpoint_is_never_used(agent: AgentContext, pool: Any, reconciler: Reconciler) -> None:
    deploy(agent)
    agent.files.owner = "another ledger"  # type: ignore[attr-defined]  # Scripted.
    assert reconcile(reconciler) == "failed"
    assert pool.starts == []


class _InDoubt(AlwaysMatchingIdentity):
    doubt = "the ledger is an older copy"

    def refuse_doubt(self) -> None:
        raise NotAdopted(f"nothing is started: {self.doubt}", remedy="headgate adopt")


def test_a_doubt_that_arises_during_a_round_fails_no_statement(
    agent: AgentContext, pool: Any, reconciler: Reconciler
) -> None:
    deploy(agent)
    undoubted, agent.identity = agent.identity, _InDoubt()
    assert (reconcile(reconciler), reconcile(reconciler), pool.starts) == ("degraded", "degraded", [])
    found = agent.ledger.deployment(A, 1)
    assert found is not None and found.error == "nothing is started: the ledger is an older copy; headgate adopt"
    agent.identity = undoubted
    assert (reconcile(reconciler), pool.starts) == ("starting", ["a@v1"])


def rounds_of(reconciler: Reconciler, pool: Any, *told: dict[str, Any]) -> list[str]:
    """Reconcile once for each report of the query, and return the states."""
    states = []
    for fields in told:
        pool.told = fields
        states.append(reconcile(reconciler))
    return states


batch_of_a_second = partial(sample_row, batch_ms=1000)


@pytest.fixture
def running(agent: AgentContext, pool: Any) -> Deployment:
    """A running a@v1 whose batches take a second and read 50 rows between two samples."""
    found = deploy(agent, run_id="run of a@v1")
    start = agent.clock() - 300
    samples = [
        batch_of_a_second(start + 5 * n, lag_rows=50, consumed_rows=50 * n, produced_rows=50 * n) for n in range(50)
    ]
    agent.ledger.add_samples([(A, 1, sample) for sample in samples])
    pool.running["a@v1"] = START
    return found


def test_a_statement_that_went_silent_is_degraded_until_it_moves_and_never_restarted(
    agent: AgentContext, pool: Any, reconciler: Reconciler, running: Deployment
) -> None:
    assert rounds_of(reconciler, pool, {"silent_s": 29.0}, {"silent_s": 31.0}, {"silent_s": 95.0}) == [
        "running", "degraded", "degraded",
    ]  # fmt: skip
    found = agent.ledger.deployment(A, 1)
    assert found is not None and found.error == "no progress for 31 s, and no batch is running"
    assert rounds_of(reconciler, pool, {"silent_s": 0.1}) == ["running"]
    found = agent.ledger.deployment(A, 1)
    assert found is not None and found.error == "" and found.restarts == 0
    assert [event.summary for event in agent.ledger.events()] == ["degraded → running", "running → degraded"]
    assert pool.starts == [] and pool.stops == []


def test_a_statement_that_spark_shows_as_healthy_is_degraded_while_its_cluster_has_no_worker(
    agent: AgentContext, pool: Any, reconciler: Reconciler, running: Deployment
) -> None:
    no_worker, lost = (kind.of(master="spark://h:1") for kind in (ClusterFault.NO_WORKER, ClusterFault.LOST))
    states = []
    for fault in (None, no_worker, no_worker, lost, None):
        reconciler.round(BeforeRound.of(agent), agent.pools.default.connection().queries.active(), (), fault=fault)
        found = agent.ledger.deployment(A, 1)
        assert found is not None
        states.append((str(found.state), found.error))
    why = "no worker of the cluster is alive: its master spark://h:1 says so"
    unknown = (
        "the master spark://h:1 cannot be reached, and no batch has ended since: nobody says whether executors are "
    )
    assert states == [
        ("running", ""), ("degraded", why), ("degraded", why), ("unknown", f"{unknown}left"), ("running", ""),
    ]  # fmt: skip
    assert [event.summary for event in agent.ledger.events()] == [
        "unknown → running", "degraded → unknown", "running → degraded",
    ]  # fmt: skip
    assert pool.starts == [] and pool.stops == []


def test_a_batch_that_ends_after_the_master_was_lost_proves_that_executors_are_left(
    agent: AgentContext, pool: Any, reconciler: Reconciler, running: Deployment
) -> None:
    lost, states = ClusterFault.LOST.of(master="spark://h:1"), []
    for batch, fault in ((3, None), (3, lost), (4, lost), (4, lost)):
        pool.told = {"silent_s": 1.0, "progress": {"batchId": batch}}
        queries = agent.pools.default.connection().queries.active()
        reconciler.round(BeforeRound.of(agent), queries, (), fault=fault)
        found = agent.ledger.deployment(A, 1)
        assert found is not None
        states.append(str(found.state))
    assert states == ["running", "unknown", "running", "running"]


def test_a_statement_that_is_found_stopped_keeps_no_reason_why_its_state_was_unknown(
    agent: AgentContext, reconciler: Reconciler
) -> None:
    deploy(agent, wanted="stopped", state="unknown", error="the pool is silent")
    assert reconcile(reconciler) == "stopped"
    found = agent.ledger.deployment(A, 1)
    assert found is not None and found.error == ""


@pytest.mark.parametrize(("silent_s", "since"), [(1.0, 100.0), (95.0, None)])
def test_a_statement_that_went_on_while_nobody_observed_it_keeps_its_age(
    silent_s: float, since: float | None, agent: AgentContext, pool: Any, reconciler: Reconciler, running: Deployment
) -> None:
    now = agent.clock()
    agent.ledger.update_deployment(A, 1, state="unknown", state_since=now - 10, started_at=100.0)
    rounds_of(reconciler, pool, {"silent_s": silent_s})
    found = agent.ledger.deployment(A, 1)
    assert found is not None and (found.state_since == since if since is not None else found.state_since >= now)


def test_a_batch_under_way_is_late_after_ten_of_the_usual_ones(
    agent: AgentContext, pool: Any, reconciler: Reconciler, running: Deployment
) -> None:
    agent.files.planned = 2  # type: ignore[attr-defined]  # Scripted.
    heard = [{"silent_s": seconds} for seconds in (29.0, 31.0)]
    assert rounds_of(reconciler, pool, *heard) == ["running", "degraded"]
    found = agent.ledger.deployment(A, 1)
    assert found is not None and found.error == "a batch has been running for 31 s; the typical duration is 1.0 s"
    assert pool.looks == []
    burst = [batch_of_a_second(agent.clock() - 20, lag_rows=5000, produced_rows=9000, consumed_rows=2450)]
    agent.ledger.add_samples([(A, 1, sample) for sample in burst])
    now = agent.clock()
    for seconds, state in ((32.0, "running"), (599.0, "running"), (601.0, "degraded")):
        agent.clock = partial(float, now + seconds - 32)
        assert rounds_of(reconciler, pool, {"silent_s": seconds}) == [state]


@pytest.mark.parametrize(
    ("shown", "state"),
    [
        ({"silent_s": 0.0}, "running"),
        ({"waits": True}, "running"),
        ({"message": "Getting offsets from FileStreamSource", "trigger_active": True}, "degraded"),
        ({"message": "Stopped"}, "degraded"),
    ],
    ids=["its events were lost", "idle", "at work on its trigger", "nothing"],
)
def test_a_silent_statement_without_a_batch_is_queried_directly(
    shown: dict[str, Any], state: str, pool: Any, reconciler: Reconciler, running: Deployment
) -> None:
    pool.shown = shown
    assert rounds_of(reconciler, pool, {"silent_s": 31.0}) == [state]
    assert pool.looks == ["a@v1"]


def test_a_first_batch_is_starting_for_ten_minutes_and_late_after_them(
    agent: AgentContext, pool: Any, reconciler: Reconciler
) -> None:
    deploy(agent, state="starting", run_id="run of a@v1")
    pool.running["a@v1"] = START
    first = {"progress": None, "message": "Processing new data", "trigger_active": True}
    told = [first | {"silent_s": seconds} for seconds in (0.0, 599.0, 601.0)]
    assert rounds_of(reconciler, pool, *told) == ["starting", "starting", "degraded"]
    assert rounds_of(reconciler, pool, {"silent_s": 0.5}) == ["running"]


def test_a_first_batch_after_a_restart_has_ten_of_the_usual_ones_where_they_are_longer(
    agent: AgentContext, pool: Any, reconciler: Reconciler
) -> None:
    deploy(agent, state="starting", run_id="run of a@v1")
    before = sample_row(agent.clock() - 2500, lag_rows=50, batch_ms=200_000, produced_rows=50, consumed_rows=50)
    agent.ledger.add_samples([(A, 1, before)])
    pool.running["a@v1"] = START
    first = {"progress": None, "message": "Processing new data", "trigger_active": True}
    assert rounds_of(reconciler, pool, first | {"silent_s": 1990.0}, first | {"silent_s": 2010.0}) == [
        "starting", "degraded",
    ]  # fmt: skip


def test_a_degraded_statement_that_ends_as_wanted_is_stopped(
    agent: AgentContext, pool: Any, reconciler: Reconciler
) -> None:
    deploy(agent, state="degraded", wanted="stopped")
    assert reconcile(reconciler) == "stopped"


def test_a_stopped_statement_reports_its_missing_folder_until_it_is_back(
    agent: AgentContext, reconciler: Reconciler
) -> None:
    def said() -> str:
        assert reconcile(reconciler) == "stopped"
        found = agent.ledger.deployment(A, 1)
        assert found is not None
        return found.error

    folder = deploy(agent, wanted="stopped", state="stopped").folder
    assert said() == ""
    removed: set[str] = agent.files.removed  # type: ignore[attr-defined]  # Scripted.
    removed.add(folder)
    assert said() == (
        f"the table of a@v1 is gone: there is no folder {folder}; headgate plan a --rebuild, or restore its folder "
        "from a backup"
    )
    removed.add(str(Path(folder).parent))
    assert said() == "", "what is not mounted is not gone"
    removed.clear()
    assert said() == ""


def test_foreign_queries_in_our_session_are_reported_and_end_no_round(
    reconciler: Reconciler, agent: AgentContext, pool: Any
) -> None:
    deploy(agent)
    strange = ["x@v²", "x@v" + "9" * 30, "x@v" + "9" * 5000, "x@v3"]
    pool.running |= {name: replace(START, name=name, checkpoint=f"/theirs/{name}") for name in strange}
    assert reconcile(reconciler) == "starting" and pool.starts == ["a@v1"]
    assert set(strange) <= set(pool.running)
    told = [
        (event.table, event.version, event.summary) for event in agent.ledger.events(limit=20) if event.kind == "pool"
    ]
    assert [(table, version) for table, version, _ in told].count(("x", 3)) == 1 and len(told) == len(strange)
    assert max(len(summary) for *_, summary in told) < 300


def test_of_many_foreign_queries_a_round_reports_a_few(reconciler: Reconciler, agent: AgentContext, pool: Any) -> None:
    deploy(agent)
    pool.running |= {f"q{number:03}": replace(START, name=f"q{number:03}") for number in range(100)}
    for _ in range(2):
        reconcile(reconciler)
    told = {event.summary: event.count for event in agent.ledger.events(limit=200) if event.kind == "pool"}
    assert len(told) == UNKNOWN_TOLD and set(told.values()) == {2}
