"""The pool's supervisor over a process and sessions in memory: started, adopted, lost, dead, silent, ended."""

import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fake_master import application, fake_master, worker
from fake_resource_manager import ID, KILLED, FakeResourceManager, fake_resource_manager
from ledger_rows import deployment_row, environment_row, pool_row

from core.ipc.environment_paths import EnvironmentPaths
from core.model.errors import EngineRefused, HeadgateError, LedgerUnavailable, PoolUnreachable
from core.observed.cluster import ClusterFault
from core.observed.cluster_manager import ManagerWord, PoolLoss
from core.observed.spark_work import ClusterFigures, ManagedApplication, ServerHeap
from core.project.model import Pool
from pipelines.agent import pool as pool_package
from pipelines.agent.pool import pool_supervisor, spark_connection
from pipelines.agent.pool.cluster_watch import ClusterWatch
from pipelines.agent.pool.pool_supervisor import PoolSupervisor, given_token
from pipelines.spark_connect.call_deadlines import CircuitBreaker
from pipelines.spark_connect.error_translation import EngineStopped, MaybeStopped, SessionLost, TokenRefused
from pipelines.spark_connect.session import Session
from state.ledger import Ledger, create_or_open


@dataclass
class Machine:
    """The server's process and its sessions; an operation listed in `fails` raises the given error each time."""

    running: bool = False
    did: list[str] = field(default_factory=list)
    fails: dict[str, HeadgateError] = field(default_factory=dict)
    tombstones: set[str] = field(default_factory=set)
    opened: list[str] = field(default_factory=list)
    closed: list[str] = field(default_factory=list)
    closed_readers: list[str] = field(default_factory=list)
    idle_limit: float | None = None
    now: float = 0.0
    last_words: str = ""
    in_use: ServerHeap | None = None
    application: str = "app-1"

    def heap(self) -> ServerHeap | None:
        return self.in_use

    def act(self, name: str) -> None:
        self.did.append(name)
        if name in self.fails:
            raise self.fails[name]


@dataclass
class FakeProcess:
    """Stands in for LocalPool."""

    machine: Machine
    url: str = "sc://127.0.0.1:1"
    token: str = "t"
    named: str = " (pid 7154)"

    def alive(self) -> bool:
        return self.machine.running

    def start(self, say: Callable[[str], object]) -> bool:
        say("the jars of delta are being fetched once, into /h")
        self.machine.act("start")
        self.machine.running = True
        return True

    def ready(self, seconds: float) -> None:
        self.machine.act("ready")

    def end(self) -> None:
        self.machine.act("end")
        self.machine.running = False

    def last_words(self) -> str:
        return self.machine.last_words

    @property
    def ui(self) -> Any:
        return self.machine


class FakeSession(Session):
    """A Session without a server. It makes calls as usual; a session id that was refused once is refused forever."""

    def __init__(self, machine: Machine, session_id: str, lost: Callable[[Session], None]) -> None:
        self.machine = machine
        self.session_id = session_id
        self.breaker = CircuitBreaker(lambda: None)
        self._lost = lost

    def attach(self) -> None:
        self.machine.act("attach")
        if self.session_id in self.machine.tombstones:
            raise SessionLost("the session is closed")
        self.machine.opened.append(self.session_id)

    def reader(self) -> "FakeSession":
        return FakeSession(self.machine, f"reader of {self.session_id}", lambda _: None)

    def run_test_statement(self) -> None:
        self.machine.act("prove")

    def idle_limit_s(self) -> float | None:
        return self.machine.idle_limit

    def application(self) -> str:
        if (error := self.machine.fails.get("application")) is not None:
            raise error
        return self.machine.application

    def close(self) -> None:
        closed = self.machine.closed_readers if self.session_id.startswith("reader") else self.machine.closed
        closed.append(self.session_id)


@pytest.fixture
def machine() -> Machine:
    return Machine()


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    facts = environment_row(pools=(pool_row(state="off", generation=0, session_id=""),))
    with create_or_open(tmp_path / "home" / "ledger.db", facts) as opened:
        yield opened


@pytest.fixture
def supervise(
    machine: Machine, ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., PoolSupervisor]:
    """Return a function that creates a supervisor; a second supervisor represents a new agent."""
    monkeypatch.setattr(pool_supervisor, "LocalPool", lambda home, pool, **_: FakeProcess(machine))
    monkeypatch.setattr(spark_connection, "Session", lambda url, token, id, lost, tls: FakeSession(machine, id, lost))
    for name in ("StatementQueries", "SparkTables", "SparkAnalysis"):
        port = SimpleNamespace(close=lambda: None, create_views_in=None, engine=lambda: "4.2.0")
        monkeypatch.setattr(spark_connection, name, lambda *_, port=port, **more: port)
    # Sessions are normally closed in a thread; here the thread is finished when it is started.
    monkeypatch.setattr(spark_connection, "threading", SimpleNamespace(Thread=AtOnce))
    places = EnvironmentPaths(str(tmp_path / "home"), str(tmp_path / "a.sock"), os.getuid())

    def supervisor(pool: Pool | None = None, **more: Any) -> PoolSupervisor:
        def restore(attached: object) -> None:
            machine.act("restore")

        return PoolSupervisor(places, pool or Pool(), ledger, restore, monotonic=lambda: machine.now, **more)

    return supervisor


@dataclass
class AtOnce:
    """A thread that has already finished when `start` returns."""

    target: Callable[[], None]
    daemon: bool = True

    def start(self) -> None:
        self.target()


def called(keeper: PoolSupervisor, fn: Callable[..., Any], *args: Any) -> Any:
    return keeper.connection().call(60.0, fn, *args)


def answers(keeper: PoolSupervisor) -> bool:
    try:
        return called(keeper, lambda: "an answer") == "an answer"
    except PoolUnreachable:
        return False


def said(ledger: Ledger) -> tuple[str, int, str]:
    facts = ledger.facts()
    return facts.pool_state, facts.pools[0].generation, facts.pools[0].session_id


def told(ledger: Ledger) -> list[str]:
    """Return the summaries of events about the environment's pool, oldest first."""
    return [event.summary for event in reversed(ledger.events()) if (event.kind, event.about) == ("pool", "")]


def test_a_spark_client_that_cannot_be_loaded_is_reported_as_the_state_of_the_pool(
    supervise: Any, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeper = supervise()
    monkeypatch.delattr(pool_package, "spark_connection")
    monkeypatch.setitem(sys.modules, "pipelines.agent.pool.spark_connection", None)
    with pytest.raises(PoolUnreachable, match="Spark's client cannot be loaded"):
        keeper.keep()
    assert said(ledger)[0] == "down"


def test_a_pool_of_ours_is_started_and_its_catalog_filled_before_anyone_calls(
    supervise: Any, machine: Machine, ledger: Ledger
) -> None:
    keeper = supervise()
    assert not keeper.is_ready and not answers(keeper)
    keeper.keep()
    assert machine.did == ["start", "ready", "attach", "restore"]
    assert said(ledger) == ("up", 1, machine.opened[0])
    assert keeper.is_ready and answers(keeper)
    machine.did.clear()
    keeper.keep()
    assert machine.did == []


def test_a_session_whose_ledger_was_lost_is_found_by_its_record_while_its_server_lives(
    supervise: Any, machine: Machine, ledger: Ledger
) -> None:
    machine.running = True
    supervise(recorded_session=lambda: "s-1").keep()
    assert (machine.opened, said(ledger)) == (["s-1"], ("up", 1, "s-1"))
    supervise(recorded_session=lambda: "s-2").keep()
    assert machine.opened == ["s-1", "s-1"], "the ledger knows better"
    machine.running = False
    supervise(recorded_session=lambda: "s-2").keep()
    assert machine.opened[2] not in ("s-1", "s-2"), "a new server has no session"


def test_a_recorded_session_that_is_gone_is_not_asked_for_again(
    supervise: Any, machine: Machine, ledger: Ledger
) -> None:
    machine.running, machine.tombstones = True, {"s-1"}
    supervise(recorded_session=lambda: "s-1").keep()
    assert machine.opened == [ledger.facts().pools[0].session_id] != ["s-1"]


def test_while_the_catalog_is_being_filled_statements_can_be_stopped_and_nothing_else(
    supervise: Any, machine: Machine, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeper = supervise()
    seen: list[object] = []

    def restore(attached: object) -> None:
        stopped = keeper.connection_for_stops().call(60.0, lambda: "stopped")
        seen.extend([answers(keeper), stopped, keeper.is_ready, ledger.facts().pool_state])

    monkeypatch.setattr(keeper, "_restore", restore)
    keeper.keep()
    assert seen == [False, "stopped", False, "starting"]
    assert keeper.is_ready and ledger.facts().pool_state == "up"


def test_a_catalog_that_could_not_be_filled_is_filled_later_over_the_same_session(
    supervise: Any, machine: Machine, ledger: Ledger
) -> None:
    keeper = supervise()
    machine.fails["restore"] = PoolUnreachable("no answer within 20 s")
    for _ in range(20):
        with pytest.raises(PoolUnreachable, match="no answer"):
            keeper.keep()
        machine.now += 6.5
        assert (ledger.facts().pool_state, keeper.is_ready) == ("silent" if machine.now > 126.5 else "starting", False)
    assert len(machine.opened) == 1 and machine.closed == []
    machine.fails.clear()
    keeper.keep()
    assert keeper.is_ready and len(machine.opened) == 1


@pytest.mark.parametrize("where", ["start", "ready"])
def test_a_pool_that_ends_again_and_again_is_started_ever_later_and_then_waits_for_a_person(
    where: str, supervise: Any, machine: Machine, ledger: Ledger
) -> None:
    keeper = supervise()
    machine.fails[where] = PoolUnreachable("it exited during startup: OutOfMemoryError")
    starts: list[float] = []
    while machine.now < 3600.0:
        with pytest.raises(PoolUnreachable):
            keeper.keep()
        machine.running = False
        if machine.did:
            starts.append(machine.now)
            machine.did.clear()
        machine.now += 1.0
    assert starts == [0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0]
    facts = ledger.facts()
    assert (facts.pool_state, keeper.is_ready) == ("failed", False)
    assert facts.pools[0].detail.startswith("8 starts within 10 min failed; the last one: ")
    assert facts.pools[0].detail.endswith("OutOfMemoryError")
    machine.fails.clear()
    assert keeper.start_again() and ledger.facts().pool_state == "starting"
    keeper.keep()
    assert keeper.is_ready and not keeper.start_again()


CLUSTER = Pool("cluster", master="spark://127.0.0.1:7077", master_ui="http://127.0.0.1:8080", cores=3)


def test_a_master_that_is_down_is_waited_for_without_counting_as_a_failed_start(
    supervise: Any, machine: Machine, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[str] = []

    def require_master(master: str, key: str) -> None:
        if not answers:
            raise PoolUnreachable(f"the master {master} cannot be reached: connection refused", remedy="start it")

    monkeypatch.setattr(pool_supervisor, "require_master", require_master)
    monkeypatch.setattr(pool_supervisor, "require_shared_data", lambda pool, writer, data: None)
    keeper = supervise(CLUSTER)
    for _ in range(20):
        with pytest.raises(PoolUnreachable, match="connection refused"):
            keeper.keep()
        machine.now += 1.0
    facts = ledger.facts()
    sentence = "the master spark://127.0.0.1:7077 cannot be reached: connection refused; start it"
    assert (facts.pool_state, facts.pools[0].detail, machine.did) == ("down", sentence, [])
    answers.append("yes")
    keeper.keep()
    assert machine.did == ["start", "ready", "attach", "restore"] and ledger.facts().pool_state == "up"


def test_a_pool_whose_cluster_has_a_fault_is_degraded_with_an_event_when_it_begins_and_ends(
    supervise: Any, machine: Machine, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults: list[ClusterFault | None] = []

    def observed(watch: ClusterWatch) -> Any:
        kind = faults.pop(0)
        return kind.of(master="spark://h:7077") if kind is not None else None

    monkeypatch.setattr(pool_supervisor, "require_master", lambda master, key: None)
    monkeypatch.setattr(pool_supervisor, "require_shared_data", lambda pool, writer, data: None)
    monkeypatch.setattr(ClusterWatch, "_observed", observed)
    keeper = supervise(CLUSTER)
    keeper.keep()
    faults[:] = [ClusterFault.NO_WORKER] * 2 + [None]
    for _ in range(2):
        keeper.watch_cluster()
    keeper.record_answer(None)
    sentence = "no worker of the cluster is alive: its master spark://h:7077 says so"
    assert (ledger.facts().pool_state, ledger.facts().pools[0].detail) == ("degraded", sentence)
    keeper.record_answer(PoolUnreachable("no answer within 5 s"))
    assert ledger.facts().pool_state == "silent", "a server that does not answer is the worse fault"
    machine.now += 12
    keeper.watch_cluster()
    keeper.record_answer(None)
    assert (ledger.facts().pool_state, ledger.facts().pools[0].detail) == ("up", "")
    ends = "the cluster of the pool's server works again after 12s"
    assert told(ledger) == [f"{sentence}; no statement progresses", ends]


def test_a_local_pool_has_no_cluster_to_watch(supervise: Any) -> None:
    keeper = supervise()
    keeper.watch_cluster()
    assert keeper.cluster_fault is None


def test_nothing_is_registered_on_a_cluster_whose_workers_do_not_share_the_data(
    supervise: Any, machine: Machine, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    tested: list[str] = []

    def require_shared_data(pool: Pool, writer: object, data: str) -> None:
        tested.append(data)
        if machine.now < 60:
            raise PoolUnreachable("the workers do not share /data", remedy="mount it")

    monkeypatch.setattr(pool_supervisor, "require_master", lambda master, key: None)
    monkeypatch.setattr(pool_supervisor, "require_shared_data", require_shared_data)
    keeper = supervise(CLUSTER, data="/data")
    for _ in range(59):
        with pytest.raises(PoolUnreachable):
            keeper.keep()
        machine.now += 1.0
    facts = ledger.facts()
    assert (facts.pool_state, facts.pools[0].detail) == ("down", "the workers do not share /data; mount it")
    assert "restore" not in machine.did and tested == ["/data", "/data"], "each test is a job, so they are rare"
    assert keeper.connection_for_stops() is not None
    machine.now += 1.0
    keeper.keep()
    keeper.keep()
    assert keeper.is_ready and len(tested) == 3
    machine.running = False
    keeper.keep()
    assert len(tested) == 4, "a new server is tested again"


def test_the_end_of_the_log_of_a_dead_pool_is_shown(supervise: Any, machine: Machine, ledger: Ledger) -> None:
    keeper = supervise()
    keeper.keep()
    machine.running, machine.last_words = False, "ERROR: there is no memory"
    machine.fails["start"] = PoolUnreachable("no Java")
    said: list[str] = []
    real = keeper._record_state
    keeper._record_state = lambda state, detail: (said.append(detail), real(state, detail))
    with pytest.raises(PoolUnreachable, match="no Java"):
        keeper.keep()
    assert said[0] == "its process ended; it is being restarted; its log ends: ERROR: there is no memory"


def test_a_download_during_a_start_is_announced(supervise: Any, machine: Machine, ledger: Ledger) -> None:
    keeper, during = supervise(), []
    real = machine.act
    machine.act = lambda name: (during.append(ledger.facts().pools[0].detail), real(name))  # type: ignore[method-assign]
    keeper.keep()
    assert during[:2] == ["the jars of delta are being fetched once, into /h", "a Spark Connect server takes 6 to 10 s"]


def test_a_new_agent_adopts_the_pool_and_its_session(supervise: Any, machine: Machine, ledger: Ledger) -> None:
    supervise().keep()
    before = said(ledger)
    machine.did.clear()
    supervise().keep()
    assert machine.did == ["attach", "restore"]
    assert said(ledger) == before


def test_a_permanently_refused_session_starts_a_new_generation(
    supervise: Any, machine: Machine, ledger: Ledger
) -> None:
    supervise().keep()
    machine.tombstones.add(machine.opened[0])
    supervise().keep()
    assert len(set(machine.opened)) == 2
    assert said(ledger) == ("up", 2, machine.opened[1])


def test_a_process_that_died_is_started_again_with_a_new_session(
    supervise: Any, machine: Machine, ledger: Ledger
) -> None:
    keeper = supervise()
    keeper.keep()
    machine.running = False
    machine.did.clear()
    keeper.keep()
    assert machine.did == ["start", "ready", "attach", "restore"]
    assert machine.closed == machine.opened[:1]
    assert machine.closed_readers == [f"reader of {machine.opened[0]}"], "no connection is left behind"
    assert said(ledger) == ("up", 2, machine.opened[1])


def test_a_session_lost_during_a_call_is_attached_again(supervise: Any, machine: Machine, ledger: Ledger) -> None:
    keeper = supervise()
    keeper.keep()
    machine.fails["call"] = SessionLost("the session is closed")
    with pytest.raises(SessionLost):
        called(keeper, machine.act, "call")
    assert not keeper.is_ready and machine.closed == machine.opened
    with pytest.raises(PoolUnreachable) as refused:
        keeper.connection()
    assert "is up" not in refused.value.summary
    machine.fails.clear()
    machine.tombstones.update(machine.opened)
    keeper.keep()
    assert answers(keeper) and said(ledger) == ("up", 2, machine.opened[1])


def test_a_late_loss_of_an_old_session_leaves_the_new_one(supervise: Any, machine: Machine) -> None:
    keeper = supervise()
    keeper.keep()

    def lost_while_another_was_opened() -> None:
        machine.running = False
        keeper.keep()
        raise SessionLost("the old one")

    with pytest.raises(SessionLost):
        called(keeper, lost_while_another_was_opened)
    assert keeper.is_ready and machine.closed == machine.opened[:1]


@pytest.mark.parametrize("error", [PoolUnreachable("no answer"), EngineRefused("no")])
def test_another_error_of_a_call_keeps_the_session(error: HeadgateError, supervise: Any, machine: Machine) -> None:
    keeper = supervise()
    keeper.keep()
    machine.fails["call"] = error
    with pytest.raises(type(error)):
        called(keeper, machine.act, "call")
    assert keeper.is_ready and not machine.closed


@pytest.mark.parametrize("where", ["start", "attach"])
def test_a_failure_while_the_pool_comes_up_is_reported_and_retried(
    where: str, supervise: Any, machine: Machine, ledger: Ledger
) -> None:
    keeper = supervise()
    machine.fails[where] = EngineRefused(f"{where} went wrong", remedy="look")
    for _ in range(3):
        with pytest.raises(PoolUnreachable) as raised:
            keeper.keep()
        assert (raised.value.summary, raised.value.remedy) == (f"{where} went wrong", "look")
        assert not keeper.is_ready and not answers(keeper)
        assert (ledger.facts().pool_state, ledger.facts().pools[0].detail) == ("down", f"{where} went wrong; look")
        machine.now += 60.0
    assert len(machine.closed) == machine.did.count("attach"), "no connection is left behind"
    machine.fails.clear()
    keeper.keep()
    assert keeper.is_ready and ledger.facts().pool_state == "up"
    assert machine.did.count("start") <= (4 if where == "start" else 1), "a server that lives is not started twice"


def test_a_server_that_is_slow_to_answer_is_adopted_and_not_started_twice(supervise: Any, machine: Machine) -> None:
    keeper = supervise()
    machine.fails["ready"] = PoolUnreachable("no answer within 90 s")
    with pytest.raises(PoolUnreachable, match="90 s"):
        keeper.keep()
    keeper.keep()
    assert machine.did == ["start", "ready", "attach", "restore"] and answers(keeper)


def test_a_remote_pool_is_neither_started_nor_ended(supervise: Any, machine: Machine, ledger: Ledger) -> None:
    keeper = supervise(Pool(name="shared", url="sc://spark:15002"))
    keeper.keep()
    keeper.keep()
    keeper.end()
    assert machine.did == ["attach", "restore"]
    assert machine.closed == machine.opened and said(ledger)[0] == "off"


@pytest.mark.parametrize(("limit", "events"), [(None, 0), (3600.0, 1)])
def test_a_pool_that_ends_idle_sessions_is_reported(
    limit: float | None, events: int, supervise: Any, machine: Machine, ledger: Ledger
) -> None:
    machine.idle_limit = limit
    supervise(Pool(name="shared", url="sc://spark:15002")).keep()
    assert len([event for event in ledger.events() if "60 min" in event.summary]) == events


def test_a_heap_that_is_nearly_full_is_an_event_once_and_so_is_its_end(
    supervise: Any, machine: Machine, ledger: Ledger
) -> None:
    keeper = supervise()
    keeper.watch_heap()
    keeper.keep()
    for live in (0, 900, 950, 960, 100):
        machine.in_use = ServerHeap(live, 1000)
        keeper.watch_heap()
    ended = "the memory of the pool's server is no longer nearly full"
    assert told(ledger) == [str(ServerHeap(950, 1000).shortage), ended]
    machine.in_use = ServerHeap(999, 1000)
    keeper.watch_heap()
    machine.in_use = None
    keeper.watch_heap()
    assert len(told(ledger)) == 4, "a server that does not report its heap is not known to be short of it"


def test_a_frozen_pool_is_silent_until_it_answers_and_is_left_alone(
    supervise: Any, machine: Machine, ledger: Ledger
) -> None:
    keeper = supervise()
    keeper.record_answer(PoolUnreachable("off"))
    assert ledger.facts().pool_state == "off", "nothing is silent that was never up"
    keeper.keep()
    machine.did.clear()
    keeper.record_answer(PoolUnreachable("no answer within 5 s"))
    assert (ledger.facts().pool_state, ledger.facts().pools[0].detail) == ("silent", "no answer within 5 s")
    keeper.keep()
    assert machine.did == [] and keeper.is_ready
    keeper.record_answer(None)
    assert ledger.facts().pool_state == "up"


def test_a_new_pool_that_does_not_answer_while_statements_start_is_starting_and_no_outage(
    supervise: Any, machine: Machine, ledger: Ledger
) -> None:
    ledger.put_deployment(deployment_row("a", state="starting", wanted="running"))
    keeper = supervise()
    keeper.keep()
    for _ in range(100):
        machine.now += 1.0
        keeper.record_answer(PoolUnreachable("no answer within 5 s"))
    assert ledger.facts().pool_state == "starting" and keeper.is_starting_statements
    assert ledger.facts().pools[0].detail == "its statements are being started: no answer within 5 s"
    assert told(ledger) == []
    machine.now += 60.0
    keeper.record_answer(PoolUnreachable("no answer within 5 s"))
    assert ledger.facts().pool_state == "silent" and not keeper.is_starting_statements


STOPPED = MaybeStopped("Cannot call methods on a stopped SparkContext.")


def kept(keeper: PoolSupervisor) -> bool:
    """Keep the pool for one round; return whether it is up afterwards."""
    try:
        keeper.keep()
    except PoolUnreachable:
        return False
    return keeper.is_ready


def test_a_pool_that_answers_and_runs_nothing_is_ended_and_started_again(
    supervise: Any, machine: Machine, ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    keeper = supervise()
    keeper.keep()
    machine.did.clear()
    # The server accepts sessions and answers pings; only statements fail, and listing queries requires a statement.
    machine.fails.update({"prove": STOPPED, "list": STOPPED})
    with pytest.raises(EngineStopped) as raised:
        called(keeper, machine.act, "list")
    keeper.record_answer(raised.value)
    assert not kept(keeper)
    facts = ledger.facts()
    assert (facts.pool_state, facts.pools[0].detail) == (
        "down",
        "the pool answers but cannot run anything: its SparkContext has stopped",
    )
    keeper.record_answer(None)
    assert ledger.facts().pool_state == "down", "a list of idle queries that is answered proves nothing"
    assert machine.running and "end" not in machine.did, "one look confirms nothing"
    real = machine.act
    machine.act = lambda name: (name == "start" and machine.fails.clear(), real(name))  # type: ignore[method-assign]
    assert kept(keeper)
    assert [act for act in machine.did if act != "prove"] == ["list", "end", "start", "ready", "attach", "restore"]
    assert said(ledger) == ("up", 2, machine.opened[1]) and machine.closed == machine.opened[:1]
    assert "is ended: the pool answers but cannot run anything" in caplog.text


def test_a_stopped_pool_is_found_while_every_other_call_is_answered(supervise: Any, machine: Machine) -> None:
    keeper = supervise()
    keeper.keep()
    machine.fails["prove"] = STOPPED
    found = 0.0
    while "end" not in machine.did:
        keeper.record_answer(None)
        kept(keeper)
        machine.now += 1.0
        found = machine.now
        assert found < 60.0
    assert found <= 15.0


@pytest.mark.parametrize(
    ("answer", "raised"),
    [
        (None, MaybeStopped),
        (EngineRefused("no"), MaybeStopped),
        (PoolUnreachable("no answer within 3 s"), PoolUnreachable),
    ],
)
def test_a_single_failure_like_a_stopped_pool_is_a_refusal_and_restarts_nothing(
    answer: HeadgateError | None, raised: type[HeadgateError], supervise: Any, machine: Machine, ledger: Ledger
) -> None:
    keeper = supervise()
    keeper.keep()
    machine.did.clear()
    machine.fails["call"] = STOPPED
    if answer is not None:
        machine.fails["prove"] = answer
    for _ in range(30):
        with pytest.raises(raised):
            called(keeper, machine.act, "call")
        assert kept(keeper)
        machine.now += 1.0
    assert set(machine.did) == {"call", "prove"} and ledger.facts().pool_state == "up"


def test_a_look_that_succeeds_takes_back_the_one_before(supervise: Any, machine: Machine, ledger: Ledger) -> None:
    keeper = supervise()
    keeper.keep()
    for _ in range(5):
        machine.fails["prove"] = STOPPED
        machine.now += 10.0
        assert not kept(keeper) and ledger.facts().pool_state == "down"
        machine.fails.clear()
        assert kept(keeper)
        keeper.record_answer(None)
        assert ledger.facts().pool_state == "up"
    assert "end" not in machine.did


def test_a_pool_whose_context_stops_again_and_again_is_started_ever_later_and_then_waits_for_a_person(
    supervise: Any, machine: Machine, ledger: Ledger
) -> None:
    keeper = supervise()
    machine.fails.update({"prove": STOPPED, "restore": EngineStopped("it cannot run anything")})
    starts: list[float] = []
    while machine.now < 3600.0:
        before = machine.did.count("start")
        assert not kept(keeper)
        if machine.did.count("start") > before:
            starts.append(machine.now)
        machine.now += 1.0
    assert len(starts) == 8 and starts[-1] - starts[-2] >= 32.0
    assert machine.did.count("end") == 8 and not machine.running
    facts = ledger.facts()
    assert facts.pool_state == "failed" and facts.pools[0].detail.endswith("its SparkContext has stopped")


def test_a_stopped_pool_that_an_earlier_agent_left_is_replaced(supervise: Any, machine: Machine) -> None:
    machine.running = True
    machine.fails.update({"attach": STOPPED, "prove": STOPPED})
    keeper = supervise()
    assert not kept(keeper) and machine.running
    assert not kept(keeper) and not machine.running
    machine.fails.clear()
    assert kept(keeper) and machine.did.count("end") == 1


def test_a_stopped_remote_pool_is_reported_and_never_ended(supervise: Any, machine: Machine, ledger: Ledger) -> None:
    keeper = supervise(Pool(name="shared", url="sc://spark:15002"))
    keeper.keep()
    machine.fails["prove"] = STOPPED
    for _ in range(60):
        machine.now += 1.0
        kept(keeper)
    assert set(machine.did) == {"attach", "restore", "prove"} and not keeper.is_ready
    facts = ledger.facts()
    assert (facts.pool_state, facts.pools[0].detail) == (
        "down",
        "the pool answers but cannot run anything: its SparkContext has stopped; "
        "whoever manages the pool has to restart it",
    )
    assert keeper.connection_for_stops() is not None, "a stop is sent all the same"
    machine.fails.clear()
    assert kept(keeper) and ledger.facts().pool_state == "up"


def test_the_end_of_the_pool_ends_the_process_and_is_reported(supervise: Any, machine: Machine, ledger: Ledger) -> None:
    keeper = supervise()
    keeper.keep()
    keeper.end()
    assert not machine.running and machine.closed == machine.opened
    assert not keeper.is_ready and said(ledger)[0] == "off"


def test_a_state_that_the_ledger_did_not_take_is_written_the_next_time(
    supervise: Any, machine: Machine, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeper = supervise()
    keeper.keep()
    real, locked = type(ledger).put_pool, iter([True])

    def put_pool(self: Ledger, place: str, **known: Any) -> None:
        if next(locked, False):
            raise LedgerUnavailable("the ledger is locked")
        real(self, place, **known)

    monkeypatch.setattr(type(ledger), "put_pool", put_pool)
    keeper.record_answer(PoolUnreachable("no answer"))
    assert ledger.facts().pool_state == "up"
    keeper.record_answer(PoolUnreachable("no answer"))
    assert ledger.facts().pool_state == "silent"


UP_AGAIN = "the pool's server is up again after 31s; 2 statements are started from their checkpoints"


def test_a_killed_server_is_reported_once_and_again_when_it_is_up(
    supervise: Any, machine: Machine, ledger: Ledger
) -> None:
    for table, state, wanted in (
        ("a", "running", "running"),
        ("b", "unknown", "running"),
        ("c", "stopped", "stopped"),
        ("d", "failed", "running"),
    ):
        ledger.put_deployment(deployment_row(table, state=state, wanted=wanted, query_id="q"))
    keeper = supervise()
    keeper.keep()
    keeper.record_answer(None)
    assert told(ledger) == [], "a first start is ordinary"
    machine.running, machine.last_words = False, "Killed"
    machine.fails["attach"] = PoolUnreachable("not yet")
    assert not kept(keeper) and not kept(keeper)
    assert told(ledger) == ["the pool's server (pid 7154) ended; it is started again"]
    assert ledger.events()[0].detail == "its log ends: Killed"
    machine.fails.clear()
    machine.now += 31.0
    assert kept(keeper) and kept(keeper)
    keeper.record_answer(None)
    assert told(ledger)[1:] == [UP_AGAIN]
    keeper.end()
    assert len(told(ledger)) == 2, "an end that was asked for is ordinary"


def test_in_doubt_no_start_is_announced(supervise: Any, machine: Machine, ledger: Ledger) -> None:
    ledger.put_deployment(deployment_row("a", state="running", wanted="running", query_id="q"))
    keeper = supervise()
    keeper.keep()
    ledger.put_doubt("an older copy")
    machine.running = False
    keeper.keep()
    assert told(ledger)[1:] == ["the pool's server is up again after 0s"]


def test_an_end_that_a_locked_ledger_did_not_record_is_reported_later(
    supervise: Any, machine: Machine, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeper = supervise()
    keeper.keep()
    real, locked = type(ledger).add_event, iter([True])

    def add_event(self: Ledger, event: Any) -> int:
        if next(locked, False):
            raise LedgerUnavailable("the ledger is locked")
        return real(self, event)

    monkeypatch.setattr(type(ledger), "add_event", add_event)
    machine.running = False
    keeper.keep()
    assert [words.partition(" ended")[0] for words in told(ledger)] == [
        "the pool's server (pid 7154)",
        "the pool's server is up again after 0s",
    ]


def test_a_server_that_runs_nothing_and_one_given_up_are_reported(
    supervise: Any, machine: Machine, ledger: Ledger
) -> None:
    keeper = supervise()
    keeper.keep()
    machine.fails["prove"] = STOPPED
    machine.now += 10.0
    assert not kept(keeper) and told(ledger) == []
    machine.fails["start"] = PoolUnreachable("no Java")
    while ledger.facts().pool_state != "failed":
        assert not kept(keeper)
        machine.now += 1.0
    assert told(ledger) == [
        "the pool's server (pid 7154) is ended: its SparkContext has stopped; it is started again",
        "the pool's server is not started again until headgate up: "
        "8 starts within 10 min failed; the last one: no Java",
    ]


def test_a_lost_remote_pool_is_reported_once_it_was_silent_for_long(
    supervise: Any, machine: Machine, ledger: Ledger
) -> None:
    keeper = supervise(Pool(name="shared", url="sc://spark:15002"))
    keeper.keep()
    for seconds in (10, 40):
        for _ in range(seconds):
            keeper.record_answer(PoolUnreachable("no answer"))
            machine.now += 1.0
        keeper.record_answer(None)
    assert told(ledger) == [
        "the pool shared has not answered for 15 s: the states of its statements are unknown",
        "the pool shared answers again after 40s",
    ]


def test_a_remote_pool_that_lost_the_session_is_reported(supervise: Any, machine: Machine, ledger: Ledger) -> None:
    ledger.put_deployment(deployment_row("a", state="running", wanted="running", query_id="q"))
    keeper = supervise(Pool(name="shared", url="sc://spark:15002"))
    keeper.keep()
    machine.fails["call"] = SessionLost("the session is closed")
    machine.tombstones.update(machine.opened)
    with pytest.raises(SessionLost):
        called(keeper, machine.act, "call")
    machine.now += 2.0
    keeper.keep()
    assert told(ledger) == [
        "the session on the pool shared was closed; another one is opened",
        "the pool shared is up again after 2s; 1 statement is started from its checkpoint",
    ]


def test_a_stopped_remote_pool_is_reported_once(supervise: Any, machine: Machine, ledger: Ledger) -> None:
    keeper = supervise(Pool(name="shared", url="sc://spark:15002"))
    keeper.keep()
    machine.fails["prove"] = STOPPED
    for _ in range(60):
        machine.now += 1.0
        kept(keeper)
    machine.fails.clear()
    assert kept(keeper)
    first, second = told(ledger)
    assert first.endswith("its SparkContext has stopped; whoever manages the pool has to restart it")
    assert second.startswith("the pool shared answers again after ")


def test_a_refused_token_takes_the_pool_down_with_the_reason_until_it_is_renewed(
    supervise: Any, ledger: Ledger
) -> None:
    keeper = supervise(Pool(name="shared", url="sc://spark:15002", tls=True))
    keeper.keep()
    keeper.record_answer(TokenRefused("the pool refuses the token of ${env:T}", remedy="renew it"))
    facts = ledger.facts()
    assert (facts.pool_state, facts.pools[0].detail) == ("down", "the pool refuses the token of ${env:T}; renew it")
    keeper.record_answer(None)
    assert ledger.facts().pool_state == "up"


def test_a_server_of_others_gets_the_token_that_its_environment_was_given(tmp_path: Path) -> None:
    assert given_token(str(tmp_path)) == ""
    (tmp_path / "given.token").write_text("abc")
    assert given_token(str(tmp_path)) == "abc"


@pytest.fixture
def yarn() -> Iterator[FakeResourceManager]:
    with fake_resource_manager() as found:
        yield found


def word(ledger: Ledger) -> str:
    (row,) = ledger.facts().pools
    return str(row.loss or "").partition("; ")[2]


def test_the_manager_of_a_cluster_is_asked_about_a_server_of_others_while_it_does_not_answer(
    supervise: Any, machine: Machine, ledger: Ledger, yarn: FakeResourceManager
) -> None:
    pool, machine.application = Pool("shared", "sc://spark:15002", yarn_ui=yarn.page), ID
    ledger.declare_pools([("", pool)])
    keeper = supervise(pool)
    keeper.keep()
    keeper.record_answer(None)
    keeper.watch_cluster()
    (row,) = ledger.facts().pools
    assert (row.application, row.silent_since, row.manager_says, row.loss) == (ID, None, None, None)
    keeper.record_answer(PoolUnreachable("no answer within 5 s"))
    (row,) = ledger.facts().pools
    assert row.loss is not None and row.loss.kind is PoolLoss.UNASKED and row.silent_since is not None
    keeper.watch_cluster()
    assert word(ledger) == f"the ResourceManager {yarn.page} says that its application {ID} is RUNNING"
    # A later agent never reaches the server, and knows all the same which application it was, and since when.
    machine.fails["attach"] = PoolUnreachable("connection refused")
    later = supervise(pool)
    with pytest.raises(PoolUnreachable):
        later.keep()
    yarn.applications = [KILLED]
    later.watch_cluster()
    (after,) = ledger.facts().pools
    assert after.silent_since == row.silent_since and "is KILLED since" in word(ledger)
    machine.fails.clear()
    later.keep()
    later.watch_cluster()
    (row,) = ledger.facts().pools
    assert (row.state, row.silent_since, row.manager_says) == ("up", None, None)


def test_a_server_that_does_not_say_which_application_it_is_is_not_taken_for_an_earlier_one(
    supervise: Any, machine: Machine, ledger: Ledger, yarn: FakeResourceManager
) -> None:
    pool = Pool("shared", "sc://spark:15002", yarn_ui=yarn.page)
    ledger.declare_pools([("", pool)])
    ledger.put_pool(application=ID)
    machine.fails["application"] = EngineRefused("no such setting")
    keeper = supervise(pool)
    keeper.keep()
    assert ledger.facts().pools[0].application == ""
    keeper.record_answer(PoolUnreachable("no answer within 5 s"))
    keeper.watch_cluster()
    assert keeper.manager_word() == ManagerWord.UNLEARNED.of() and word(ledger) == str(ManagerWord.UNLEARNED.of())


def test_a_server_of_others_on_a_cluster_of_a_master_is_degraded_as_the_master_says(
    supervise: Any, machine: Machine, ledger: Ledger
) -> None:
    with fake_master() as master:
        pool = Pool("shared", "sc://spark:15002", master_ui=master.page)
        ledger.declare_pools([("", pool)])
        master.applications = [application()]
        keeper = supervise(pool)
        keeper.keep()
        for faulty, kind in (
            ({"workers": [worker(state="DEAD")]}, ClusterFault.NO_WORKER),
            ({"applications": []}, ClusterFault.UNKNOWN_SERVER),
            ({"applications": [application(cores=0)], "workers": [worker(cores=0)]}, ClusterFault.NO_CORES),
        ):
            before = {name: getattr(master, name) for name in faulty}
            for name, value in faulty.items():
                setattr(master, name, value)
            for _ in range(2):
                keeper.watch_cluster()
            keeper.record_answer(None)
            assert keeper.cluster_fault is not None and keeper.cluster_fault.kind is kind
            assert ledger.facts().pool_state == "degraded"
            for name, value in before.items():
                setattr(master, name, value)
            keeper.watch_cluster()
            keeper.record_answer(None)
            assert ledger.facts().pool_state == "up"
        assert keeper.cluster_figures() == ClusterFigures(
            "ALIVE", 1, 0, 2, 2, 1, ManagedApplication("app-1", "RUNNING", cores=2, memory_mib=768)
        )
    for _ in range(2):
        keeper.watch_cluster()
    assert keeper.cluster_fault is not None and keeper.cluster_fault.kind is ClusterFault.LOST


def test_without_a_declared_manager_nobody_but_the_agent_is_named(
    supervise: Any, machine: Machine, ledger: Ledger
) -> None:
    pool = Pool("shared", "sc://spark:15002")
    ledger.declare_pools([("", pool)])
    keeper = supervise(pool)
    keeper.keep()
    keeper.record_answer(PoolUnreachable("no answer within 5 s"))
    keeper.watch_cluster()
    (row,) = ledger.facts().pools
    assert row.loss is not None and row.loss.kind is PoolLoss.UNVOUCHED
    assert keeper.manager_word() is None and keeper.cluster_figures() is None
