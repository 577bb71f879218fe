"""A held release and a rollback over a scripted pool, killed at every point while another actor works."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import small_project
from agent_scenarios import fast_lane, stop_by_operator

from core.model.names import TableName as T
from core.plan.model import Plan
from core.plan.request import PlanRequest
from core.run.model import OperatorControl
from core.run.release import ReleaseState
from pipelines.agent.context import AgentContext
from pipelines.agent.runs.run_driver import RunDriver
from state.ledger import LedgerReader
from state.releases import release_of_run
from tests.pipelines.agent.runs import test_run_driver as lane
from tests.pipelines.agent.runs.test_run_driver import fast_gates  # noqa: F401  # A fixture of every test here.

pytestmark = pytest.mark.drill

LANDED = "SELECT id, kind FROM STREAM landed"
FILES = small_project.texts(d=LANDED)
EDITED = small_project.texts(a="SELECT id, upper(kind) AS kind FROM STREAM landed", d=LANDED)
HELD = PlanRequest(tables=(T("a"),), rebuild=True, children="all", hold=True)
ROLLBACK = PlanRequest(verb="rollback", tables=(T("a"),))
WORD, CANCEL, RETRY = OperatorControl("swap", by="bob"), OperatorControl("cancel"), OperatorControl("retry")


@dataclass
class Watched(lane.KillAt):
    """Fault points that record their labels, and confirm a run once it is held."""

    held: Callable[[], object] = field(default=lambda: None)
    labels: list[str] = field(default_factory=list)

    def pass_by(self, label: str) -> None:
        self.labels.append(label)
        super().pass_by(label)
        if label.endswith("hold gate") and label.startswith("after"):
            self.held()


@dataclass
class Trial:
    """An environment with a submitted release or rollback."""

    agent: AgentContext
    pool: Any
    made: Plan
    run_id: str = ""

    def __post_init__(self) -> None:
        self.run_id = lane.submit(self.agent, self.made)
        versions = {(str(node.table), node.from_version, node.version) for node in self.made.nodes if node.from_version}
        self.before = {table: f"{table}__v{old}" for table, old, _ in versions}
        self.after = {table: f"{table}__v{new}" for table, _, new in versions}

    def drive(self, *words: OperatorControl, at: int = 0) -> tuple[str, list[str]]:
        """Drive the run as a new agent does; return its state, or `killed`, and the points it passed."""
        watched = Watched(at, held=lambda: self.tell(WORD))
        for word in words:
            self.tell(word)
        row = self.agent.ledger.run(self.run_id)
        assert row is not None
        if CANCEL not in words and any((step.do, step.state) == ("hold", "gate") for step in row.steps):
            self.tell(WORD)
        killable = replace(self.agent, faults=watched)  # type: ignore[arg-type]  # Counts and kills.
        try:
            RunDriver(killable, row, threading.Event()).drive()
        except lane.Killed:
            return "killed", watched.labels
        lane.settle(self.agent, self.pool)
        return self.state(), watched.labels

    def state(self) -> str:
        row = self.agent.ledger.run(self.run_id)
        assert row is not None
        return row.state

    def tell(self, word: OperatorControl) -> None:
        self.agent.ledger.put_run_command(self.run_id, word, at=1.0)

    def release(self) -> ReleaseState:
        row = self.agent.ledger.run(self.run_id)
        assert row is not None
        with LedgerReader(self.agent.ledger.path) as reader:
            found = release_of_run(reader, row, self.made, self.agent.clock())
        assert found is not None
        return found.state

    def wanted(self) -> set[str]:
        every = self.agent.ledger.deployments()
        wanted = {f"{d.table}@v{d.version}" for d in every if d.wanted == "running" and not d.external}
        return {name for name in wanted if not name.startswith("d@")}

    def serving(self) -> dict[str, str]:
        """Return the serving versions of the released tables, and assert that every pointer leads to them."""
        every = self.agent.ledger.deployments()
        served = {str(d.table): f"{d.table}__v{d.version}" for d in every if d.active and not d.external}
        assert self.pool.views == served
        return {table: version for table, version in served.items() if table != "d"}

    def running(self) -> set[str]:
        return {name for name in self.pool.running if not name.startswith("d@")}


Begun = Callable[[str], Trial]


def names(pointers: dict[str, str]) -> set[str]:
    """Return the query names of the versions to which pointers lead."""
    return {version.replace("__", "@") for version in pointers.values()}


@pytest.fixture(params=["release", "rollback"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=[pytest.param(n, marks=pytest.mark.long) if n else n for n in range(3)])
def third(request: pytest.FixtureRequest) -> int:
    """The third of the points to try. The second and third parts are tried in separate runs."""
    return int(request.param)


@pytest.fixture
def begun(kind: str, agent: AgentContext, pool: Any, tmp_path: Path) -> Begun:
    lane.deploy(agent, pool, FILES)
    made = lane.plan(agent, EDITED, HELD)
    if kind == "rollback":
        assert Trial(agent, pool, made).drive()[0] == "done"
        made = lane.plan(agent, EDITED, ROLLBACK)
    kept = lane.KeptAgent(agent, tmp_path / "kept")

    def make(name: str) -> Trial:
        fresh = kept.again(tmp_path / name)
        return Trial(fresh, fresh.pools.default.client, made)

    return make


@pytest.fixture
def points(begun: Begun, third: int) -> range:
    trial = begun("counts")
    state, labels = trial.drive()
    assert (state, trial.serving(), trial.release()) == ("done", trial.after, ReleaseState.DONE)
    if trial.made.request.verb == "deploy":
        assert {"validate", "hold"} <= {step.do.value for step in trial.made.steps}
    assert len(labels) > 60
    return range(1 + third, len(labels) + 1, 3)


def test_a_cancel_after_a_kill_at_any_point_leaves_what_served_or_what_was_swapped_in(
    begun: Begun, points: range
) -> None:
    for at in points:
        trial = begun(str(at))
        state, labels = trial.drive(at=at)
        where = (at, labels[-1])
        assert state == "killed", where
        # A run that has ended accepts no more commands.
        state, _ = trial.drive(*() if trial.state() == "done" else (CANCEL,))
        if trial.serving() == trial.after:
            assert trial.release() is ReleaseState.DONE, where
            assert trial.wanted() >= names(trial.after), where
        else:
            assert (state, trial.release()) == ("cancelled", ReleaseState.ABORTED), where
            assert trial.serving() == trial.before, where
            assert trial.running() == trial.wanted() == names(trial.before), where
        trial.agent.ledger.close()


def test_a_stop_after_a_kill_at_any_point_is_respected_and_a_retry_ends_the_run(begun: Begun, points: range) -> None:
    ends = set()
    for at in points:
        trial = begun(str(at))
        _, labels = trial.drive(at=at)
        where = (at, labels[-1])
        stop_by_operator(trial.agent, trial.pool, "b").join()
        state, _ = trial.drive()
        ends.add(state)
        if state == "failed":
            assert trial.serving() == trial.before, where
            assert not any(name.startswith("b@") for name in trial.running()), where
            assert trial.release() is ReleaseState.NEEDS_YOU, where
            trial.agent.ledger.retry_run(trial.run_id, serial=trial.agent.locks.announce_start())
            state, _ = trial.drive(RETRY)
        assert (state, trial.serving(), trial.release()) == ("done", trial.after, ReleaseState.DONE), where
        trial.agent.ledger.close()
    assert ends == {"done", "failed"}


def restarts_one(trial: Trial) -> None:
    fast_lane(trial.agent).restart((T("b"),), time.monotonic(), by="bob")


def releases_beside(trial: Trial) -> None:
    request = PlanRequest(tables=(T("d"),), rebuild=True)
    assert Trial(trial.agent, trial.pool, lane.plan(trial.agent, EDITED, request)).drive()[0] == "done"
    assert trial.pool.views["d"] == "d__v2" and "d@v1" not in trial.pool.running


def deletes_beside(trial: Trial) -> None:
    request = PlanRequest(verb="delete", tables=(T("d"),))
    assert Trial(trial.agent, trial.pool, lane.plan(trial.agent, EDITED, request)).drive()[0] == "done"
    assert "d" not in trial.pool.views and not any(name.startswith("d@") for name in trial.pool.running)


def test_others_at_work_after_a_kill_at_any_point_neither_meet_the_run_nor_keep_it_from_its_end(
    begun: Begun, points: range
) -> None:
    acts = (restarts_one, releases_beside, deletes_beside)
    for at in points:
        trial = begun(str(at))
        _, labels = trial.drive(at=at)
        where = (at, labels[-1])
        acts[at // 3 % len(acts)](trial)
        state, _ = trial.drive()
        assert (state, trial.serving(), trial.release()) == ("done", trial.after, ReleaseState.DONE), where
        assert trial.running() == trial.wanted() == names(trial.after), where
        trial.agent.ledger.close()


def test_a_second_kill_some_points_after_the_first_changes_nothing(begun: Begun, points: range) -> None:
    expected: Any = None
    for at in points:
        trial = begun(str(at))
        trial.drive(at=at)
        state, _ = trial.drive(at=7)
        if state == "killed":
            state, _ = trial.drive()
        assert (state, trial.release()) == ("done", ReleaseState.DONE), at
        found = lane.picture(trial.agent, trial.pool)
        expected = expected or found
        assert found == expected, at
        trial.agent.ledger.close()
