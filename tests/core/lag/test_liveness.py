"""What counts as running, for constructed times and for recordings of an agent."""

from pathlib import Path

import pytest
from microbatch_model import Point

from core.lag.liveness import LivenessSigns, is_catch_up_batch, usual_batch_s, why_not_live

IN_BATCH, BETWEEN = True, False


@pytest.mark.parametrize(
    ("silent_s", "trigger_s", "usual_s", "in_batch", "why"),
    [
        (0.0, 1.0, None, BETWEEN, None),
        (30.0, 1.0, 0.5, BETWEEN, None),
        (30.1, 1.0, 0.5, BETWEEN, "no progress for 30 s, and no batch is running"),
        (30.1, 1.0, 0.5, IN_BATCH, "a batch has been running for 30 s; the typical duration is 0.5 s"),
        (49.0, 5.0, 5.0, IN_BATCH, None),
        (51.0, 5.0, 5.0, IN_BATCH, "a batch has been running for 51 s; the typical duration is 5.0 s"),
        (179.0, 60.0, 2.0, BETWEEN, None),
        (181.0, 60.0, 2.0, BETWEEN, "no progress for 181 s, and no batch is running"),
        (599.0, 1.0, None, IN_BATCH, None),
        (601.0, 1.0, None, IN_BATCH, "a batch has been running for 601 s; the typical duration is unknown"),
        (1900.0, 1.0, 200.0, IN_BATCH, None),
    ],
)
def test_silence_counts_against_trigger_and_usual_batches(
    silent_s: float, trigger_s: float, usual_s: float | None, in_batch: bool, why: str | None
) -> None:
    assert why_not_live(LivenessSigns(silent_s, trigger_s, in_batch, usual_s=usual_s)) == why


def test_a_query_that_reports_waiting_is_running_whatever_was_missed() -> None:
    assert why_not_live(LivenessSigns(900.0, 1.0, BETWEEN, waits=True, usual_s=0.5)) is None


@pytest.mark.parametrize(("silent_s", "late"), [(599.0, False), (601.0, True)])
def test_a_first_replayed_or_catch_up_batch_has_ten_minutes(silent_s: float, late: bool) -> None:
    assert bool(why_not_live(LivenessSigns(silent_s, 1.0, IN_BATCH, usual_s=0.5, patient=True))) is late
    assert why_not_live(LivenessSigns(silent_s, 1.0, IN_BATCH, usual_s=100.0, patient=True)) is None


def course(*waiting: int, taken: int = 100, files: bool = False) -> list[Point]:
    """Return samples five seconds apart with pending rows or files; all but the last two consumed `taken` each."""
    lags = [(None, lag) if files else (lag, None) for lag in waiting]
    taken_at = [taken * min(n, len(waiting) - 2) for n in range(len(waiting))]
    return [
        Point(5.0 * n, *lag, batch_ms=800, produced_rows=0, consumed_rows=done)
        for n, (lag, done) in enumerate(zip(lags, taken_at, strict=True))
    ]


@pytest.mark.parametrize(
    ("samples", "heard_at", "catching_up"),
    [
        (course(80, 90, 80, 90, 100), 17.0, False),
        (course(80, 90, 80, 90, 900), 17.0, True),
        (course(80, 90, 80, 90, 100, 200, 900), 17.0, False),
        (course(9, 5, 8, 4, 5, files=True), 17.0, False),
        (course(9, 5, 8, 4, 40, files=True), 17.0, True),
        (course(0, 0, 0, 0, 5, taken=0), 17.0, True),
        ([], 17.0, True),
        (course(80, 90, 80, 90), 17.0, False),
    ],
    ids=["usual", "a burst", "what comes on top while it runs", "files", "a burst of files", "after long idleness",
         "nothing known", "nothing measured since"],
)  # fmt: skip
def test_a_batch_catches_up_when_far_more_waits_than_is_usually_taken(
    samples: list[Point], heard_at: float, catching_up: bool
) -> None:
    assert is_catch_up_batch(samples, heard_at) is catching_up


def test_usual_is_the_median_of_the_batches_that_read_something() -> None:
    assert usual_batch_s([]) is None
    assert usual_batch_s([Point(0.0, 0), Point(5.0, 0, batch_ms=1000), Point(10.0, 0, batch_ms=0)]) == 1.0
    assert usual_batch_s([Point(0.0, 0, batch_ms=4, in_rows_s=0.0), Point(5.0, 0, batch_ms=900, in_rows_s=7.0)]) == 0.9
    assert usual_batch_s([Point(5.0 * n, 0, batch_ms=ms) for n, ms in enumerate((900, 60_000, 1100))]) == 1.1


@pytest.mark.parametrize(("name", "silences"), [("overloaded.csv", 15), ("driven.csv", 5)])
def test_recorded_courses_on_busy_machines_were_running_throughout(name: str, silences: int) -> None:
    """At a load of 12 on two cores batches grew from 3 to 23 s; time between commits with pending input is silence."""
    points: list[Point] = []
    longest = heard_at = 0.0
    for row in (Path(__file__).parents[2] / "fixtures/lag" / name).read_text().splitlines()[1:]:
        at, lag, files, batch_ms, produced, consumed = (float(value or 0) for value in row.split(","))
        points.append(Point(at, int(lag), int(files), int(batch_ms), int(produced), int(consumed)))
        if not lag or [point.consumed_rows for point in points[-2:-1]] != [consumed]:
            heard_at = at
        longest = max(longest, at - heard_at)
        known = points[-180:]
        signs = LivenessSigns(
            at - heard_at, 5.0, IN_BATCH, usual_s=usual_batch_s(known), patient=is_catch_up_batch(known, heard_at)
        )
        assert why_not_live(signs) is None, at
    assert longest >= silences
