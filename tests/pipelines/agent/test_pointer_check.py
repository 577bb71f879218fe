"""Pointers that deviate from the ledger are corrected, whoever moved them, and whenever."""

from typing import Any

import pytest
import small_project
from agent_scenarios import held_elsewhere
from ledger_rows import deployment_row

from core.model.errors import EngineRefused, Refused, TryAgain
from core.model.names import TableName
from core.plan.request import PlanRequest
from core.run.model import OperatorControl
from pipelines.agent.context import AgentContext
from pipelines.agent.pool import pointers
from pipelines.agent.pool.pointers import PointerCheck
from pipelines.agent.runs import pointer_steps, run_driver, step_executor, stop_and_trash_steps
from pipelines.spark_connect.call_deadlines import in_threads
from tests.pipelines.agent.runs import test_run_driver as lane
from tests.pipelines.agent.runs.test_pointer_moves import AFTER, BEFORE, begun, serving


@pytest.fixture(autouse=True)
def fast_gates(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (step_executor, pointer_steps):
        monkeypatch.setattr(module, "CatchUpGate", lane.OpenGate)
    monkeypatch.setattr(run_driver, "POLL_S", 0.001)


def said(agent: AgentContext) -> list[str]:
    return [event.summary for event in agent.ledger.events() if "pointer" in event.summary]


@pytest.mark.parametrize("same_agent", [True, False])
def test_a_swap_that_takes_effect_after_it_was_cancelled_is_put_right(
    same_agent: bool, agent: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = begun(agent, pool)
    monkeypatch.setattr(run_driver, "POOL_WAIT_S", -1.0)
    pool.late.append("swap")
    assert lane.drive(agent, run_id) == "failed"
    (late,) = pool.overdue
    late.give_up()
    assert lane.drive(agent, run_id, OperatorControl("cancel")) == "cancelled"
    rounds = PointerCheck(agent)
    if same_agent:
        rounds.round()
        assert pool.views == BEFORE == serving(agent) and not said(agent)
    late.arrive_unheard()
    assert pool.views == AFTER
    rounds.round()
    assert pool.views == BEFORE == serving(agent)
    assert sorted(said(agent)) == [f"its pointer did not lead to {name}: it was corrected" for name in BEFORE.values()]


def test_a_first_pointer_that_arrives_after_a_cancel_is_dropped_but_not_a_foreign_view(
    agent: AgentContext, pool: Any
) -> None:
    lane.deploy(agent, pool, small_project.texts())
    agent.ledger.put_deployment(deployment_row("d", active=False))
    agent.ledger.put_deployment(deployment_row("e", active=False))
    pool.views |= {"d": "d__v1", "e": "theirs"}
    PointerCheck(agent).round()
    assert pool.views == BEFORE | {"e": "theirs"}
    assert said(agent) == ["its pointer existed although no version serves: it was dropped"]


def test_a_pointer_dropped_by_a_delete_stays_dropped_while_the_run_continues(
    agent: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    lane.deploy(agent, pool, small_project.texts())
    looks, set_aside = list[dict[str, str]](), stop_and_trash_steps.set_aside

    def look(agent: AgentContext, deployment: Any) -> None:
        in_threads(1, lambda rounds: rounds.round(), [PointerCheck(agent)])
        looks.append(dict(pool.views))
        set_aside(agent, deployment)

    monkeypatch.setattr(stop_and_trash_steps, "set_aside", look)
    everything = lane.plan(agent, small_project.texts(), PlanRequest(verb="delete", everything=True))
    assert lane.drive(agent, lane.submit(agent, everything)) == "done"
    assert looks == [{}, {}, {}] and said(agent) == []


def test_a_pointer_whose_table_is_held_waits_and_in_doubt_none_is_moved(agent: AgentContext, pool: Any) -> None:
    lane.deploy(agent, pool, small_project.texts())
    rounds = PointerCheck(agent)
    pool.views |= {"a": "a__v7", "b": "b__v7"}
    with held_elsewhere(agent, (TableName("a"), 1)):
        rounds.round()
    assert pool.views == BEFORE | {"a": "a__v7"}

    class Doubted:
        doubt = "it is an older copy"

        def refuse_doubt(self) -> None:
            raise Refused(self.doubt)

    known, agent.identity = agent.identity, Doubted()  # type: ignore[assignment]  # A double.
    with pytest.raises(Refused):
        rounds.round()
    assert pool.views["a"] == "a__v7"
    agent.identity = known
    rounds.round()
    assert pool.views == BEFORE


def test_a_refused_pointer_delays_no_other_and_each_is_checked_within_a_bounded_time(
    agent: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pointers, "TABLES", 2)
    lane.deploy(agent, pool, small_project.texts())
    pool.refuse_table["a"] = EngineRefused("the metastore says no")
    pool.views.clear()
    rounds = PointerCheck(agent)
    rounds.round()
    assert pool.views == {"b": "b__v1"}
    rounds.round()
    assert pool.views == {"b": "b__v1", "c": "c__v1"}
    pool.refuse_table.clear()
    rounds.round()
    assert pool.views == BEFORE


def test_a_table_that_a_failed_delete_unregistered_is_registered_again_with_its_pointer(
    agent: AgentContext, pool: Any
) -> None:
    lane.deploy(agent, pool, small_project.texts())
    pool.views.pop("a")
    pool.tables.pop("a__v1")
    PointerCheck(agent).round()
    assert pool.views == BEFORE and "a__v1" in pool.tables


def test_a_table_that_cannot_be_reached_keeps_no_other_pointer_astray(
    agent: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(agent: AgentContext, pool: Any, deployment: Any) -> None:
        if deployment.table == "a":
            raise TryAgain("/lake is not there", remedy="mount it")

    lane.deploy(agent, pool, small_project.texts())
    monkeypatch.setattr(pointers, "register_if_missing", unreachable)
    pool.views.clear()
    PointerCheck(agent).round()
    assert pool.views == {"b": "b__v1", "c": "c__v1"}


def test_a_catalog_that_rewrites_view_texts_is_not_altered_every_round(
    agent: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    lane.deploy(agent, pool, small_project.texts())
    tables = type(pool.connection().tables)
    pointed: list[str] = []
    real = tables.point
    monkeypatch.setattr(tables, "existing_pointers", lambda self, pointers: frozenset())
    monkeypatch.setattr(tables, "point", lambda self, view, *more: (pointed.append(view), real(self, view, *more)))
    rounds = PointerCheck(agent)
    for _ in range(3):
        rounds.round()
    assert sorted(pointed) == ["a", "b", "c"] and not said(agent)


def test_a_pointer_with_a_rewritten_text_is_compared_again_once_another_version_serves(
    agent: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id, rounds = begun(agent, pool), PointerCheck(agent)
    with monkeypatch.context() as other_words:
        other_words.setattr(type(pool.connection().tables), "existing_pointers", lambda self, pointers: frozenset())
        rounds.round()
    assert lane.drive(agent, run_id) == "done"
    pool.views |= BEFORE
    rounds.round()
    assert pool.views == AFTER
