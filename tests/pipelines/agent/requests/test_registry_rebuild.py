"""A lost ledger, or an older copy, is rebuilt from the records, and every pipeline continues from its position."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import small_project
from agent_scenarios import in_a_thread, stop_in_ledger, wait_until
from ledger_rows import create_run, environment_row, run_row

from core.model.errors import Refused, TryAgain
from core.model.names import TableName
from core.model.states import State
from core.plan.request import PlanRequest
from pipelines.agent.context import AgentContext
from pipelines.agent.identity.environment_identity import EnvironmentIdentity
from pipelines.agent.identity.registry_records import RegistryRecords, durable
from pipelines.agent.reconciler import BeforeRound, Reconciler
from pipelines.agent.requests.adoption import Adoption
from pipelines.agent.statements.deployment_lifecycle import start
from pipelines.storage.checkpoints import TableCheckpoints
from pipelines.storage.data_folder_records import read_record
from state.backup import back_up
from state.emergency_journal import EmergencyJournal
from state.ledger import create_or_open
from tests.pipelines.agent.runs.test_run_driver import (
    EVERYTHING,
    deploy,
    fast_gates,  # noqa: F401  # A fixture of every test here.
    plan,
    settle,
)

A, B, C, LANDED = map(TableName, ("a", "b", "c", "landed"))
UPPER = small_project.texts(a="SELECT id, upper(kind) AS kind FROM STREAM landed")
# The commits made here lack the batch histories that a comparison would need.
UPPER["headgate.yml"] = UPPER["headgate.yml"].replace("dev: {}", "dev: {policy: {validate: off}}")
REBUILD = PlanRequest(tables=(A,), rebuild=True)


class Shop:
    """The small project over real files, agents that serve it one after another, and a pool that outlives them."""

    def __init__(self, agent: AgentContext, pool: Any, root: Path) -> None:
        self.pool, self.ledger_file = pool, root / "home" / "ledger.db"
        agent.ledger.close()
        self.ledger_file.unlink()
        self._like = agent

    def serve(self, ledger_id: str = "ledger") -> AgentContext:
        """Begin an agent that has already compared ledger and data folder."""
        ledger = create_or_open(self.ledger_file, environment_row(ledger_id=ledger_id))
        facts, data = ledger.facts(), self._like.layout.data
        identity = EnvironmentIdentity(ledger, data=data, home="/home", machine="m-1", clock=lambda: 5.0)
        identity.keep()
        files = TableCheckpoints(facts.ledger_id, machine="m-1", epoch=facts.epoch)
        return replace(self._like, ledger=ledger, ledger_id=facts.ledger_id, files=files, identity=identity)

    def end(self, agent: AgentContext) -> None:
        """End an agent, and its pool with it, after a last round."""
        RegistryRecords(agent).round()
        agent.identity.keep()  # type: ignore[attr-defined]  # The real one.
        agent.ledger.close()
        self.pool.running.clear()
        self.pool.tables.clear()
        self.pool.views.clear()


@pytest.fixture
def shop(agent: AgentContext, pool: Any, tmp_path: Path) -> Shop:
    return Shop(agent, pool, tmp_path)


def commit(agent: AgentContext, batch: int, *names: str) -> None:
    """Write the files that Spark leaves in checkpoints and tables after a batch."""
    for name in names:
        checkpoint, table = (Path(agent.layout.data, kind, name) for kind in ("checkpoints", "tables"))
        (checkpoint / "metadata").write_text(json.dumps({"id": f"id of {name}"}))
        for log in ("offsets", "commits"):
            (checkpoint / log).mkdir(exist_ok=True)
            (checkpoint / log / str(batch)).write_text('v1\n{}\n{"logOffset":1}')
        (table / "_spark_metadata").mkdir(exist_ok=True)
        (table / "_spark_metadata" / str(batch)).write_text("v1")


def rows(agent: AgentContext) -> dict[str, dict[str, Any]]:
    """Return the registry's durable fields, and which versions serve."""
    found = agent.ledger.deployments(include_deleted=True)
    return {f"{d.table}@v{d.version}": durable(d) | {"checkpoint_id": "", "serves": d.active} for d in found}


def reconcile(agent: AgentContext) -> None:
    acts = Reconciler(agent, EmergencyJournal(Path(agent.folder, "emergency.jsonl")))
    acts.round(BeforeRound.of(agent), agent.pools.default.connection().queries.active(), ())


def adopted(agent: AgentContext) -> list[str]:
    """Adopt, and return the lines shown before it."""
    adoption = Adoption(agent)
    lines: list[str] = adoption.findings()["lines"]
    assert adoption.carry_out("dev adopt")["left"] == []
    assert adoption.findings()["doubt"] == ""
    return lines


@pytest.fixture
def lost(shop: Shop) -> tuple[AgentContext, dict[str, Any]]:
    """A new ledger over the folder of a lost one, where a was rebuilt, b stopped and c deleted; and the lost rows."""
    agent = shop.serve()
    deploy(agent, shop.pool, small_project.texts())
    commit(agent, 4, "a__v1", "b__v1", "c__v1")
    deploy(agent, shop.pool, UPPER, REBUILD)
    commit(agent, 7, "a__v2", "b__v2")
    deploy(agent, shop.pool, UPPER, PlanRequest(verb="delete", tables=(C,)))
    stop_in_ledger(agent, B)
    before = rows(agent)
    shop.end(agent)
    shop.ledger_file.unlink()
    return shop.serve("new"), before


def test_a_lost_ledger_is_shown_as_lines_and_nothing_starts_before_it_is_adopted(
    lost: tuple[AgentContext, dict[str, Any]], shop: Shop
) -> None:
    agent, _ = lost
    found = Adoption(agent).findings()
    assert found["doubt"] == "the data folder belongs to ledger ledger of /home, and this is ledger new"
    assert found["lines"] == [
        "a@v1: is not in the ledger, and is registered: is at batch 4, wanted stopped",
        "a@v2: is not in the ledger, and is registered: continues after batch 7, wanted running, serves",
        "b@v1: is not in the ledger, and is registered: is at batch 4, wanted stopped",
        "b@v2: is not in the ledger, and is registered: is at batch 7, wanted stopped, serves",
        "c@v1: is not in the ledger, and is registered: deleted, its files are kept until they are purged",
        "landed@v0: is not in the ledger, and is registered: external table",
    ]
    assert (agent.ledger.deployments(), shop.pool.starts) == ((), ["a@v1", "b@v1", "c@v1", "a@v2", "b@v2"])


def test_a_lost_ledger_is_rebuilt_and_everything_continues(
    lost: tuple[AgentContext, dict[str, Any]], shop: Shop
) -> None:
    agent, before = lost
    adopted(agent)
    assert rows(agent) == before
    assert shop.pool.views == {"a": "a__v2", "b": "b__v2"}
    assert set(shop.pool.tables) == {"landed", "a__v1", "b__v1", "a__v2", "b__v2"}
    shop.pool.starts.clear()
    reconcile(agent)
    assert shop.pool.starts == ["a@v2"], "b was stopped by an operator"
    settle(agent, shop.pool)
    assert plan(agent, UPPER, PlanRequest(tables=(A,))).empty
    owner = json.loads(Path(agent.layout.data, "checkpoints/a__v2/_headgate_owner").read_text())
    assert (owner["ledger"], owner["epoch"]) == ("new", 2)
    rebuilt = plan(agent, small_project.texts(), REBUILD)
    assert {node.version for node in rebuilt.nodes if node.table == A} == {3}
    shop.end(agent)
    again = shop.serve("new")
    assert again.identity.doubt == "" and rows(again) == before


def test_a_ledger_rebuilt_right_after_a_swap_knows_run_and_predecessor_of_each_version(shop: Shop) -> None:
    agent = shop.serve()
    deploy(agent, shop.pool, small_project.texts())
    commit(agent, 4, "a__v1", "b__v1", "c__v1")
    RegistryRecords(agent).round()
    deploy(agent, shop.pool, UPPER, REBUILD)
    commit(agent, 7, "a__v2", "b__v2")
    before = rows(agent)
    agent.identity.keep()  # type: ignore[attr-defined]  # The real one.
    agent.ledger.close()
    shop.ledger_file.unlink()
    agent = shop.serve("new")
    adopted(agent)
    for name in ("a@v2", "b@v2"):
        served = [rows(agent)[name][key] for key in ("serves", "served_at", "served_by", "served_before")]
        assert served == [before[name][key] for key in ("serves", "served_at", "served_by", "served_before")]
        assert served[0] and served[3] == 1 and None not in served


@pytest.mark.parametrize("ledger_id", ["ledger", "new"])
def test_versions_in_the_trash_are_adopted_and_can_be_undeleted(shop: Shop, ledger_id: str) -> None:
    agent = shop.serve()
    deploy(agent, shop.pool, small_project.texts())
    commit(agent, 4, "a__v1", "b__v1", "c__v1")
    deploy(agent, shop.pool, small_project.texts(), PlanRequest(verb="delete", tables=(C,)))
    shop.end(agent)
    shop.ledger_file.unlink()
    agent = shop.serve(ledger_id)
    adopted(agent)
    reconcile(agent)
    settle(agent, shop.pool)
    back = PlanRequest(verb="undelete", tables=(C,))
    assert deploy(agent, shop.pool, small_project.texts(), back) == "done", agent.ledger.runs()
    assert shop.pool.views["c"] == "c__v1" and "c@v1" in shop.pool.running


def test_an_adoption_that_is_killed_before_the_mark_is_done_again(
    lost: tuple[AgentContext, dict[str, Any]], shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent, before = lost

    def killed(**fields: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(agent.ledger, "adopt", killed)
        with pytest.raises(KeyboardInterrupt):
            Adoption(agent).carry_out("dev adopt")
    agent.ledger.close()
    agent = shop.serve("new")
    assert "belongs to ledger ledger" in agent.identity.doubt
    adopted(agent)
    assert rows(agent) == before


def test_the_catalog_is_complete_before_anything_can_start(
    lost: tuple[AgentContext, dict[str, Any]], shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent, _ = lost
    there: list[set[str]] = []
    end_doubt = agent.ledger.adopt

    def adopt(**fields: Any) -> None:
        there.append({*shop.pool.tables, *shop.pool.views})
        end_doubt(**fields)

    monkeypatch.setattr(agent.ledger, "adopt", adopt)
    adopted(agent)
    assert there == [{"landed", "a__v1", "b__v1", "a__v2", "b__v2", "a", "b"}]


def test_a_catalog_that_is_being_filled_is_waited_for(lost: tuple[AgentContext, dict[str, Any]], shop: Shop) -> None:
    agent, _ = lost
    shop.pool.restored = False
    act = in_a_thread(lambda: Adoption(agent).carry_out("dev adopt"))
    wait_until(lambda: agent.ledger.deployment(B, 2) is not None)
    assert (shop.pool.tables, agent.identity.doubt != "") == ({}, True)
    shop.pool.restored = True
    act.join(60)
    assert "a__v2" in shop.pool.tables and agent.identity.doubt == ""


def ruin_checkpoint(agent: AgentContext) -> None:
    shutil.rmtree(Path(agent.layout.data, "checkpoints/a__v2"))


def advance_table(agent: AgentContext) -> None:
    Path(agent.layout.data, "tables/a__v2/_spark_metadata/9").write_text("v1")


def give_away(agent: AgentContext) -> None:
    Path(agent.layout.data, "checkpoints/a__v2/_headgate_owner").write_text('{"ledger":"third"}')


def withhold(agent: AgentContext) -> None:
    path = Path(agent.layout.data, "_headgate_registry/a@v2.json")
    found = json.loads(path.read_text())
    kept = {key: value for key, value in found["row"].items() if key not in ("texts", "compiled", "compiled_ddl")}
    path.write_text(json.dumps(found | {"row": kept, "withheld": "its texts seem to contain a secret"}))


def garble(agent: AgentContext) -> None:
    Path(agent.layout.data, "_headgate_registry/a@v2.json").write_text("garbage")


def forget(agent: AgentContext) -> None:
    Path(agent.layout.data, "_headgate_registry/a@v2.json").unlink()


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("spoil", "said", "registered"),
    [
        (ruin_checkpoint, "wanted stopped, because a@v2 has no readable checkpoint", True),
        (advance_table, "wanted stopped, because the checkpoint of a@v2 is at batch 7 and its table", True),
        (
            give_away,
            "its checkpoint belongs to another ledger (third); it stays as it is, and version 2 of a is",
            False,
        ),
        (withhold, "its texts seem to contain a secret; it stays as it is, and version 2 of a is not used", False),
        (garble, "a@v2.json cannot be read", False),
        (forget, "is not in the registry and has no record: it stays as it is, and version 2 of a", False),
    ],
)
def test_inconsistent_versions_are_not_started_and_their_numbers_not_reused(
    spoil: Callable[[AgentContext], None],
    said: str,
    registered: bool,
    lost: tuple[AgentContext, dict[str, Any]],
    shop: Shop,
) -> None:
    agent, _ = lost
    spoil(agent)
    lines = adopted(agent)
    assert len([line for line in lines if said in line]) == 1, lines
    row = agent.ledger.deployment(A, 2)
    assert (row is not None and row.wanted == "stopped") if registered else row is None
    assert registered or agent.ledger.taken_versions()[A] == 2
    RegistryRecords(agent).round()
    serving = read_record(agent.layout.data, "_serving")
    assert serving is not None and (serving.ledger, serving.row) == ("new", {"b": 2} | ({"a": 2} if registered else {}))
    shop.pool.starts.clear()
    reconcile(agent)
    assert shop.pool.starts == []


@pytest.fixture
def older(shop: Shop, tmp_path: Path) -> AgentContext:
    """A ledger from before b was stopped, c was rebuilt, and a was restarted with new SQL."""
    agent = shop.serve()
    deploy(agent, shop.pool, small_project.texts())
    commit(agent, 4, "a__v1", "b__v1", "c__v1")
    RegistryRecords(agent).round()
    back_up(shop.ledger_file, tmp_path / "older.db")
    row = agent.ledger.deployment(A, 1)
    assert row is not None
    agent.ledger.update_deployment(A, 1, revision="later", texts=replace(row.texts, dml="later"), compiled="SELECT 2")
    shop.pool.running.clear()
    later = agent.ledger.deployment(A, 1)
    assert later is not None
    start(agent, later, stops=0)
    stop_in_ledger(agent, B)
    deploy(agent, shop.pool, small_project.texts(), PlanRequest(tables=(C,), rebuild=True))
    commit(agent, 2, "c__v2")
    shop.end(agent)
    (tmp_path / "older.db").replace(shop.ledger_file)
    for log in ("-wal", "-shm"):
        Path(f"{shop.ledger_file}{log}").unlink(missing_ok=True)
    return shop.serve()


def test_an_older_ledger_adopts_what_was_made_after_it(older: AgentContext, shop: Shop) -> None:
    then = older.ledger.deployment(A, 1)
    assert then is not None and then.revision != "later"
    create_run(older.ledger, run_row("h", id="r-1", actor="ana"), (A,))
    lines = adopted(older)
    assert (
        f"a@v1: has revision later by its record, which is newer than revision {then.revision[:8]} of the ledger and "
        "is used: continues after batch 4, wanted running, serves" in lines
    )
    assert any("b@v1: has a newer record" in line and "wanted stopped, serves" in line for line in lines)
    assert any("c@v2: is not in the ledger" in line and line.endswith("serves") for line in lines)
    assert shop.pool.views == {"a": "a__v1", "b": "b__v1", "c": "c__v2"}
    shop.pool.starts.clear()
    reconcile(older)
    assert (sorted(shop.pool.starts), shop.pool.running["a@v1"].select) == (["a@v1", "c@v2"], "SELECT 2")


def test_a_run_of_an_older_ledger_whose_tables_have_moved_on_ends_failed(older: AgentContext) -> None:
    from core.run.records import StepRow

    step = StepRow(n=1, do="restart", table=A, version=1, state="waits")
    create_run(older.ledger, run_row("h", id="r-1", actor="ana", steps=(step,)), (A,))
    assert "run r-1 of ana is running: it ends failed, because its tables have changed since" in adopted(older)
    run = older.ledger.run("r-1")
    assert run is not None
    assert (run.state, run.steps[0].note) == (
        "failed", "its tables have changed without it; headgate runs cancel r-1, and plan again",
    )  # fmt: skip


def test_an_unreachable_checkpoint_is_named_and_delays_no_other(
    older: AgentContext, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = TableCheckpoints.read

    def read(files: TableCheckpoints, folder: str) -> Any:
        if folder.endswith("b__v1"):
            raise TryAgain(f"{folder} cannot be reached: Input/output error", remedy="mount it")
        return real(files, folder)

    def take_over(files: TableCheckpoints, folder: str, former: str = "") -> None:
        if folder.endswith("checkpoints/b__v1"):
            raise TryAgain(f"{folder} cannot be reached: Input/output error", remedy="mount it")
        taken(files, folder, former)

    taken = TableCheckpoints.take_over
    with monkeypatch.context() as patched:
        patched.setattr(TableCheckpoints, "read", read)
        patched.setattr(TableCheckpoints, "take_over", take_over)
        adoption = Adoption(older)
        (line,) = (line for line in adoption.findings()["lines"] if line.startswith("b@v1"))
        assert "wanted stopped, because" in line and "cannot be reached: Input/output error; mount it" in line
        (left,) = adoption.carry_out("dev adopt")["left"]
        assert left.startswith("b@v1: ") and "Input/output error" in left
    reconcile(older)
    assert {"a@v1", "c@v2"} <= shop.pool.running.keys() and "b@v1" not in shop.pool.running
    again = Adoption(older)
    assert again.findings()["doubt"].startswith("the checkpoint of b@v1 has epoch 1"), "it can be adopted once more"
    assert again.carry_out("dev adopt")["left"] == []
    with pytest.raises(Refused, match="nothing is in doubt"):
        again.carry_out("dev adopt")


def test_a_folder_of_an_earlier_release_gets_its_record_with_the_first_round(shop: Shop) -> None:
    agent = shop.serve()
    deploy(agent, shop.pool, small_project.texts())
    shutil.rmtree(Path(agent.layout.data, "_headgate_registry"))
    agent.ledger.update_deployment(A, 1, state=State.RUNNING, recorded=0)
    RegistryRecords(agent).round()
    before = rows(agent)
    shop.end(agent)
    shop.ledger_file.unlink()
    fresh = shop.serve("new")
    commit(fresh, 1, "a__v1", "b__v1", "c__v1")
    adopted(fresh)
    assert rows(fresh) == before
    reconcile(fresh)
    settle(fresh, shop.pool)
    assert plan(fresh, small_project.texts(), EVERYTHING).empty
