"""The lag trend of a statement, over samples that an agent took of a real demo."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from microbatch_model import EVERY_S, EXTERNAL, Point

from core.lag.trend import LagTrend, lag_trend
from core.model.states import State, Trend

SOURCE = replace(EXTERNAL, silent_s=None)


def recorded(name: str) -> list[tuple[float, LagTrend]]:
    """Return (seconds, trend) for the recorded samples of order_labels, which reads four files per batch."""
    said: list[tuple[float, LagTrend]] = []
    points: list[Point] = []
    lines = (Path(__file__).parents[2] / "fixtures/lag" / name).read_text().splitlines()
    for line in lines[1:]:
        at, lag, files, batch_ms, produced, consumed = (float(value or 0) for value in line.split(","))
        points.append(Point(at, int(lag), int(files), int(batch_ms), int(produced), int(consumed)))
        went = [after.at for before, after in pairwise(points) if after.consumed_rows != before.consumed_rows]
        found = lag_trend(
            points[-180:], at, interval_s=EVERY_S, state=State.RUNNING, parents=(SOURCE,), trigger_s=5.0,
            previous=said[-1][1].trend if said else Trend.UNKNOWN, by_files=True,
            commit_age_s=at - went[-1] if went else None,
        )  # fmt: skip
        said.append((at, found))
    return said


def test_a_statement_that_keeps_up_on_an_overloaded_machine_is_steady_throughout() -> None:
    """Recorded at a load of 12 on two cores: batches grew from 3 to 23 s on a trigger of 5 s."""
    assert {found.trend for at, found in recorded("overloaded.csv") if at > 30} == {Trend.STEADY}


def test_the_recorded_demo_has_one_trend_for_each_phase() -> None:
    """Rate x5 reached the statement at 140 s and x0.2 at 258 s; the generator paused at 357 s and resumed at 480 s."""
    said = [(at, str(found.trend)) for at, found in recorded("driven.csv") if at < 550]
    course = [(at, word) for (at, word), (_, before) in zip(said[1:], said, strict=False) if word != before]
    assert [word for _, word in course] == ["steady", "growing", "draining", "idle", "steady"]
    for (at, _), changed in zip(course[1:], (140, 258, 357, 480), strict=True):
        assert changed < at <= changed + 35


def test_recorded_drain_whose_files_got_smaller_is_foretold_by_its_files() -> None:
    """The backlog ended at 346 s; its files had 36 rows at first and 20 later, and a batch reads four of them."""
    ended = 345.6
    calls = [(at, found) for at, found in recorded("draining.csv") if 207 < at < ended]
    assert {found.trend for _, found in calls} == {Trend.DRAINING}
    for at, found in calls[len(calls) // 2 :]:
        left_s = ended - at
        # The end cannot be known more precisely than a batch and a sample.
        assert found.eta_s is not None and abs(found.eta_s - left_s) <= max(0.3 * left_s, 5.0 + 2 * EVERY_S)
