"""A restored, cloned or moved environment is noticed and reported, and nothing starts until it is adopted."""

import errno
import fcntl
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import small_project
from agent_scenarios import fast_lane, in_a_thread, put_made
from ledger_rows import create_run, deployment_row, environment_row, run_row

from core.model.errors import Busy, ConfirmationNeeded, LedgerUnavailable, Refused, TryAgain
from core.model.names import TableName
from core.plan.request import PlanRequest
from core.policy.roles_and_rules import Policy
from core.ports.spark import QueryStart
from pipelines.agent.context import AgentContext
from pipelines.agent.identity import environment_identity
from pipelines.agent.identity.environment_identity import EnvironmentIdentity, difference
from pipelines.agent.reconciler import BeforeRound, Reconciler
from pipelines.agent.requests.adoption import Adoption
from pipelines.agent.statements.deployment_lifecycle import start
from pipelines.local_pool.process_locks import process_start
from pipelines.storage import data_folder_records
from pipelines.storage.data_folder_records import MARK_FILE, EnvironmentMark, read_mark
from pipelines.storage.file_system import is_denied
from state.backup import back_up, restore
from state.emergency_journal import EmergencyJournal
from state.ledger import create_or_open
from tests.pipelines.agent.runs.test_run_driver import (
    drive,
    fast_gates,  # noqa: F401  # A fixture of every test here.
    plan,
    submit,
)

A = TableName("a")
OURS = EnvironmentMark("ledger", 1, "m", "/home", 7)


class Place:
    """A home and a data folder on disk, and the agents that serve them one after another."""

    def __init__(self, root: Path) -> None:
        self.home, self.data = root / "home", root / "data"
        self.machine = "m-1"

    def serve(self, rounds: int = 3, ledger_id: str = "ledger") -> str:
        """Run an agent that compares and increments the counter, and end it; return its doubt."""
        facts = environment_row(ledger_id=ledger_id)
        with create_or_open(self.home / "ledger.db", facts) as ledger:
            identity = self.identity(ledger)
            for _ in range(rounds):
                identity.keep()
            assert ledger.facts().doubt == identity.doubt
            return identity.doubt

    def identity(self, ledger: Any, **more: Any) -> EnvironmentIdentity:
        place = {"data": str(self.data), "home": str(self.home), "machine": self.machine}
        return EnvironmentIdentity(ledger, **place, clock=lambda: 1.0, **more)

    def copy(self, what: str) -> Callable[[], None]:
        """Copy home or data folder, and return a function that restores the copy."""
        place, kept = getattr(self, what), self.home.parent / f"{what} then"
        shutil.copytree(place, kept)

        def restore() -> None:
            shutil.rmtree(place)
            shutil.copytree(kept, place)

        return restore


def full(*_: Any) -> None:
    raise LedgerUnavailable("the ledger cannot be written: database or disk is full")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    made = Place(tmp_path)
    assert made.serve() == ""
    return made


def test_a_world_that_nobody_touched_is_in_no_doubt_over_agents_and_kills(place: Place) -> None:
    for rounds in (1, 5, 1):
        assert place.serve(rounds) == ""
    mark = json.loads((place.data / MARK_FILE).read_text())
    assert (mark["count"], mark["ledger"], mark["home"]) == (10, "ledger", str(place.home))
    (place.data / MARK_FILE).write_text(json.dumps(mark | {"count": 9}))
    assert place.serve() == "", "killed between the ledger and the mark"


def test_a_ledger_that_could_not_count_on_is_no_older_copy(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    with create_or_open(place.home / "ledger.db", environment_row()) as ledger:
        identity = place.identity(ledger)
        identity.keep()
        with monkeypatch.context() as patch:
            patch.setattr(type(ledger), "put_mark", full)
            for _ in range(3):
                with pytest.raises(LedgerUnavailable):
                    identity.keep()
    assert place.serve() == "", "ended while its disk was full"
    with create_or_open(place.home / "ledger.db", environment_row()) as ledger:
        identity = place.identity(ledger)
        with monkeypatch.context() as patch:
            patch.setattr(type(ledger), "put_mark", full)
            with pytest.raises(LedgerUnavailable):
                identity.keep()
        identity.keep()
    assert place.serve() == "", "there was space again"


def test_a_ledger_of_an_earlier_release_begins_to_count(tmp_path: Path) -> None:
    place = Place(tmp_path)
    (tmp_path / "data" / "tables").mkdir(parents=True)
    assert place.serve() == "" and (place.data / MARK_FILE).is_file()


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("home", "the ledger is an older copy: its mark is 3, and the data folder's is 6"),
        ("data", "the data folder is an older copy: its mark is 3, and the ledger's is 6"),
    ],
)
def test_a_copy_that_is_put_back_is_noticed(what: str, said: str, place: Place) -> None:
    restore = place.copy(what)
    assert place.serve() == ""
    restore()
    assert place.serve() == said
    assert place.serve() == said, "it stays in doubt"


def test_a_cloned_home_machine_and_data_folder_are_noticed(place: Place, tmp_path: Path) -> None:
    shutil.copytree(place.home, tmp_path / "clone")
    clone = Place(tmp_path)
    clone.home = tmp_path / "clone"
    assert clone.serve() == f"this home is {clone.home}, and the data folder was last used from {place.home}"
    elsewhere = Place(tmp_path)
    elsewhere.machine = "m-2"
    assert elsewhere.serve() == "this is machine m-2, and the data folder was last used from machine m-1"
    shutil.rmtree(place.data)
    assert place.serve() == "the data folder no longer has a mark: it was emptied, or is a different folder"


def test_a_move_that_the_policy_allows_is_an_event_and_no_doubt(place: Place) -> None:
    place.machine = "m-2"
    with create_or_open(place.home / "ledger.db", environment_row()) as ledger:
        identity = place.identity(ledger, may_move=lambda: True)
        identity.keep()
        identity.refuse_doubt()
        (event,) = ledger.events()
        assert (event.kind, event.summary) == ("world", "moved from machine m-1 to m-2, as the policy allows")
    assert place.serve() == "", "the mark is of the new machine"


def test_a_move_that_the_policy_allows_excuses_nothing_else(place: Place) -> None:
    restore = place.copy("home")
    assert place.serve() == ""
    restore()
    place.machine = "m-2"
    with create_or_open(place.home / "ledger.db", environment_row()) as ledger:
        identity = place.identity(ledger, may_move=lambda: True)
        identity.keep()
        assert identity.doubt == "the ledger is an older copy: its mark is 3, and the data folder's is 6"
        assert [event.summary for event in ledger.events()] == [identity.doubt]


def test_a_new_ledger_over_an_old_data_folder_is_noticed(place: Place) -> None:
    shutil.rmtree(place.home)
    assert (
        place.serve(ledger_id="new")
        == f"the data folder belongs to ledger ledger of {place.home}, and this is ledger new"
    )


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (
            {"ledger": "f24a", "home": "/other", "epoch": 2},
            "while this agent was running, the data folder was taken over by ledger f24a of /other, epoch 2",
        ),
        (
            {"ledger": "f24a", "home": "/other", "machine": "m-2"},
            "while this agent was running, the data folder was taken over by ledger f24a of /other on machine m-2, "
            "epoch 1",
        ),
        (
            {"count": 99},
            "the mark of the data folder was replaced while this agent was running: its count is 99, and was 4",
        ),
    ],
)
def test_the_new_owner_of_the_data_folder_is_named_but_not_whether_it_still_serves(
    changed: dict[str, Any], said: str, place: Place
) -> None:
    with create_or_open(place.home / "ledger.db", environment_row()) as ledger:
        identity = place.identity(ledger)
        identity.keep()
        mark = place.data / MARK_FILE
        mark.write_text(json.dumps(json.loads(mark.read_text()) | changed))
        identity.keep()
        assert identity.doubt == said
        with pytest.raises(Refused, match="nothing is started: "):
            identity.refuse_doubt()


def test_an_unreachable_data_folder_raises_no_doubt_but_nothing_starts_meanwhile(place: Place) -> None:
    with create_or_open(place.home / "ledger.db", environment_row()) as ledger:
        identity = place.identity(ledger)
        with pytest.raises(Busy):
            identity.refuse_doubt()
        identity.keep()
        identity.refuse_doubt()
        (place.data / MARK_FILE).rename(place.data / "away")
        with pytest.raises(TryAgain, match="the mark is gone"):
            identity.keep()
        with pytest.raises(Busy, match="the mark is gone"):
            identity.refuse_doubt()
        (place.data / "away").rename(place.data / MARK_FILE)
        identity.keep()
        identity.refuse_doubt()


def test_a_data_folder_that_may_not_be_written_is_named_with_its_remedy(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(*_: Any) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    with create_or_open(place.home / "ledger.db", environment_row()) as ledger:
        identity = place.identity(ledger)
        with monkeypatch.context() as patched:
            patched.setattr(data_folder_records, "write_json", denied)
            with pytest.raises(TryAgain):
                identity.keep()
            with pytest.raises(Busy, match="cannot be reached: Permission denied") as waits:
                identity.refuse_doubt()
            assert identity.fault is not None and is_denied(identity.fault) and "read and write" in waits.value.remedy
        identity.keep()
        assert identity.fault is None


def test_an_adoption_during_a_check_of_the_mark_leaves_no_doubt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, adopting = Place(tmp_path), list[threading.Thread]()
    assert place.serve() == ""
    with create_or_open(place.home / "ledger.db", environment_row(ledger_id="ledger")) as ledger:
        identity = place.identity(ledger)
        identity.keep()

        def adopted_meanwhile(data: str) -> EnvironmentMark | None:
            found = read_mark(data)
            if not adopting:
                adopting.append(in_a_thread(lambda: identity.adopt(lambda epoch: None)))
                # The adoption ends here, or waits for the comparison with which it overlapped.
                adopting[0].join(1)
            return found

        monkeypatch.setattr(environment_identity, "read_mark", adopted_meanwhile)
        identity.keep()
        adopting[0].join(30)
        identity.keep()
        assert (identity.doubt, ledger.facts().doubt, ledger.facts().epoch) == ("", "", 2)
        assert [event.summary for event in ledger.events() if event.kind == "world"] == []


@pytest.mark.parametrize("field", ["ledger", "epoch", "machine", "home", "count"])
def test_every_part_of_the_mark_counts(field: str) -> None:
    other: Any = {"ledger": "x", "epoch": 2, "machine": "x", "home": "x", "count": 8}[field]
    assert difference(OURS, OURS) == difference(OURS, replace(OURS, count=6)) == ""
    assert difference(OURS, replace(OURS, **{field: other})) != ""
    assert difference(OURS, replace(OURS, machine="")) == "", "a machine without an id is not compared"


@pytest.fixture
def doubted(agent: AgentContext) -> AgentContext:
    """An environment whose ledger is behind its data folder, with one version that should be running."""
    data = Path(agent.layout.data)
    data.mkdir(parents=True)
    home = agent.places.home
    (data / MARK_FILE).write_text(json.dumps({"ledger": "ledger", "epoch": 1, "machine": "", "home": home, "count": 9}))
    identity = EnvironmentIdentity(agent.ledger, data=str(data), home=home, machine="", clock=lambda: 1.0)
    identity.keep()
    found = deployment_row(state="stopped", made_by="7f3a")
    agent.ledger.put_deployment(found)
    for folder in (found.folder, found.checkpoint):
        agent.files.prepare(folder, {"run": "7f3a"})
    return replace(agent, identity=identity)


def test_in_doubt_nothing_starts_no_step_acts_and_a_stop_works(doubted: AgentContext, pool: Any) -> None:
    found = doubted.ledger.deployment(A, 1)
    assert found is not None
    with pytest.raises(Refused, match="the ledger is an older copy") as refused:
        start(doubted, found, stops=0)
    assert refused.value.remedy == "headgate adopt"
    run_id = submit(
        doubted, plan(doubted, small_project.texts(), PlanRequest(tables=(TableName("b"),), children="none"))
    )
    assert drive(doubted, run_id) == "failed"
    assert (pool.starts, pool.tables) == ([], {})
    acts = Reconciler(doubted, EmergencyJournal(Path(doubted.folder, "emergency.jsonl")))
    acts.restore(doubted.pools.default.connection())
    assert (list(pool.tables), pool.views) == (["a__v1"], {}), "an older ledger moves no pointer"
    fast_lane(doubted).stop((A,), 0.0, by="bob")
    assert pool.stops == ["a@v1"]


def test_an_adoption_announces_its_actions_asks_and_starts_an_epoch(doubted: AgentContext, pool: Any) -> None:
    theirs = Path(doubted.layout.data, "tables", "a__v2")
    theirs.mkdir(parents=True)
    (theirs / "_headgate.json").write_text(json.dumps({"table": "a", "version": 2, "run": "91bc"}))
    pool.running["late@v3"] = QueryStart("late@v3", "", "late__v3", "parquet", "/c/late__v3", "")
    create_run(doubted.ledger, run_row("h", id="r-1", actor="ana"))
    adoption = Adoption(doubted)
    found = adoption.findings()
    assert found["doubt"] == "the ledger is an older copy: its mark is 0, and the data folder's is 9"
    assert found["lines"] == [
        "a@v1: continues after batch 1, wanted running",
        f"{theirs} of run 91bc is not in the registry and has no record: it stays as it is, and version 2 of a is not "
        "used again",
        "run r-1 of ana is running: it continues",
        "query late@v3 runs and is not in the registry: it is left alone",
    ]
    with pytest.raises(ConfirmationNeeded, match="dev adopt"):
        adoption.carry_out("yes")
    assert doubted.ledger.facts().epoch == 1
    assert adoption.carry_out("dev adopt")["epoch"] == 2
    facts = doubted.ledger.facts()
    assert (facts.epoch, facts.doubt, doubted.files.epoch) == (2, "", 2)
    assert doubted.files.taken_over == ["/t/a__v1", "/c/a__v1"]  # type: ignore[attr-defined]  # Scripted.
    assert doubted.ledger.taken_versions() == {"a": 2}
    assert pool.views == {"a": "a__v1"}
    doubted.identity.refuse_doubt()
    mark = read_mark(doubted.layout.data)
    assert mark is not None and (mark.epoch, mark.count) == (2, facts.mark)
    with pytest.raises(Refused, match="nothing is in doubt"):
        adoption.carry_out("dev adopt")


@contextmanager
def server_over_data(agent: AgentContext, home: str, recorded_in: str = "") -> Iterator[int]:
    """Run a process that holds the data folder's lock as the server of a home, and end it; yield its process id.

    The server's record may be in another home, `recorded_in`, which is a copy.
    """
    with open(Path(agent.layout.data, "_headgate_pool"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        command = [sys.executable, "-c", "import time; time.sleep(600)"]
        server = subprocess.Popen(command, pass_fds=(lock.fileno(),))
        lock.write(str(server.pid))
    record = {"marker": "m", "port": 1, "pid": server.pid, "started": process_start(server.pid), "home": home}
    Path(recorded_in or home).mkdir(parents=True, exist_ok=True)
    Path(recorded_in or home, "pool.json").write_text(json.dumps(record))
    try:
        yield server.pid
    finally:
        server.kill()
        server.wait()


def test_nothing_is_adopted_while_a_server_of_another_home_runs_over_the_data_folder(
    doubted: AgentContext, tmp_path: Path
) -> None:
    doubted.places = replace(doubted.places, home=str(tmp_path / "copy"))
    adoption, theirs = Adoption(doubted), str(tmp_path / "living")
    mark = Path(doubted.layout.data, MARK_FILE)
    mark.write_text(json.dumps(json.loads(mark.read_text()) | {"home": theirs}))
    with server_over_data(doubted, theirs, recorded_in=doubted.places.home) as pid:
        for act in (adoption.findings, lambda: adoption.carry_out("dev adopt")):
            with pytest.raises(Refused, match=f"process {pid}, the server of {theirs}, runs over ") as refused:
                act()
            assert refused.value.remedy.startswith(f"headgate down for {theirs}, or kill {pid}, if nothing")
        mark.unlink()
        with pytest.raises(Refused, match=f"process {pid}, a server that this home does not know,"):
            adoption.findings()
    assert doubted.ledger.facts().epoch == 1
    assert adoption.findings()["doubt"] and adoption.carry_out("dev adopt")["epoch"] == 2


def test_the_server_of_this_home_may_run_while_its_world_is_adopted(doubted: AgentContext, tmp_path: Path) -> None:
    doubted.places = replace(doubted.places, home=str(tmp_path / "ours"))
    with server_over_data(doubted, doubted.places.home):
        assert Adoption(doubted).findings()["doubt"]
        assert Adoption(doubted).carry_out("dev adopt")["epoch"] == 2


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"epoch": 1}, "has epoch 1, but the ledger has epoch 2"),
        ({"epoch": 2, "machine": "m-2"}, "was written on machine m-2, and this is machine m-1"),
    ],
)
def test_a_checkpoint_of_another_epoch_or_machine_is_not_started_until_it_is_adopted(
    told: dict[str, Any], said: str, agent: AgentContext, pool: Any
) -> None:
    found = deployment_row(state="stopped")
    agent.ledger.put_deployment(found)
    agent.files.prepare(found.checkpoint, {})
    agent.files.epoch, agent.files.machine, agent.files.told = 2, "m-1", told  # type: ignore[attr-defined, misc]  # Scripted.
    with pytest.raises(Refused, match=said) as refused:
        start(agent, found, stops=0)
    assert "headgate adopt" in refused.value.remedy and pool.starts == []
    assert Adoption(agent).carry_out("dev adopt")["doubt"].startswith("the checkpoint of a@v1")
    assert found.checkpoint in agent.files.taken_over  # type: ignore[attr-defined]  # Scripted.


def test_a_statement_that_waits_for_an_adoption_starts_by_itself_after_it(agent: AgentContext, pool: Any) -> None:
    put_made(agent, deployment_row(query_id="q", run_id="r"))
    acts = Reconciler(agent, EmergencyJournal(Path(agent.folder, "emergency.jsonl")))
    agent.files.told = {"epoch": 9}  # type: ignore[attr-defined]  # Scripted.
    acts.round(BeforeRound.of(agent), (), ())
    found, adoption = agent.ledger.deployment(A, 1), Adoption(agent)
    assert found is not None and (found.state, pool.starts) == ("degraded", [])
    assert adoption.findings()["lines"] == ["a@v1: continues after batch 1, wanted running"]
    Path(agent.layout.data).mkdir(parents=True)
    adoption.carry_out("dev adopt")
    agent.files.told = {}  # type: ignore[attr-defined]  # Scripted.
    acts.round(BeforeRound.of(agent), (), ())
    assert pool.starts == ["a@v1"]


def test_a_recorded_adoption_is_not_reported_as_failed_because_of_its_event(
    doubted: AgentContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    def locked(*_: Any) -> None:
        raise LedgerUnavailable("the ledger is locked by another program")

    monkeypatch.setattr(doubted.ledger, "add_event", locked)
    assert Adoption(doubted).carry_out("dev adopt")["epoch"] == doubted.ledger.facts().epoch == 2
    assert doubted.identity.doubt == ""


def test_an_adoption_does_not_promise_to_start_what_has_failed(agent: AgentContext) -> None:
    put_made(agent, deployment_row(state="failed", error_class="Refused"))
    assert Adoption(agent).findings()["lines"] == [
        "a@v1: has failed, and an adoption does not start it: headgate restart a@v1"
    ]


def test_a_start_on_a_machine_allowed_by_policy_adopts_the_checkpoint(agent: AgentContext, pool: Any) -> None:
    found = put_made(agent, deployment_row(state="stopped"))
    agent.files.machine, agent.files.told = "m-1", {"epoch": 1, "machine": "m-2"}  # type: ignore[attr-defined, misc]  # Scripted.
    environment = replace(agent.layout.environment, policy=Policy(machine_moves="allow"))
    agent.layout = replace(agent.layout, environment=environment)
    start(agent, found, stops=0)
    assert pool.starts == ["a@v1"]
    assert agent.files.taken_over == [found.checkpoint]  # type: ignore[attr-defined]  # Scripted.


def test_a_ledger_installed_by_headgate_restore_is_in_doubt_until_adopted(tmp_path: Path) -> None:
    place = Place(tmp_path)
    assert place.serve() == ""
    ledger = place.home / "ledger.db"
    back_up(ledger, tmp_path / "monday.db")
    # No counter has changed since the backup, so the marks have equal counts, and only the epoch shows that the
    # environment differs.
    who = {"project_id": "p-id", "project": "p", "environment": "dev", "actor": "ana"}
    assert restore(tmp_path / "monday.db", ledger, now=1.0, **who).epoch == 2
    assert place.serve() == "the ledger has epoch 2, but the data folder has epoch 1"
    with create_or_open(ledger, environment_row()) as restored:
        identity = place.identity(restored)
        identity.keep()
        with pytest.raises(Refused, match="nothing is started"):
            identity.refuse_doubt()
        assert identity.adopt(lambda epoch: None) == 3
    assert place.serve() == ""
