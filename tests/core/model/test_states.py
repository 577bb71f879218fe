"""The summary of many statements, over every combination of states."""

from itertools import chain, combinations, product

from core.model.states import (
    STATES_WORST_FIRST,
    TRENDS_WORST_FIRST,
    State,
    Trend,
    WantedState,
    counts_for_many,
    stays_at_rest,
    summary_state,
    worst_trend,
)
from core.project.model import Layer, layer_place

NOT_WELL = [State.FAILED, State.DEGRADED, State.UNKNOWN, State.STARTING, State.STOPPING, State.PENDING]


def test_a_summary_shows_the_worst_unhealthy_state_then_running_then_the_worst_at_rest() -> None:
    for found in chain.from_iterable(combinations(State, size) for size in range(1, len(State) + 1)):
        first = [*NOT_WELL, State.RUNNING, State.STOPPED, State.ABSENT, State.COMPLETED]
        assert summary_state(found) is next(state for state in first if state in found)
    assert sorted(first) == sorted(State) == sorted(STATES_WORST_FIRST)
    assert summary_state(()) is State.ABSENT


def test_a_summary_shows_the_worst_trend() -> None:
    for better, worse in product(range(len(TRENDS_WORST_FIRST)), repeat=2):
        pair = TRENDS_WORST_FIRST[better], TRENDS_WORST_FIRST[worse]
        assert worst_trend(pair) is TRENDS_WORST_FIRST[min(better, worse)]
    assert worst_trend(()) is Trend.UNKNOWN


def test_many_are_idle_only_where_no_input_can_wait_for_those_without_a_trend() -> None:
    unknown = [(State.STARTING, 4000, True), (State.STOPPED, None, True), (State.STOPPED, 0, False),
               (State.ABSENT, None, False)]  # fmt: skip
    for state, lag_rows, counts in unknown:
        found = [(Trend.IDLE, State.RUNNING, 0), (Trend.UNKNOWN, state, lag_rows)]
        trend = worst_trend(one[0] for one in found if counts_for_many(*one))
        assert trend is (Trend.UNKNOWN if counts else Trend.IDLE)


def test_only_ended_statements_that_are_wanted_stopped_stay_at_rest() -> None:
    resting = [(state, wanted) for state in State for wanted in WantedState if stays_at_rest(state, wanted)]
    assert resting == [(state, "stopped") for state in (State.FAILED, State.STOPPED, State.COMPLETED)]


def test_layers_come_from_sources_to_views_and_an_unknown_one_last() -> None:
    assert sorted(["zebra", "apple", *reversed(Layer)], key=layer_place) == [*Layer, "apple", "zebra"]
