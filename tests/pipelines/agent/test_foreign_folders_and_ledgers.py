"""Identity checks: folders of another run, copies of another age, and a replaced ledger."""

from dataclasses import replace
from typing import Any

import pytest
import small_project
from agent_scenarios import put_made
from ledger_rows import deployment_row

from core.model.errors import Refused
from core.model.names import TableName
from core.observed.versions import Deployment
from core.plan.request import PlanRequest
from core.ports.storage import FolderContents
from core.run.model import OperatorControl
from pipelines.agent.context import AgentContext
from pipelines.agent.statements.deployment_lifecycle import start
from tests.pipelines.agent.runs.test_run_driver import (
    EVERYTHING,
    deploy,
    drive,
    fast_gates,  # noqa: F401  # A fixture of every test here.
    plan,
    submit,
)

A = TableName("a")
REBUILD = PlanRequest(tables=(A,), rebuild=True)
UPPER = "SELECT id, upper(kind) AS kind FROM STREAM landed"


@pytest.fixture
def stopped(agent: AgentContext) -> Deployment:
    """A stopped version that was created by run 7f3a."""
    return put_made(agent, deployment_row(state="stopped", made_by="7f3a"), "7f3a")


def start_it(agent: AgentContext, deployment: Deployment) -> None:
    start(agent, deployment, stops=agent.locks.stops((A, 1)))


def notes(agent: AgentContext, run_id: str, state: str) -> list[str]:
    row = agent.ledger.run(run_id)
    assert row is not None
    return [step.note for step in row.steps if step.state == state]


@pytest.mark.parametrize(
    ("planned", "sink", "said"),
    [
        (1, 7, "the checkpoint of a@v1 is at batch 1 and its table at batch 7"),
        (None, 7, "is before its first batch and its table at batch 7"),
        (1, 0, "has committed batch 1 and its table ends with batch 0"),
        (1, None, "has committed batch 1 and its table has none"),
    ],
)
def test_a_checkpoint_and_a_table_of_different_age_are_not_started(
    planned: int | None, sink: int | None, said: str, agent: AgentContext, pool: Any, stopped: Deployment
) -> None:
    agent.files.planned, agent.files.sink = planned, sink  # type: ignore[attr-defined]  # Scripted.
    agent.files.held = FolderContents(0, 0, 0, True, None)  # type: ignore[attr-defined]  # Scripted.
    with pytest.raises(Refused, match=said) as refused:
        start_it(agent, stopped)
    assert refused.value.remedy == "restore both from one moment, or headgate plan a --rebuild"
    assert pool.starts == []


def test_a_checkpoint_that_lacks_a_file_is_not_started(agent: AgentContext, pool: Any, stopped: Deployment) -> None:
    agent.files.lacking = "sources/0/3"  # type: ignore[attr-defined]  # Scripted.
    with pytest.raises(Refused, match="the checkpoint of a@v1 lacks sources/0/3, without which") as refused:
        start_it(agent, stopped)
    assert refused.value.remedy.endswith("headgate plan a --rebuild") and pool.starts == []


def test_a_table_that_is_gone_is_no_older_copy(agent: AgentContext, pool: Any, stopped: Deployment) -> None:
    agent.files.planned, agent.files.sink, agent.files.held = 1, None, None  # type: ignore[attr-defined]  # Scripted.
    with pytest.raises(Refused, match="the table of a@v1 is gone: there is no folder"):
        start_it(agent, stopped)
    assert pool.starts == []


def test_a_written_but_uncommitted_batch_is_repeated(agent: AgentContext, pool: Any, stopped: Deployment) -> None:
    agent.files.planned = agent.files.sink = 2  # type: ignore[attr-defined]  # Scripted.
    start_it(agent, stopped)
    assert pool.starts == ["a@v1"]


def test_a_checkpoint_that_another_run_has_made_is_not_started_on(
    agent: AgentContext, pool: Any, stopped: Deployment
) -> None:
    agent.files.told = {"run": "91bc"}  # type: ignore[attr-defined]  # Scripted.
    with pytest.raises(Refused, match="is not the one it had before"):
        start_it(agent, stopped)
    assert pool.starts == []


@pytest.mark.parametrize("kind", ["tables", "checkpoints"])
def test_a_rebuild_that_finds_a_folder_of_another_run_leaves_it_and_the_next_plan_takes_the_next_number(
    kind: str, agent: AgentContext, pool: Any
) -> None:
    deploy(agent, pool, small_project.texts())
    theirs = f"{agent.layout.data}/{kind}/a__v2"
    agent.files.folders[theirs] = {"run": "of a ledger that was lost"}  # type: ignore[attr-defined]  # Scripted.
    run_id = submit(agent, plan(agent, small_project.texts(a=UPPER), REBUILD))
    assert drive(agent, run_id) == "failed"
    (said,) = notes(agent, run_id, "failed")
    assert "not by this run; nothing was written there: plan again, under the next number" in said
    assert "a__v2" not in pool.tables and agent.ledger.deployment(A, 2) is None
    assert drive(agent, run_id, OperatorControl("cancel")) == "cancelled"
    deploy(agent, pool, small_project.texts(a=UPPER), REBUILD)
    assert pool.views["a"] == "a__v3"
    assert agent.files.folders[theirs] == {"run": "of a ledger that was lost"}  # type: ignore[attr-defined]  # Scripted.


def test_with_an_older_ledger_nothing_is_appended_to_folders_made_after_it(agent: AgentContext, pool: Any) -> None:
    for number in (1, 2):
        agent.files.folders[f"{agent.layout.data}/tables/a__v{number}"] = {"run": f"lost {number}"}  # type: ignore[attr-defined]  # Scripted.
    tries = 0
    while "a" not in pool.views:
        made = plan(agent, small_project.texts(), replace(EVERYTHING, nonce=str(tries)))
        run_id = submit(agent, made)
        if drive(agent, run_id) == "failed":
            drive(agent, run_id, OperatorControl("cancel"))
        tries += 1
        assert tries <= 3
    assert pool.views["a"] == "a__v3"
    assert {"a__v1", "a__v2"}.isdisjoint(pool.tables)
