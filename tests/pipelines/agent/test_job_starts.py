"""Starts of jobs in Python: what is built before a query is stopped, and what becomes of a job that is wrong."""

import threading
from typing import Any

import pytest
import small_project
from agent_scenarios import fast_lane

from core.model.errors import EngineRefused, Overtaken, Refused
from core.model.names import TableName as T
from core.observed.versions import Deployment
from core.run.model import OperatorControl
from core.sql.python_jobs import JobInput, PythonJob, job_text
from pipelines.agent.context import AgentContext
from pipelines.agent.statements import deployment_lifecycle
from tests.pipelines.agent.runs.test_run_driver import EVERYTHING, deploy, drive, fast_gates, plan, submit

__all__ = ["fast_gates"]

CODE = "def b(a):\n    return a"
REFUSED = EngineRefused("job.b.py, line 2: no", error_class="HEADGATE_JOB_RAISED")


@pytest.fixture
def job(agent: AgentContext, pool: Any) -> Deployment:
    """A running statement whose text is that of a job, as a compiled job of its table would be."""
    assert deploy(agent, pool, small_project.texts()) == "done"
    text = job_text("b", PythonJob("b", (JobInput("a", "STREAM `a__v1`"),), CODE)).partition("\n")[2]
    agent.ledger.update_deployment(T("b"), 1, compiled=text)
    found = agent.ledger.deployment(T("b"), 1)
    assert found is not None
    return found


def test_a_job_is_built_before_its_query_is_stopped_and_started_from_the_plan(
    agent: AgentContext, pool: Any, job: Deployment
) -> None:
    fast_lane(agent).restart(("b",), 0.0, by="ana")
    assert set(pool.built) == {"b@v1"}
    built = pool.running["b@v1"].job
    assert built is not None and built.relation.decode() == CODE
    assert built.settings == (("id", "bigint"), ("kind", "string"))
    assert pool.running["a@v1"].job is None


def test_a_wrong_job_leaves_the_running_query_alone(agent: AgentContext, pool: Any, job: Deployment) -> None:
    pool.refuse_job["b@v1"] = REFUSED
    stops = list(pool.stops)
    with pytest.raises(EngineRefused, match="line 2"):
        fast_lane(agent).restart(("b",), 0.0, by="ana")
    assert pool.stops == stops and "b@v1" in pool.running


def test_a_wrong_job_that_is_started_has_failed_with_its_class(agent: AgentContext, pool: Any, job: Deployment) -> None:
    deployment_lifecycle.stop(agent, job)
    pool.refuse_job["b@v1"] = REFUSED
    with pytest.raises(EngineRefused):
        deployment_lifecycle.start(agent, job, stops=agent.locks.stops((T("b"), 1)))
    found = agent.ledger.deployment(T("b"), 1)
    assert found is not None
    assert (found.state, found.error_class, found.error) == ("failed", "HEADGATE_JOB_RAISED", "job.b.py, line 2: no")


EACH_BATCH = CODE + "\n\ndef each_batch(batch, batch_id):\n    return batch"


def with_batches(agent: AgentContext, job: Deployment, **more: Any) -> Deployment:
    text = job_text("b", PythonJob("b", (JobInput("a", "STREAM `a__v1`"),), EACH_BATCH)).partition("\n")[2]
    agent.ledger.update_deployment(T("b"), 1, compiled=text, **more)
    found = agent.ledger.deployment(T("b"), 1)
    assert found is not None
    return found


def test_a_function_for_each_batch_needs_a_delta_table(agent: AgentContext, pool: Any, job: Deployment) -> None:
    with_batches(agent, job)
    with pytest.raises(Refused) as refused:
        fast_lane(agent).restart(("b",), 0.0, by="ana")
    assert refused.value.sentence == (
        "b@v1 cannot use each_batch: it does not append to a Delta table; write USING delta in its DDL, without mode: "
        "upsert, or remove each_batch from its job"
    )
    assert "b@v1" in pool.running


def test_a_stop_during_the_build_wins(
    agent: AgentContext, pool: Any, job: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployment_lifecycle.stop(agent, job)
    stops = agent.locks.stops((T("b"), 1))
    build = deployment_lifecycle.built_job

    def stopped_meanwhile(agent: AgentContext, deployment: Deployment, *given: Any) -> Any:
        fast_lane(agent).stop(("b",), 0.0, by="ana")
        return build(agent, deployment, *given)

    monkeypatch.setattr(deployment_lifecycle, "built_job", stopped_meanwhile)
    with pytest.raises(Overtaken):
        deployment_lifecycle.start(agent, job, stops=stops)
    assert "b@v1" not in pool.running


def test_a_stop_ends_a_build_at_once(agent: AgentContext, pool: Any, job: Deployment) -> None:
    deployment_lifecycle.stop(agent, job)
    stops, begun = agent.locks.stops((T("b"), 1)), threading.Event()
    pool.endless_jobs["b@v1"] = begun
    raised: list[Exception] = []

    def start() -> None:
        try:
            deployment_lifecycle.start(agent, job, stops=stops)
        except Exception as error:
            raised.append(error)

    starting = threading.Thread(target=start)
    starting.start()
    assert begun.wait(30)
    fast_lane(agent).stop(("b",), 0.0, by="ana")
    starting.join(30)
    assert [type(error) for error in raised] == [Overtaken] and "b@v1" not in pool.running


def test_a_cancel_ends_a_build_at_once(agent: AgentContext, pool: Any) -> None:
    pool.endless_jobs["b@v1"] = begun = threading.Event()
    files = small_project.texts()
    del files["pipelines/facts/p/b/sql-scripts/dml.b.sql"]
    run_id = submit(agent, plan(agent, files | {"pipelines/facts/p/b/sql-scripts/job.b.py": CODE}, EVERYTHING))
    ended: list[str] = []
    driving = threading.Thread(target=lambda: ended.append(drive(agent, run_id)))
    driving.start()
    assert begun.wait(30)
    agent.ledger.put_run_command(run_id, OperatorControl("cancel"), at=agent.clock())
    driving.join(30)
    assert ended == ["cancelled"] and "b@v1" not in pool.running
