"""Two pools in one environment: a statement runs in the one that it names, and moves without ever running in both."""

import itertools
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import small_project
from agent_scenarios import fast_lane

from core.model.errors import EngineRefused, PoolUnreachable
from core.model.names import TableName as T
from core.observed.cluster_manager import ManagerWord
from core.observed.versions import Deployment
from core.plan.codec import plan_hash
from core.plan.model import Plan
from core.plan.request import PlanRequest
from core.ports.spark import QueryStart
from core.project.model import Environment, Pool
from core.project.resources import Amounts
from pipelines.agent.context import AgentContext, Pools
from pipelines.agent.deployment_compiler import EnvironmentLayout
from pipelines.agent.pool.pointers import PointerCheck
from pipelines.agent.reconciler import BeforeRound, Reconciler
from pipelines.agent.runs import run_driver
from state.emergency_journal import EmergencyJournal
from tests.pipelines.agent.conftest import ScriptedFiles, ScriptedPool
from tests.pipelines.agent.runs import test_run_driver as lane
from tests.pipelines.agent.runs.test_run_driver import fast_gates  # noqa: F401  # A fixture of every test here.

HEAD = small_project.HEAD.replace("dev: {}", "dev: {pools: {small: {statements: 3}, large: {url: 'sc://big:15002'}}}")
POOLS = (Pool("small", capacity=Amounts(3)), Pool("large", "sc://big:15002"))
EVERYTHING = PlanRequest(tables=(T("a"), T("b"), T("c")), children="all")
MOVE = PlanRequest(tables=(T("b"),))
NONCES = map(str, itertools.count())


def files(**pools: str) -> dict[str, str]:
    """Return the project's files; a keyword argument names the pool of the table of that name."""
    found = {**small_project.texts(), "headgate.yml": HEAD}
    for table, pool in pools.items():
        product = "other" if table == "c" else "p"
        found[f"pipelines/facts/{product}/{table}/{table}.yml"] = f"pool: {pool}\n"
    return found


class Everywhere:
    """The queries of all pools, for the files that they write."""

    def __init__(self, *pools: ScriptedPool) -> None:
        self._pools = pools

    @property
    def running(self) -> dict[str, QueryStart]:
        return {name: query for pool in self._pools for name, query in pool.running.items()}

    @property
    def recorded(self) -> dict[str, tuple[str, int]]:
        return {}


@pytest.fixture
def small(pool: ScriptedPool) -> ScriptedPool:
    return pool


@pytest.fixture
def large() -> ScriptedPool:
    return ScriptedPool()


@pytest.fixture
def two(agent: AgentContext, small: ScriptedPool, large: ScriptedPool) -> AgentContext:
    environment = Environment("dev", pool=POOLS[0], named_pools=POOLS)
    everywhere: Any = Everywhere(small, large)
    agent.layout = EnvironmentLayout(agent.layout.data, environment)
    agent.pools = Pools(environment, {"small": small, "large": large})
    agent.files = ScriptedFiles(everywhere, "ledger")
    return agent


def deployed(agent: AgentContext, table: str) -> Deployment:
    found = agent.ledger.deployment(T(table), 1)
    assert found is not None
    return found


def settle(agent: AgentContext) -> None:
    for pool in agent.pools.every():
        lane.settle(agent, pool.client)


def carried_out(agent: AgentContext, texts: dict[str, str], request: PlanRequest) -> str:
    state = lane.drive(agent, lane.submit(agent, lane.plan(agent, texts, request)))
    settle(agent)
    return state


def rounds(agent: AgentContext) -> dict[str, Reconciler]:
    journal = EmergencyJournal(Path(agent.folder, "emergency"))
    return {pool.name: Reconciler(agent, journal, pool) for pool in agent.pools.every()}


def reconcile(agent: AgentContext, reconcilers: dict[str, Reconciler], *names: str) -> None:
    for name in names or tuple(reconcilers):
        before = BeforeRound.of(agent)
        reconcilers[name].round(before, agent.pools.named(name).connection().queries.active(), ())


@pytest.fixture
def begun(two: AgentContext, large: ScriptedPool) -> AgentContext:
    """The small project, with b in the pool `large`, and all else in `small`."""
    assert carried_out(two, files(b="large"), EVERYTHING) == "done"
    return two


def test_a_statement_starts_in_the_pool_that_it_names_and_every_catalog_gets_all_tables(
    begun: AgentContext, small: ScriptedPool, large: ScriptedPool
) -> None:
    assert (sorted(small.running), sorted(large.running)) == (["a@v1", "c@v1"], ["b@v1"])
    assert small.tables.keys() == large.tables.keys() == {"landed", "a__v1", "b__v1", "c__v1"}
    assert small.views == large.views == {"a": "a__v1", "b": "b__v1", "c": "c__v1"}
    assert [deployed(begun, table).pool.name for table in "abc"] == ["small", "large", "small"]  # type: ignore[union-attr]  # Recorded.


def test_a_statement_starts_in_the_pool_of_the_reviewed_plan(
    two: AgentContext, small: ScriptedPool, large: ScriptedPool
) -> None:
    texts = {**files(), "headgate.yml": HEAD.replace("{pools:", "{placement: spread, pools:")}
    reviewed = lane.plan(two, texts, EVERYTHING)
    assert {node.pool for node in reviewed.nodes if node.pool} == {"large"}, "it has no capacity"
    nodes = tuple(replace(node, pool="small") if node.table == "b" else node for node in reviewed.nodes)
    changed = replace(reviewed, nodes=nodes)
    assert lane.drive(two, lane.submit(two, replace(changed, hash=plan_hash(changed)))) == "done"
    settle(two)
    assert (sorted(small.running), sorted(large.running)) == (["b@v1"], ["a@v1", "c@v1"])
    again = lane.plan(two, {**texts, **edited_b()}, MOVE)
    assert [node.pool for node in again.nodes if node.table == "b"] == ["small"], "it stays"
    assert lane.drive(two, lane.submit(two, again)) == "done" and list(small.running) == ["b@v1"]


def edited_b() -> dict[str, str]:
    path = "pipelines/facts/p/b/sql-scripts/dml.b.sql"
    return {path: small_project.texts()[path].rstrip().rstrip(";") + " WHERE id > 0;"}


def test_a_round_of_one_pool_judges_no_statement_of_another(
    begun: AgentContext, small: ScriptedPool, large: ScriptedPool
) -> None:
    of = rounds(begun)
    large.running.clear()
    reconcile(begun, of, "small")
    assert deployed(begun, "b").state == "running" and not large.running
    reconcile(begun, of, "large")
    assert list(large.running) == ["b@v1"] and deployed(begun, "b").restarts == 1
    assert "b@v1" not in small.running


def test_a_query_in_the_wrong_pool_is_stopped_there_and_only_there(
    begun: AgentContext, small: ScriptedPool, large: ScriptedPool
) -> None:
    of = rounds(begun)
    small.running["b@v1"] = large.running["b@v1"]
    reconcile(begun, of)
    assert "b@v1" not in small.running and list(large.running) == ["b@v1"]
    said = "a query of it was active in the pool small, but it belongs to large: it was stopped in small"
    assert [event.summary for event in begun.ledger.events() if event.summary == said] == [said]
    count = len(begun.ledger.events())
    reconcile(begun, of)
    assert len(begun.ledger.events()) == count


def test_no_pointer_moves_while_a_pool_that_has_them_does_not_answer(
    begun: AgentContext, small: ScriptedPool, large: ScriptedPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_driver, "POOL_WAIT_S", 0.01)
    before = dict(small.views)
    large.reachable = False
    request = PlanRequest(tables=(T("c"),), rebuild=True, children="none")
    run_id = lane.submit(begun, lane.plan(begun, files(b="large"), request))
    assert lane.drive(begun, run_id) == "failed"
    assert small.views == large.views == before
    row = begun.ledger.run(run_id)
    assert row is not None
    (note,) = [step.note for step in row.steps if step.do == "swap"]
    assert note.startswith("no pointer moves while the pool large does not answer")


def test_a_local_pool_that_is_down_gets_the_pointers_when_it_starts(
    begun: AgentContext, small: ScriptedPool, large: ScriptedPool
) -> None:
    large.is_down = True
    request = PlanRequest(tables=(T("c"),), rebuild=True, children="none")
    assert carried_out(begun, files(b="large"), request) == "done"
    assert small.views["c"] == "c__v2" and large.views["c"] == "c__v1"
    # It starts during the swap, with a catalog from before.
    large.is_down = False
    of = rounds(begun)
    of["large"].catalog._register_at = -1.0
    reconcile(begun, of, "large")
    assert large.views["c"] == "c__v2" and "c__v2" in large.tables


@pytest.mark.parametrize("drained", [True, False])
def test_a_swap_waits_for_no_drained_pool_and_its_pointers_move_when_it_answers(
    drained: bool, begun: AgentContext, small: ScriptedPool, large: ScriptedPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_driver, "POOL_WAIT_S", 0.01)
    begun.ledger.declare_pools([(pool.name, pool) for pool in POOLS])
    if drained:
        assert carried_out(begun, files(), MOVE) == "done"
    begun.ledger.cordon_pool("large", 1.0, "bob")
    large.reachable = False
    request = PlanRequest(tables=(T("c"),), rebuild=True, children="none")
    texts = {**files(b="small" if drained else "large"), "headgate.yml": HEAD.replace("{statements: 3}", "{}")}
    run_id = lane.submit(begun, lane.plan(begun, texts, request))
    assert lane.drive(begun, run_id) == ("done" if drained else "failed")
    assert small.views["c"] == ("c__v2" if drained else "c__v1") and large.views["c"] == "c__v1"
    if drained:
        large.reachable = True
        reconcile(begun, rounds(begun), "large")
        assert large.views["c"] == "c__v2"


def test_a_wrong_pointer_is_corrected_in_its_own_pool(
    begun: AgentContext, small: ScriptedPool, large: ScriptedPool
) -> None:
    large.views["a"] = "b__v1"
    PointerCheck(begun, begun.pools.named("small")).round()
    assert large.views["a"] == "b__v1"
    PointerCheck(begun, begun.pools.named("large")).round()
    assert large.views["a"] == "a__v1"


def test_a_table_made_while_a_pool_was_away_is_added_before_a_reader_starts_there(
    two: AgentContext, small: ScriptedPool, large: ScriptedPool
) -> None:
    large.is_down = True
    assert carried_out(two, files(), PlanRequest(tables=(T("a"),), children="none")) == "done"
    assert "a__v1" not in large.tables
    large.is_down = False
    assert carried_out(two, files(b="large"), PlanRequest(tables=(T("b"),), children="none")) == "done"
    assert "a__v1" in large.tables and list(large.running) == ["b@v1"]


def again() -> PlanRequest:
    """Return the request of a move, which can be made repeatedly."""
    return replace(MOVE, nonce=next(NONCES))


def moved(agent: AgentContext) -> Plan:
    made = lane.plan(agent, files(), MOVE)
    (node,) = [node for node in made.nodes if node.table == "b"]
    assert (node.change, node.action) == ("pool", "restart")
    (undo,) = [undo for undo in made.undo if undo.tables == ("b",)]
    assert (undo.act, undo.replay_rows) == ("plan undo", 0), undo.words
    return made


def test_a_move_stops_proves_and_starts_on_the_same_checkpoint(
    begun: AgentContext, small: ScriptedPool, large: ScriptedPool
) -> None:
    before = deployed(begun, "b")
    assert lane.drive(begun, lane.submit(begun, moved(begun))) == "done"
    settle(begun)
    after = deployed(begun, "b")
    assert not large.running and sorted(small.running) == ["a@v1", "b@v1", "c@v1"]
    assert (after.checkpoint, after.version, after.checkpoint_id) == (before.checkpoint, 1, before.checkpoint_id)
    assert after.pool is not None and after.pool.name == "small"
    again = lane.plan(begun, files(), MOVE)
    assert not again.steps, "it is where it is declared"
    assert carried_out(begun, files(b="large"), MOVE) == "done", "a move back undoes it"
    assert list(large.running) == ["b@v1"] and "b@v1" not in small.running


@pytest.mark.parametrize("silent", ["stop", "active"])
def test_nothing_starts_in_the_new_pool_unless_the_old_one_is_proved_silent(
    silent: str, begun: AgentContext, small: ScriptedPool, large: ScriptedPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_driver, "POOL_WAIT_S", 0.01)
    run_id = lane.submit(begun, moved(begun))
    if silent == "stop":
        large.reachable = False
    else:
        queries = type(large.connection().queries)
        monkeypatch.setattr(queries, "stop", lambda *_, **__: None)
    assert lane.drive(begun, run_id) == "failed"
    assert "b@v1" not in small.running and list(large.running) == ["b@v1"]
    found = deployed(begun, "b")
    assert found.pool is not None and (found.pool.name, found.wanted) == ("large", "running")
    row = begun.ledger.run(run_id)
    assert row is not None
    (note,) = [step.note for step in row.steps if step.state == "failed"]
    assert "b@v1 does not move to small: its query in the pool large must be proved to be gone first" in note


def test_a_move_to_a_pool_that_would_refuse_the_start_stops_nothing(
    begun: AgentContext, small: ScriptedPool, large: ScriptedPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_driver, "POOL_WAIT_S", 0.01)
    run_id = lane.submit(begun, moved(begun))
    small.restored = False
    assert lane.drive(begun, run_id) == "failed"
    assert list(large.running) == ["b@v1"] and not large.stops


LOST = replace(MOVE, children="none", drains="large", drains_to="small", lost=True)


def test_a_statement_of_a_local_server_that_has_ended_moves_without_asking_it(
    begun: AgentContext, small: ScriptedPool, large: ScriptedPool
) -> None:
    run_id = lane.submit(begun, moved(begun))
    large.reachable, large.is_down = False, True
    large.running.clear()
    assert lane.drive(begun, run_id) == "done" and "b@v1" in small.running
    said = (
        "taken from the pool large, of which nothing runs: its server on this machine has ended; it continues in small"
    )
    assert [each.summary for each in begun.ledger.events() if each.summary.startswith(said)]


@pytest.mark.parametrize("stated", [True, False])
def test_a_statement_of_a_lost_pool_moves_only_if_somebody_states_that_nothing_runs_there(
    stated: bool, begun: AgentContext, small: ScriptedPool, large: ScriptedPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_driver, "POOL_WAIT_S", 0.01)
    run_id = lane.submit(begun, lane.plan(begun, files(), LOST if stated else MOVE))
    large.reachable = False
    assert lane.drive(begun, run_id) == ("done" if stated else "failed")
    assert ("b@v1" in small.running) is stated
    if not stated:
        return
    row = begun.ledger.run(run_id)
    assert row is not None
    said = f"of which nothing runs: {row.actor} has stated that nothing runs there any more; it continues in small"
    assert any(said in each.summary for each in begun.ledger.events())
    # The pool was not gone: its query is found and stopped as soon as it answers.
    large.reachable = True
    reconcile(begun, rounds(begun))
    assert "b@v1" not in large.running and "b@v1" in small.running


SAID = {"manager": "the master spark://m:7077", "application": "app-1"}


@pytest.mark.parametrize("ended", [True, False])
def test_the_manager_of_a_cluster_is_asked_once_more_before_a_statement_moves(
    ended: bool, begun: AgentContext, small: ScriptedPool, large: ScriptedPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_driver, "POOL_WAIT_S", 0.01)
    run_id = lane.submit(begun, lane.plan(begun, files(), LOST))
    large.reachable = False
    runs = ManagerWord.RUNS.of(**SAID, state="RUNNING", kill="K")
    large.manager_says = ManagerWord.ENDED.of(**SAID, state="KILLED", at="T") if ended else runs
    assert lane.drive(begun, run_id) == ("done" if ended else "failed")
    assert ("b@v1" in small.running) is ended
    row, events = begun.ledger.run(run_id), [each.summary for each in begun.ledger.events()]
    assert row is not None
    says = "the master spark://m:7077 says that its application app-1 is"
    if ended:
        assert any(f"nothing runs there any more, and {says} KILLED since T; it continues" in each for each in events)
    else:
        assert any(f"{says} RUNNING" in step.note for step in row.steps if step.state == "failed")


@pytest.mark.parametrize(
    ("owner", "told", "said"),
    [
        ("7d3e", {"epoch": 3, "machine": "m2"}, "belongs to another ledger (7d3e, epoch 3, on machine m2)"),
        ("ledger", {"epoch": 3, "machine": "m2"}, "has epoch 3, on machine m2, but the ledger has epoch 1"),
        ("ledger", {"epoch": 1, "machine": "m2"}, "was written on machine m2, and this is machine m1"),
    ],
)
def test_a_statement_of_a_lost_pool_that_another_agent_has_taken_over_does_not_move(
    owner: str, told: dict[str, Any], said: str, begun: AgentContext, small: ScriptedPool, large: ScriptedPool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(run_driver, "POOL_WAIT_S", 0.01)
    run_id = lane.submit(begun, lane.plan(begun, files(), LOST))
    large.reachable, scripted = False, begun.files
    assert isinstance(scripted, ScriptedFiles)
    scripted.owner, scripted.machine = owner, "m1"
    scripted.told.update(told)
    assert lane.drive(begun, run_id) == "failed" and "b@v1" not in small.running
    row = begun.ledger.run(run_id)
    assert row is not None and deployed(begun, "b").pool.name == "large"  # type: ignore[union-attr]  # Recorded.
    (note,) = [step.note for step in row.steps if step.state == "failed"]
    assert f"the checkpoint of b@v1 {said}" in note


@pytest.mark.parametrize("ahead_s", [0.0, 3600.0, -3600.0])
def test_a_statement_that_commits_after_it_was_said_to_be_gone_does_not_move(
    ahead_s: float, begun: AgentContext, small: ScriptedPool, large: ScriptedPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the clock by which the files are dated."""
    monkeypatch.setattr(run_driver, "POOL_WAIT_S", 0.01)
    run_id = lane.submit(begun, lane.plan(begun, files(), LOST))
    large.reachable = False
    row, read = begun.ledger.run(run_id), begun.files.read
    assert row is not None and isinstance(begun.files, ScriptedFiles)
    begun.files.clock_ahead_s = ahead_s

    def goes_on(checkpoint: str) -> Any:
        found = read(checkpoint)
        return found and replace(found, committed_at=row.started_at + ahead_s + 1)

    monkeypatch.setattr(begun.files, "read", goes_on)
    assert lane.drive(begun, run_id) == "failed" and "b@v1" not in small.running
    found = begun.ledger.run(run_id)
    assert found is not None
    (note,) = [step.note for step in found.steps if step.state == "failed"]
    assert "was committed after the run began: a query goes on" in note


def test_a_kill_at_every_point_of_a_move_from_a_lost_pool_leaves_one_query(
    begun: AgentContext, small: ScriptedPool, large: ScriptedPool
) -> None:
    at, killed = 0, True
    while killed:
        at, killed = at + 1, False
        run_id = lane.submit(begun, lane.plan(begun, files(), replace(LOST, nonce=next(NONCES))))
        large.reachable, query = False, large.running.pop("b@v1")
        watching = Watching(at, small, large)
        try:
            lane.drive(replace(begun, faults=watching), run_id)  # type: ignore[arg-type]  # Counts and kills.
        except lane.Killed:
            killed = True
            reconcile(begun, rounds(begun), "small")
            assert lane.drive(begun, run_id) == "done", watching.labels[-1]
        settle(begun)
        assert "b@v1" in small.running and not large.running
        large.reachable = True
        assert carried_out(begun, files(b="large"), again()) == "done"
        assert list(large.running) == ["b@v1"] and query.name == "b@v1"
    assert any(label.startswith("move proved") for label in watching.labels)


class Watching(lane.KillAt):
    """Fault points that check at each that no statement runs in both pools, and may kill."""

    def __init__(self, at: int, *pools: ScriptedPool) -> None:
        super().__init__(at)
        self.pools, self.labels = pools, list[str]()

    def pass_by(self, label: str) -> None:
        self.labels.append(label)
        assert not set.intersection(*(set(pool.running) for pool in self.pools)), f"two run at {label}"
        super().pass_by(label)


def test_a_kill_at_every_point_of_a_move_leaves_one_query(
    begun: AgentContext, small: ScriptedPool, large: ScriptedPool, tmp_path: Path
) -> None:
    """Moves back and forth, killed at one point after another, each followed by a round of a new agent and the rest."""
    at, to_small, killed = 0, True, True
    while killed:
        at, killed = at + 1, False
        run_id = lane.submit(begun, lane.plan(begun, files() if to_small else files(b="large"), again()))
        watching = Watching(at, small, large)
        try:
            lane.drive(replace(begun, faults=watching), run_id)  # type: ignore[arg-type]  # Counts and kills.
        except lane.Killed:
            killed = True
            reconcile(begun, rounds(begun))
            assert len([pool for pool in (small, large) if "b@v1" in pool.running]) == 1, watching.labels[-1]
            assert lane.drive(begun, run_id) == "done", watching.labels[-1]
        settle(begun)
        assert {"b@v1" in small.running, "b@v1" in large.running} == {True, False}
        assert ("b@v1" in small.running) is to_small
        to_small = not to_small
    assert any(label.startswith("move proved") for label in watching.labels)


@pytest.mark.parametrize("seed", range(8))
def test_random_moves_kills_and_commands_never_run_a_statement_twice(
    seed: int, begun: AgentContext, small: ScriptedPool, large: ScriptedPool
) -> None:
    draw, to_small = random.Random(seed), True
    of, acts = rounds(begun), fast_lane(begun)
    where = files(), files(b="large")
    for _ in range(25):
        match draw.choice(("move", "kill", "stop", "start", "round", "lose")):
            case "move" | "kill" as act:
                made = lane.plan(begun, where[0] if to_small else where[1], again())
                if not made.steps or begun.ledger.open_runs():
                    continue
                run_id, to_small = lane.submit(begun, made), not to_small
                watching = Watching(draw.randrange(1, 16) if act == "kill" else 0, small, large)
                try:
                    lane.drive(replace(begun, faults=watching), run_id)  # type: ignore[arg-type]  # As above.
                except lane.Killed:
                    # A new agent.
                    of, acts = rounds(begun), fast_lane(begun)
            case "stop":
                acts.stop((T("b"),), 0.0, by="bob")
            case "start":
                acts.start((T("b"),), 0.0, by="bob")
            case "lose":
                draw.choice((small, large)).running.pop("b@v1", None)
            case _:
                reconcile(begun, of, *draw.sample(("small", "large"), 2))
        for row in begun.ledger.open_runs():
            if draw.random() < 0.7:
                lane.drive(begun, row.id)
        assert not set(small.running) & set(large.running)
        settle(begun)
    for row in begun.ledger.open_runs():
        lane.drive(begun, row.id)
    acts.start((T("b"),), 0.0, by="bob")
    reconcile(begun, of)
    found = deployed(begun, "b")
    assert found.pool is not None
    home, other = (small, large) if found.pool.name == "small" else (large, small)
    assert "b@v1" in home.running and "b@v1" not in other.running


def test_an_operators_stop_reaches_a_statement_in_the_pool_where_it_is(
    begun: AgentContext, small: ScriptedPool, large: ScriptedPool
) -> None:
    (outcome,) = fast_lane(begun).stop((T("b"),), 0.0, by="bob")
    assert outcome.result == "stopped" and not large.running and large.stops == ["b@v1"] and not small.stops


def test_a_stop_does_not_wait_for_a_pool_that_does_not_answer(
    begun: AgentContext, small: ScriptedPool, large: ScriptedPool
) -> None:
    large.reachable = False
    by_table = {each.table: each for each in fast_lane(begun).stop((T("a"), T("b"), T("c")), 0.0, by="bob")}
    assert (by_table[T("a")].result, by_table[T("c")].result) == ("stopped", "stopped")
    assert by_table[T("b")].result == "waits" and not small.running


def test_the_pool_of_reads_is_the_first_that_can_be_reached(
    two: AgentContext, small: ScriptedPool, large: ScriptedPool
) -> None:
    small.is_down = True
    large.tables["x"] = "ddl"
    assert two.pools.reachable().tables.has("x")
    large.restored = False
    with pytest.raises(PoolUnreachable, match="down"):
        two.pools.reachable()


def test_a_refused_pointer_in_the_second_pool_moves_the_first_back(
    begun: AgentContext, small: ScriptedPool, large: ScriptedPool
) -> None:
    before = dict(small.views)
    large.refuse_table["c"] = EngineRefused("the metastore says no", error_class="METASTORE")
    request = PlanRequest(tables=(T("c"),), rebuild=True, children="none")
    run_id = lane.submit(begun, lane.plan(begun, files(b="large"), request))
    assert lane.drive(begun, run_id) == "failed"
    assert small.views == before and large.views == before
