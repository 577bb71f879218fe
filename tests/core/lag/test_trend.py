"""The lag trend of a statement, against a model of microbatches with known ground truth."""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from microbatch_model import EVERY_S, EXTERNAL, LANDING, ORDERS, PARENT, Model, Point, Watch

from core.lag.lag_samples import Lag, total_lag
from core.lag.trend import LagTrend, UpstreamHealth, lag_trend
from core.model.states import State, Trend
from core.ports.storage import SourceLag

pytestmark = pytest.mark.sampled


def words(said: Sequence[tuple[float, LagTrend, int]], after_s: float = 0.0, since: float = 0.0) -> list[str]:
    return [str(found.trend) for at, found, _ in said if at >= since + after_s]


def changes(found: Sequence[str]) -> int:
    return sum(1 for n in range(1, len(found)) if found[n] != found[n - 1])


def kept_up(seed: int, trigger_s: float, rate: float = 100.0) -> Model:
    """A model with thirty times the needed capacity, which keeps up even with five times the rate."""
    return Model(random.Random(seed), trigger_s, rate, speed=30 * rate)


def limited(seed: int, trigger_s: float, rate: float = 100.0) -> Model:
    """A model that processes at most twice the rate (maxFilesPerTrigger)."""
    return Model(random.Random(seed), trigger_s, rate, speed=20 * rate, batch_rows=2 * rate * trigger_s)


def slow(seed: int, trigger_s: float, rate: float = 100.0) -> Model:
    """A model that processes twice the rate in batches as large as the backlog, which therefore grow."""
    return Model(random.Random(seed), trigger_s, rate, speed=2 * rate)


EVERY_MODEL = pytest.mark.parametrize("make", [kept_up, limited, slow])
EVERY_TRIGGER = pytest.mark.parametrize("trigger_s", [5.0, 10.0, 15.0])
EVERY_SEED = pytest.mark.parametrize("seed", range(6))
SETTLED_S = 30.0


@EVERY_MODEL
@EVERY_TRIGGER
@EVERY_SEED
@pytest.mark.parametrize("counters", [True, False])
def test_steady_input_is_steady_through_ten_minutes_of_noise(
    make: Callable[[int, float], Model], trigger_s: float, seed: int, counters: bool
) -> None:
    watch = Watch(make(seed, trigger_s), counters=counters)
    found = words(watch.look(SETTLED_S) and watch.look(600))
    assert set(found) == {"steady"} or (changes(found) <= 2 and found.count("steady") >= len(found) - 6)


@EVERY_TRIGGER
@EVERY_SEED
@pytest.mark.parametrize("land_s", [1.0, 10.0])
def test_five_times_more_that_is_worked_off_stays_steady(trigger_s: float, seed: int, land_s: float) -> None:
    watch = Watch(kept_up(seed, trigger_s))
    watch.model.land_s = land_s
    watch.look(120)
    watch.model.rate *= 5
    changed = watch.model.now
    said = watch.look(300)
    assert set(words(said, SETTLED_S, changed)) == {"steady"}
    assert changes(words(said)) <= 2


@EVERY_TRIGGER
@EVERY_SEED
def test_five_times_more_than_it_can_take_is_growing_within_30_s_and_does_not_flap(trigger_s: float, seed: int) -> None:
    watch = Watch(limited(seed, trigger_s))
    watch.look(120)
    watch.model.rate *= 5
    changed = watch.model.now
    said = watch.look(600)
    assert set(words(said, SETTLED_S, changed)) == {"growing"}
    rates = [found.rate_rows_s for at, found, _ in said if at > changed + 120]
    assert all(rate is not None and 240 < rate < 360 for rate in rates), "the truth is 500 - 200"


@EVERY_TRIGGER
@EVERY_SEED
def test_batches_that_get_longer_and_longer_are_growing_most_of_the_time(trigger_s: float, seed: int) -> None:
    """No trend is known while one huge batch runs, so the trend may be late, but it must be right in the end."""
    watch = Watch(slow(seed, trigger_s))
    watch.look(120)
    watch.model.rate *= 5
    changed = watch.model.now
    found = words(watch.look(300), 60, changed)
    assert found.count("growing") >= 0.85 * len(found)


@EVERY_TRIGGER
@EVERY_SEED
@pytest.mark.parametrize("factor", [0.2, 0.0])
def test_drain_is_called_within_30_s_and_its_eta_is_true(trigger_s: float, seed: int, factor: float) -> None:
    watch = Watch(limited(seed, trigger_s))
    watch.look(60)
    watch.model.rate = 500.0
    watch.look(240)
    watch.model.rate = 100 * factor
    changed = watch.model.now
    worked_off = watch.model.rate * (trigger_s + 10)
    while watch.model.lag > worked_off:
        watch.look(EVERY_S)
    ended = watch.model.now
    assert set(words([said for said in watch.said if said[2] > worked_off], SETTLED_S, changed)) == {"draining"}
    for at, found, _ in watch.said:
        if at > (changed + ended) / 2 and found.trend is Trend.DRAINING:
            left_s = ended - at
            assert found.eta_s is not None and found.rate_rows_s is not None and found.rate_rows_s < 0
            # The end cannot be known more precisely than a batch and a sample.
            assert abs(found.eta_s - left_s) <= max(0.3 * left_s, trigger_s + EVERY_S)
    after = words(watch.look(300), SETTLED_S, ended)
    assert set(after) == ({"steady"} if factor else {"idle"})


@EVERY_TRIGGER
@EVERY_SEED
@pytest.mark.parametrize("land_s, counters, settled_s", [(10.0, True, 60), (1.0, False, 60), (10.0, False, 90)])
def test_parent_in_steps_and_lag_without_counters_take_longer(
    trigger_s: float, seed: int, land_s: float, counters: bool, settled_s: float
) -> None:
    watch = Watch(limited(seed, trigger_s), counters=counters)
    watch.model.land_s = land_s
    watch.look(120)
    watch.model.rate = 500.0
    changed = watch.model.now
    assert set(words(watch.look(240), settled_s, changed)) == {"growing"}
    watch.model.rate = 20.0
    changed = watch.model.now
    assert set(words(watch.look(200), settled_s, changed)) == {"draining"}


@EVERY_MODEL
@EVERY_TRIGGER
@EVERY_SEED
def test_external_source_that_falls_silent_leaves_its_reader_idle(
    make: Callable[[int, float], Model], trigger_s: float, seed: int
) -> None:
    watch = Watch(make(seed, trigger_s))
    watch.look(120)
    watch.model.rate = 0
    stopped = watch.model.now
    found = words(watch.look(300), SETTLED_S + EVERY_S, stopped)
    assert set(found) == {"idle"}
    watch.model.rate = 100
    assert set(words(watch.look(200), SETTLED_S, watch.model.now - 200)) == {"steady"}


@EVERY_TRIGGER
@EVERY_SEED
@pytest.mark.parametrize(
    "parent",
    [replace(PARENT, state=State.STOPPED), replace(PARENT, state=State.FAILED), replace(PARENT, state=State.ABSENT),
     replace(PARENT, missing=True), replace(EXTERNAL, missing=True), replace(PARENT, trend=Trend.STARVED)],
)  # fmt: skip
def test_parent_that_is_stopped_failed_dropped_or_starved_starves_its_reader(
    trigger_s: float, seed: int, parent: UpstreamHealth
) -> None:
    watch = Watch(kept_up(seed, trigger_s), parents=(PARENT,))
    assert set(words(watch.look(120), SETTLED_S)) == {"steady"}
    watch.model.rate, watch.parents = 0, (parent,)
    changed = watch.model.now
    assert set(words(watch.look(300), SETTLED_S, changed)) == {"starved"}


@pytest.mark.parametrize("state", [State.STOPPED, State.FAILED])
@pytest.mark.parametrize("parent", [replace(PARENT, state=State.STOPPED), replace(PARENT, missing=True)])
def test_a_statement_that_does_not_run_is_not_starved(state: State, parent: UpstreamHealth) -> None:
    watch = Watch(kept_up(1, 5.0), parents=(PARENT,))
    watch.look(120)
    watch.model.rate, watch.model.running, watch.state, watch.parents = 0, False, state, (parent,)
    changed = watch.model.now
    assert "starved" not in words(watch.look(120), SETTLED_S, changed)


def test_running_parent_that_falls_silent_starves_its_reader_unless_it_is_known_to_be_idle() -> None:
    for trend, word in (("", "starved"), (Trend.IDLE, "idle"), (Trend.STALLED, "starved")):
        watch = Watch(kept_up(1, 5.0), parents=(replace(PARENT, trend=trend),))
        watch.look(120)
        watch.model.rate = 0
        changed = watch.model.now
        assert set(words(watch.look(120), 45, changed)) == {word}


def test_backlog_of_a_stopped_parent_is_draining_until_it_is_worked_off() -> None:
    watch = Watch(limited(1, 10.0), parents=(PARENT,))
    watch.model.rate = 500.0
    watch.look(240)
    watch.model.rate, watch.parents = 0, (replace(PARENT, state=State.STOPPED),)
    changed = watch.model.now
    assert set(words(watch.look(120), SETTLED_S, changed)) == {"draining"}
    while watch.model.lag:
        watch.look(EVERY_S)
    assert set(words(watch.look(60), 10)) >= {"starved"}
    assert watch.said[-1][1].trend is Trend.STARVED


@EVERY_TRIGGER
@EVERY_SEED
def test_stopped_statement_grows_while_its_parent_produces_and_drains_once_it_runs(trigger_s: float, seed: int) -> None:
    watch = Watch(limited(seed, trigger_s))
    watch.look(120)
    watch.model.running, watch.state = False, State.STOPPED
    changed = watch.changed_at = watch.model.now
    said = watch.look(300)
    assert set(words(said, SETTLED_S, changed)) == {"growing"}
    assert 80 < (said[-1][1].rate_rows_s or 0) < 120
    watch.model.running, watch.state = True, State.RUNNING
    changed = watch.model.now
    assert set(words(watch.look(120), SETTLED_S + trigger_s, changed)) == {"draining"}


@EVERY_TRIGGER
@EVERY_SEED
def test_query_that_takes_input_and_commits_nothing_is_stalled(trigger_s: float, seed: int) -> None:
    watch = Watch(kept_up(seed, trigger_s))
    watch.look(120)
    watch.model.running = False
    changed = watch.model.now
    bound_s = max(30.0, 3 * trigger_s) + trigger_s + 2 * EVERY_S
    assert set(words(watch.look(300), bound_s, changed)) == {"stalled"}


def test_first_batch_that_takes_minutes_is_no_stall_before_ten_of_them() -> None:
    watch = Watch(kept_up(1, 5.0))
    watch.look(120)
    watch.model.running, watch.state = False, State.STARTING
    changed = watch.model.now
    assert "stalled" not in words(watch.look(560), 0, changed)
    assert set(words(watch.look(100), 620, changed)) == {"stalled"}


def test_a_watermark_that_does_not_move_while_rows_are_read_is_stalled() -> None:
    points = [Point(5.0 * n, 0, None, 500, 100 * n, 100 * n) for n in range(20)]
    for age_s, word in ((70.0, "stalled"), (59.0, "steady")):
        found = lag_trend(
            points, 95.0, interval_s=5.0, state=State.RUNNING, parents=(), trigger_s=5.0, commit_age_s=1.0,
            watermark_age_s=age_s,
        )  # fmt: skip
        assert found.trend == word


def test_a_watermark_that_waited_for_input_is_not_stalled_when_rows_arrive_again() -> None:
    came = [100 * min(n, 10) for n in range(40)] + [1000 + 100 * n for n in range(1, 6)]
    points = [Point(5.0 * n, 0, None, 500, rows, rows) for n, rows in enumerate(came)]
    found = lag_trend(
        points, 220.0, interval_s=5.0, state=State.RUNNING, parents=(), trigger_s=5.0, commit_age_s=1.0,
        watermark_age_s=170.0,
    )  # fmt: skip
    assert found.trend == "steady"


def test_one_burst_of_a_parent_that_starts_again_drains_and_is_never_called_growing() -> None:
    watch = Watch(limited(1, 5.0, rate=8.0), parents=(PARENT,))
    watch.model.land_s = 5.0
    watch.look(120)
    watch.model.rate, watch.parents = 0, (replace(PARENT, state=State.STOPPED),)
    watch.look(60)
    watch.model.rate, watch.parents = 8.0, (PARENT,)
    watch.model.produced += 480
    found = words(watch.look(180))
    assert set(found) == {"starved", "steady", "draining"} or set(found) == {"steady", "draining"}
    assert changes(found) <= 3


@pytest.mark.parametrize(
    "points, now",
    [
        ([], 0.0),
        ([Point(5.0 * n, n, produced_rows=n, consumed_rows=0) for n in range(5)], 20.0),
        ([Point(5.0 * n + (60 if n > 14 else 0), n) for n in range(20)], 155.0),
        ([Point(5.0 * n, 1000 * n) for n in range(20)], 200.0),
        ([Point(5.0 * n, 1000 * n, produced_rows=n if n < 15 else 0) for n in range(20)], 95.0),
        ([Point(5.0 * n, None) for n in range(20)], 95.0),
    ],
    ids=["none", "five", "hole", "old", "counter went back", "no lag"],
)
def test_too_few_samples_or_a_hole_give_unknown_and_never_a_number(points: Sequence[Point], now: float) -> None:
    for parents in ((), (replace(PARENT, missing=True),)):
        found = lag_trend(points, now, interval_s=5.0, state=State.RUNNING, parents=parents, trigger_s=5.0)
        assert (found.trend, found.rate_rows_s, found.eta_s) == (Trend.UNKNOWN, None, None)


def rising(behind_s: float | None = 25.0, **known: Any) -> LagTrend:
    """Judge a minute in which input arrived and nothing was committed, on a trigger of 40 s."""
    points = [Point(5.0 * n, 20 * n, n, None, 20 * n, 0) for n in range(12)]
    return lag_trend(
        points, 55.0, interval_s=5.0, parents=(), trigger_s=40.0, behind_s=behind_s,
        **{"state": State.RUNNING, "commit_age_s": 55.0} | known,
    )  # fmt: skip


def test_input_that_waits_behind_a_start_without_a_commit_is_never_called_steady() -> None:
    for state in (State.STARTING, State.RUNNING):
        found = rising(state=state, proven=False)
        assert (found.trend, found.reason) == (Trend.UNKNOWN, "nothing was committed since its start")
    assert rising(proven=True).trend is Trend.STEADY, "within three triggers of a commit lag rises until the next"


def test_input_before_the_first_batch_of_a_start_is_never_growing() -> None:
    """A restart that had read nothing for 51 s was reported as `the lag grows by 127 rows a minute`."""
    read = [10 * min(n, 12) for n in range(24)]
    points = [Point(5.0 * n, 60 + 20 * n - read[n], 1, 900, 60 + 20 * n, read[n]) for n in range(24)]
    judged = {
        proven: lag_trend(
            points, 115.0, interval_s=5.0, state=State.STARTING, parents=(), trigger_s=5.0, commit_age_s=51.0,
            behind_s=55.0, proven=proven,
        )
        for proven in (False, True)
    }  # fmt: skip
    assert (judged[False].trend, judged[False].rate_rows_s) == (Trend.UNKNOWN, None)
    assert judged[True].trend is Trend.GROWING


def restarted(lags: Sequence[int], started_at: float | None) -> list[Trend]:
    """Judge each of these lags after a restart on a trigger of 1 s, with 15 rows a second and a stop of 90 s.

    The restart is at 150 s, and the first of the lags follows 5 s later.
    """
    before = [20] * 12 + [20 + 75 * n for n in range(1, 19)]
    points = [Point(5.0 * n, lag, 1, 4800, 20 + 75 * n, 20 + 75 * n - lag) for n, lag in enumerate([*before, *lags], 1)]
    said = [Trend.UNKNOWN]
    for n in range(len(before) + 1, len(points) + 1):
        now = points[n - 1].at
        found = lag_trend(
            points[:n], now, interval_s=5.0, state=State.RUNNING, parents=(), trigger_s=1.0, previous=said[-1],
            commit_age_s=1.0, behind_s=lags[n - len(before) - 1] / 15, started_at=started_at,
        )  # fmt: skip
        said.append(found.trend)
    return said[1:]


def test_a_backlog_worked_off_after_a_restart_is_too_early_to_judge_or_draining() -> None:
    """Scenario 6 reported `the backlog neither falls nor rises` while the lag fell from 1,400 rows."""
    assert restarted([902, 676, 502], 150.0) == [Trend.UNKNOWN, Trend.DRAINING, Trend.DRAINING]
    assert restarted([902, 900], 150.0) == [Trend.UNKNOWN, Trend.UNKNOWN]
    assert restarted([902, 900, 898, 901], 150.0)[2:] == [Trend.STEADY, Trend.STEADY]
    assert Trend.UNKNOWN not in restarted([902, 900], -10_000.0), "it was started long before these samples"


def test_commits_before_a_restart_do_not_make_the_lag_after_it_growing() -> None:
    assert Trend.GROWING not in restarted([700, 900, 880, 860], 150.0)


def test_a_statement_that_was_just_started_and_has_no_input_waiting_is_steady() -> None:
    points = [Point(5.0 * n, 0, 0, None, 20 * n, 20 * n) for n in range(12)]
    found = lag_trend(
        points, 55.0, interval_s=5.0, state=State.RUNNING, parents=(), trigger_s=40.0, behind_s=0.0, proven=False
    )
    assert found.trend is Trend.STEADY


def test_a_statement_whose_pool_does_not_answer_is_not_steady() -> None:
    assert rising(state=State.UNKNOWN, commit_age_s=10.0).trend is Trend.UNKNOWN


@pytest.mark.parametrize("state", [State.STOPPED, State.FAILED, State.COMPLETED])
def test_a_stopped_statement_is_steady_after_six_measurements(state: State) -> None:
    points = [Point(5.0 * n, 100, 1, None, 100 + 20 * min(n, 9), 20 * min(n, 9)) for n in range(15)]
    said = [
        lag_trend(points[:seen], points[seen - 1].at, interval_s=5.0, state=state, parents=(), trigger_s=5.0).trend
        for seen in (11, 14, 15)
    ]
    assert said == [Trend.UNKNOWN, Trend.UNKNOWN, Trend.STEADY]


@pytest.mark.parametrize("arrives, later", [(0, Trend.STEADY), (20, Trend.GROWING)])
def test_a_stopped_statement_is_judged_by_input_since_then(arrives: int, later: Trend) -> None:
    """The statement was stopped in a batch of several minutes, and reported as `growing` without any new input."""
    came = [20 * n if n < 30 else 600 + arrives * (n - 30) for n in range(45)]
    points = [Point(5.0 * n, rows - 20, 1, None, rows, 20 if n else 0) for n, rows in enumerate(came)]

    def said(seen: int, **known: float) -> Trend:
        return lag_trend(
            points[:seen], points[seen - 1].at, interval_s=5.0, state=State.STOPPED, parents=(), trigger_s=5.0, **known
        ).trend

    assert said(32) is Trend.GROWING, "by what came while it ran"
    assert [said(seen, rests_since=150.0) for seen in (32, 35, 36, 45)] == [Trend.UNKNOWN, Trend.UNKNOWN, later, later]


def test_lag_in_files_has_a_trend_and_an_eta_but_no_rate_in_rows() -> None:
    points = [Point(5.0 * n, None, 1000 - 10 * n) for n in range(30)]
    found = lag_trend(points, 145.0, interval_s=5.0, state=State.RUNNING, parents=(), trigger_s=5.0, commit_age_s=1.0)
    assert (found.trend, found.rate_rows_s) == (Trend.DRAINING, None)
    assert found.eta_s == pytest.approx(710 / 2, rel=0.05)


@given(
    st.lists(st.tuples(st.floats(0.1, 20), st.integers(0, 10**9), st.integers(0, 10**6)), max_size=60),
    st.sampled_from(list(State)), st.sampled_from(list(Trend)),
)  # fmt: skip
def test_any_samples_give_one_trend_and_numbers_only_where_they_are_meaningful(
    steps: list[tuple[float, int, int]], state: State, previous: Trend
) -> None:
    at, points = 0.0, []
    for elapsed, lag, batch_ms in steps:
        at += elapsed
        points.append(Point(at, lag, 1, batch_ms))
    found = lag_trend(points, at, interval_s=5.0, state=state, parents=(), trigger_s=5.0, previous=previous)
    assert (found.eta_s is not None) == (found.trend is Trend.DRAINING)
    assert (found.rate_rows_s is not None) == (found.trend in (Trend.DRAINING, Trend.GROWING))
    assert found.eta_s is None or (found.eta_s >= 0 and math.isfinite(found.eta_s))
    assert found.reason


def test_total_adds_up_and_knows_what_it_does_not_know() -> None:
    known = SourceLag(ORDERS, 2, 200, 20, True, 4.0)
    guessed = SourceLag(LANDING, 3, 300, 30, False, 9.0)
    blind = SourceLag(LANDING, 1, 10, None, True, None, missing=True)
    assert total_lag(()) == Lag(0, 0, 0, True, None, ())
    assert total_lag((known, guessed)) == Lag(50, 5, 500, False, 9.0, ())
    assert total_lag((known, blind)) == Lag(None, None, 210, True, 4.0, (LANDING,)), "who waits for it has no end"
