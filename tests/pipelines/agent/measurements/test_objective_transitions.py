"""Objectives in the timeline: one event when a table begins to miss its objective, and one when it meets it again."""

from dataclasses import replace
from functools import partial

import pytest
from ledger_rows import deployment_row

from core.observed.versions import Deployment
from pipelines.agent.context import AgentContext
from pipelines.agent.measurements.lag_collector import ObjectiveTransitions

OWN = deployment_row(query_id="q", run_id="r1")


@pytest.fixture
def measured(agent: AgentContext) -> AgentContext:
    agent.ledger.put_deployment(OWN)
    agent.clock = lambda: 1_800_000_000.0
    return agent


def measure(agent: AgentContext, judge: ObjectiveTransitions, *behind: float | None, of: Deployment = OWN) -> None:
    """Measure once per value, five seconds apart, against an objective of a minute."""
    for seconds in behind:
        judge.record_transition(of, seconds, 60.0)
        agent.clock = partial(float, agent.clock() + 5.0)


def recorded(agent: AgentContext) -> list[tuple[str, str]]:
    return [(event.kind, event.summary) for event in reversed(agent.ledger.events(OWN.table))]


def test_a_table_that_misses_its_objective_and_meets_it_again_has_two_events(measured: AgentContext) -> None:
    judge = ObjectiveTransitions(measured)
    measure(measured, judge, 10.0, 65.0, 70.0, 75.0, *[80.0] * 9, *[5.0] * 20)
    assert recorded(measured) == [
        ("missed", "1m 15s behind, beyond the objective of 1m"),
        ("met", "within the objective of 1m again, after 1m"),
    ]


def test_a_new_agent_continues_from_the_records_and_records_nothing_twice(measured: AgentContext) -> None:
    measure(measured, ObjectiveTransitions(measured), *[90.0] * 5)
    again = ObjectiveTransitions(measured)
    measure(measured, again, *[120.0] * 20)
    assert [kind for kind, _ in recorded(measured)] == ["missed"]
    measure(measured, again, *[5.0] * 20)
    measure(measured, ObjectiveTransitions(measured), *[5.0] * 20)
    assert [kind for kind, _ in recorded(measured)] == ["missed", "met"]


@pytest.mark.parametrize("state", ["unknown", "failed", "pending", "absent"])
def test_a_statement_that_may_have_no_query_does_not_meet_its_objective_again(
    measured: AgentContext, state: str
) -> None:
    judge = ObjectiveTransitions(measured)
    measure(measured, judge, *[90.0] * 5, *[5.0] * 11)
    measure(measured, judge, *[5.0] * 20, of=replace(OWN, state=state))
    measure(measured, judge, *[5.0] * 11)
    assert [kind for kind, _ in recorded(measured)] == ["missed"]
    measure(measured, judge, *[5.0] * 3)
    assert [kind for kind, _ in recorded(measured)] == ["missed", "met"]
    measure(measured, judge, *[90.0] * 5, of=replace(OWN, state=state))
    assert [kind for kind, _ in recorded(measured)] == ["missed", "met", "missed"]


def test_an_objective_is_not_met_again_across_a_time_of_unknown_lag(measured: AgentContext) -> None:
    judge = ObjectiveTransitions(measured)
    measure(measured, judge, *[90.0] * 5, *[5.0] * 11, None, *[5.0] * 11)
    assert [kind for kind, _ in recorded(measured)] == ["missed"]
    judge.interrupt(OWN)
    measure(measured, judge, *[5.0] * 11)
    assert [kind for kind, _ in recorded(measured)] == ["missed"]
    measure(measured, judge, *[5.0] * 3)
    assert [kind for kind, _ in recorded(measured)] == ["missed", "met"]


def test_stopped_and_non_serving_versions_miss_no_objective(measured: AgentContext) -> None:
    judge = ObjectiveTransitions(measured)
    measure(measured, judge, *[900.0] * 10, of=replace(OWN, wanted="stopped"))
    measure(measured, judge, *[900.0] * 10, of=replace(OWN, active=False))
    assert recorded(measured) == []


def test_a_table_that_stays_at_its_bound_for_a_day_has_a_bounded_number_of_events(measured: AgentContext) -> None:
    """Every other one of 17,280 measurements misses the objective; an entry per minute would be 1,440 entries."""
    measure(measured, ObjectiveTransitions(measured), *[59.0, 61.0] * 8640)
    assert recorded(measured) == []
    measure(measured, ObjectiveTransitions(measured), *([61.0] * 6 + [59.0] * 6) * 1440)
    assert [kind for kind, _ in recorded(measured)] == ["missed"]
