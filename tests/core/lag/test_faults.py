"""Faults are reported in time, and only once a sign has persisted."""

import pytest

from core.lag.faults import FaultSign, FaultWatch, ObjectiveWatch, fault_sign, objective_s
from core.lag.lag_samples import Lag, total_lag
from core.lag.trend import LagTrend
from core.model.names import TableName
from core.model.states import Fault, State, Trend, WantedState
from core.ports.storage import SourceLag

MANY_ROWS = 10_000_000


def lag(behind_s: float | None, rows: int = MANY_ROWS) -> Lag:
    return Lag(rows=rows, files=1, bytes=1, exact=True, oldest_s=behind_s, missing=())


def sign(
    behind_s: float | None, trend: Trend = Trend.STEADY, state: str = State.RUNNING, wanted: str = WantedState.RUNNING
) -> Fault:
    judged = LagTrend(trend, reason="because")
    return fault_sign(lag(behind_s), judged, state=state, wanted=wanted, objective_s=60.0).fault


@pytest.mark.parametrize(
    ("objective", "trigger", "bound_s"),
    [("", "5 seconds", 60), ("", "10 seconds", 60), ("", "1 minute", 360), ("5 minutes", "10 seconds", 300)],
)
def test_the_objective_is_declared_or_the_longer_of_a_minute_and_six_triggers(
    objective: str, trigger: str, bound_s: float
) -> None:
    assert objective_s(objective, trigger) == bound_s


def test_rows_and_a_growing_lag_are_no_fault_and_time_beyond_the_objective_is() -> None:
    assert sign(60.0, Trend.GROWING) is Fault.NONE
    assert sign(60.1) is Fault.BEHIND
    assert sign(60.1, Trend.DRAINING) is Fault.BEHIND
    assert sign(None, Trend.GROWING) is Fault.NONE


@pytest.mark.parametrize(
    ("trend", "state", "wanted", "fault"),
    [
        (Trend.STEADY, State.FAILED, WantedState.RUNNING, Fault.FAILED),
        (Trend.STARVED, State.RUNNING, WantedState.RUNNING, Fault.STARVED),
        (Trend.STALLED, State.RUNNING, WantedState.RUNNING, Fault.STALLED),
        (Trend.STALLED, State.UNKNOWN, WantedState.RUNNING, Fault.NONE),
        (Trend.STALLED, State.STARTING, WantedState.RUNNING, Fault.NONE),
        (Trend.STARVED, State.STOPPED, WantedState.STOPPED, Fault.NONE),
        (Trend.STARVED, State.PENDING, WantedState.RUNNING, Fault.NONE),
        (Trend.UNKNOWN, State.RUNNING, WantedState.RUNNING, Fault.NONE),
    ],
)
def test_the_display_of_a_measurement_follows_state_and_trend(
    trend: Trend, state: State, wanted: WantedState, fault: Fault
) -> None:
    assert sign(1.0, trend, state, wanted) is fault


def test_a_sign_is_a_fault_after_three_measurements_and_over_after_three() -> None:
    behind, well = FaultSign(Fault.BEHIND, "late"), FaultSign()
    watch, said = FaultWatch(), []
    for n, seen in enumerate([behind, well, behind, behind, behind, behind, well, behind, well, well, well]):
        watch = watch.updated(seen, 5.0 * n)
        said.append(bool(watch.said.fault))
    assert said == [False, False, False, False, True, True, True, True, True, True, False]


def test_a_failure_is_reported_at_once_and_one_fault_may_follow_another() -> None:
    failed = FaultWatch().updated(FaultSign(Fault.FAILED, at_once=True), 0.0)
    assert failed.said.fault is Fault.FAILED
    assert failed.updated(FaultSign(Fault.STARVED), 5.0).said.fault is Fault.STARVED


def test_a_start_ends_every_fault_at_once_however_long_the_statement_was_down() -> None:
    watch = FaultWatch(FaultSign(Fault.BEHIND, "late"))
    judged = LagTrend(Trend.STALLED, reason="because")
    starts = fault_sign(lag(9000.0), judged, state=State.STARTING, wanted=WantedState.RUNNING, objective_s=60.0)
    assert watch.updated(starts, 0.0).said.fault is Fault.NONE


def test_behind_is_the_age_of_the_oldest_input_zero_without_input_and_unknown_without_a_source() -> None:
    def source(name: str, files: int, oldest_s: float | None, newest_s: float | None, gone: bool = False) -> SourceLag:
        return SourceLag(TableName(name), files, 0, 0, True, oldest_s, newest_s=newest_s, missing=gone)

    two = total_lag([source("a", 2, 7.0, 3.0), source("b", 1, 40.0, 30.0)])
    assert (two.behind_s, two.newest_s) == (40.0, 30.0)
    assert total_lag([source("a", 0, None, 90.0)]).behind_s == 0.0
    assert total_lag([source("a", 0, None, 90.0), source("b", 0, None, None, gone=True)]).behind_s is None
    assert total_lag([source("a", 3, None, None)]).behind_s is None


def test_a_pool_that_does_not_answer_ends_the_faults_of_its_statements_at_once() -> None:
    """Whether these statements have a fault is then unknown, and the pool has the only fault."""
    stalled = FaultWatch(FaultSign(Fault.STALLED, "because"))
    for state, fault in ((State.UNKNOWN, Fault.NONE), (State.RUNNING, Fault.STALLED)):
        for behind_s, trend in ((1.0, Trend.STEADY), (1.0, Trend.STALLED), (600.0, Trend.GROWING)):
            judged = LagTrend(trend, reason="because")
            found = fault_sign(lag(behind_s), judged, state=state, wanted=WantedState.RUNNING, objective_s=60.0)
            assert bool(stalled.updated(found, 0.0).said.fault) == bool(fault)


def heard(behind: list[float | None]) -> list[tuple[float, bool]]:
    """Return when an objective of 60 s is reported missed and met again, for measurements five seconds apart."""
    found, watch = [], ObjectiveWatch()
    for n, seconds in enumerate(behind):
        after = watch.updated(seconds, 60.0, 5.0 * n)
        if after.missed != watch.missed:
            found.append((5.0 * n, after.missed))
        watch = after
    return found


def test_an_objective_is_missed_once_three_measurements_say_so_and_met_after_a_minute() -> None:
    assert heard([10.0, 61.0, 66.0, 71.0, *[5.0] * 13]) == [(15.0, True), (80.0, False)]
    assert heard([61.0, 66.0, 5.0, 61.0, 66.0]) == []
    # An unknown measurement has no effect, and briefly meeting the objective adds no entries.
    assert heard([61.0, None, 66.0, None, 71.0, 75.0, 80.0]) == [(10.0, True)]
    assert heard([90.0, 90.0, 90.0, *[90.0, 5.0, 5.0] * 40]) == [(10.0, True)]


def test_how_long_an_objective_was_missed_counts_from_the_first_measurement_that_said_so() -> None:
    watch = ObjectiveWatch()
    for n, seconds in enumerate([61.0, 66.0, 71.0]):
        watch = watch.updated(seconds, 60.0, 5.0 * n)
    assert watch == ObjectiveWatch(missed=True, since=0.0)
