"""How far a statement is behind its inputs, and where that is going: positions → total, samples → verdict.

One condition for each word; the first that holds is the word:

unknown   Fewer than 6 samples in a row (a hole of more than 3 intervals, counters that went back, or a stop begin a new
          row), the newest sample older than 3 intervals, or no lag in it. Never with a number. Also where input waits
          and nothing was committed since the start, and where nothing has shown what `steady` says: the pool does not
          answer, or it does not run and was not looked at six times since its last commit.
starved   It runs, and a parent is missing (gone, replaced), or a parent that is a statement is absent, stopped, failed
          or silent, and there is no backlog left that takes more than 15 s and 3 triggers to work off, nor rows that
          have waited for longer than 30 s and 3 triggers. Silent: it runs, delivered before, and has delivered nothing
          for the longer of 20 s and 6 of its usual intervals; where its own trend is given, that it is stalled or
          starved.
stalled   It runs, input is pending, and nothing was committed for the longest of 30 s, 3 triggers and 3 batches (where
          the pool does not answer, of 20 s and a trigger and 10 s: no batch is known of; while it starts, for 10 min,
          which a first batch may take); or it has consumed for the longer of 60 s and 6 triggers from all its inputs,
          and its watermark has not moved in all that time.
idle      Nothing is pending, nothing came for the longer of 20 s and 2.5 usual intervals. An external source that falls
          silent leaves its readers idle, not starved: nobody promised that it would go on.
steady    It runs, has committed since its start where input waits, and no input has waited for longer than 30 s and
          3 triggers, however many rows that is: where time is known, it is judged before rows.
growing   There is a backlog, and since its last turn it rose by more than noise, not in one step. Also while stopped.
draining  There is a backlog, and since its last turn it fell by more than noise; ETA is when it will be worked off.
steady    None of these: what comes is worked off batch by batch, or a backlog stays as it is.

Lag is a sawtooth: it rises while a batch runs and falls when it commits. So lag is compared only right after commits
(for a stopped statement: everywhere). *Noise* is what arrives between a commit and the sample that sees it; a *backlog*
is more than what arrives during a usual batch and that time; a *turn* is a change of direction by more than noise. How
fast things arrive is the middle one of the last three sightings: a parent that starts again delivers one burst.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from core.lag.lag_samples import LEAST_SAMPLES, LagSample, SampleSeries, sample_series
from core.lag.liveness import PATIENT_S
from core.model.names import TableName
from core.model.states import MAY_WORK, State, Trend

_LOOK_BACK_S = 300.0
_RATE_S = 120.0
_BROKEN = frozenset({State.ABSENT, State.STOPPED, State.FAILED})
_UNCOMMITTED = "nothing was committed since its start"


@dataclass(frozen=True, slots=True)
class UpstreamHealth:
    """The health of one streamed source."""

    table: TableName
    state: str
    missing: bool = False
    external: bool = False
    silent_s: float | None = None
    """Seconds since its newest committed file; None if it never had one."""
    trend: str = ""
    """Its own trend as of the last round; empty if unknown."""


@dataclass(frozen=True, slots=True)
class LagTrend:
    """The trend of a statement's lag."""

    trend: Trend
    rate_rows_s: float | None = None
    """Change of lag while growing or draining (then negative); otherwise, or if lag is in files, None."""
    eta_s: float | None = None
    """Seconds until the backlog is processed; only while draining."""
    reason: str = ""
    """One clause for people."""


def lag_trend(
    samples: Sequence[LagSample],
    now: float,
    *,
    interval_s: float,
    state: str,
    parents: Sequence[UpstreamHealth],
    trigger_s: float,
    previous: str = Trend.UNKNOWN,
    commit_age_s: float | None = None,
    watermark_age_s: float | None = None,
    by_files: bool = False,
    behind_s: float | None = None,
    proven: bool = True,
    rests_since: float | None = None,
) -> LagTrend:
    """Return the trend of a statement's lag from samples about `interval_s` apart, oldest first.

    `previous` is the last trend: leaving `growing` or `draining` takes more evidence than staying. `commit_age_s` is
    the time since the newest commit or a later start, None if nothing was committed. `watermark_age_s` is the time
    since the watermark last moved or the statement was last starved, None without a watermark. `by_files` means that
    batches are limited in files, so that files determine their duration. `behind_s` is the age of the oldest pending
    input, None if unknown: then only rows are judged. `proven` means that it has committed since its start.
    `rests_since` is when a stopped statement stopped: older samples are ignored.
    """
    working = state in MAY_WORK
    if rests_since is not None and not working:
        samples = [sample for sample in samples if sample.at >= rests_since]
    series = sample_series(samples, now, interval_s)
    if series is None:
        return LagTrend(Trend.UNKNOWN, reason="too few consecutive samples")
    # What stands still of itself lacks nothing: it waits for whoever starts it.
    needed = parents if working else ()
    if gone := [parent.table for parent in needed if parent.missing]:
        return LagTrend(Trend.STARVED, reason=f"{', '.join(gone)} was dropped or replaced")
    movement = _movement(series, trigger_s, previous, working=working, by_files=by_files)
    bound_s = keeps_up_s(trigger_s)
    has_work = behind_s is not None and behind_s > bound_s and series.lag[-1] > 0
    starving = _starving(needed, series)
    if starving and not has_work and not _works_off(movement, trigger_s, previous):
        return LagTrend(Trend.STARVED, reason=starving)
    # The watermark stands while one of several inputs does.
    watermark_age_s = None if starving else watermark_age_s
    if working and (why := _stalling(series, trigger_s, commit_age_s, watermark_age_s, state)):
        return LagTrend(Trend.STALLED, reason=why)
    silent = [parent.silent_s for parent in parents if parent.silent_s is not None]
    quiet_s = min(silent) if silent else series.at[-1] - series.arrived_at
    if series.lag[-1] == 0 and quiet_s > max(20.0, 2.5 * series.usual_gap_s):
        return LagTrend(Trend.IDLE, reason=f"nothing pending, no input for {quiet_s:.0f} s")
    keeps_up = working and behind_s is not None and behind_s <= bound_s
    if (keeps_up or movement.trend is Trend.STEADY) and (why := _unproven(series, state, proven=proven)):
        return LagTrend(Trend.UNKNOWN, reason=why)
    # What came while it was stopped, and until its first batch ends, shows nothing of how fast it processes.
    if working and not proven and series.lag[-1] > 0 and not _has_processed(series, commit_age_s):
        return LagTrend(Trend.UNKNOWN, reason=_UNCOMMITTED)
    if keeps_up:
        return LagTrend(Trend.STEADY, reason=f"no input has waited for more than {bound_s:.0f} s")
    return movement


def _unproven(series: SampleSeries, state: str, *, proven: bool) -> str:
    """Return why there is no evidence that a statement keeps up or that its backlog is stable; empty if there is."""
    if state == State.UNKNOWN:
        return "the pool does not answer"
    if state in MAY_WORK:
        return "" if proven or series.lag[-1] == 0 else _UNCOMMITTED
    moved = max((n for n in range(1, len(series.at)) if series.processed[n] > series.processed[n - 1]), default=0)
    return "" if len(series.at) - moved >= LEAST_SAMPLES else "too few samples since its last commit"


def _has_processed(series: SampleSeries, commit_age_s: float | None) -> bool:
    """True if input was processed since the newest commit or start; without one, in any sample."""
    since = 0.0 if commit_age_s is None else series.at[-1] - commit_age_s
    rises = (n for n in range(1, len(series.at)) if series.processed[n] > series.processed[n - 1])
    return any(series.at[n - 1] >= since for n in rises)


def keeps_up_s(trigger_s: float) -> float:
    """Return how long input may be pending for a statement that keeps up, in seconds."""
    return max(30.0, 3 * trigger_s)


def _starving(parents: Sequence[UpstreamHealth], series: SampleSeries) -> str:
    for parent in parents:
        if parent.external:
            continue
        if parent.state in _BROKEN:
            return f"{parent.table} is {parent.state}"
        bound_s = max(20.0, 6 * series.usual_gap_s)
        if parent.trend:
            if parent.trend in (Trend.STALLED, Trend.STARVED):
                return f"{parent.table} is {parent.trend}"
        elif parent.silent_s is not None and parent.silent_s > bound_s and series.arrived_at > series.at[0]:
            return f"{parent.table} has been silent for {parent.silent_s:.0f} s"
    return ""


def _works_off(movement: LagTrend, trigger_s: float, previous: str) -> bool:
    """True if a backlog counts as draining although no input arrives; a new trend needs more than a few batches."""
    if movement.trend is not Trend.DRAINING:
        return False
    return previous == Trend.DRAINING or (movement.eta_s or 0.0) > max(15.0, 3 * trigger_s)


def _stalling(
    series: SampleSeries,
    trigger_s: float,
    commit_age_s: float | None,
    watermark_age_s: float | None,
    state: str,
) -> str:
    processed_at = max(
        (n for n in range(1, len(series.at)) if series.processed[n] > series.processed[n - 1]), default=0
    )
    age_s = series.at[-1] - series.at[processed_at] if commit_age_s is None else commit_age_s
    # Something must have been pending all that time: an old commit of an idle statement says nothing.
    since = max((n for n in range(len(series.at)) if series.lag[n] == 0), default=-1) + 1
    pending_s = series.at[-1] - series.at[since] if since < len(series.at) else 0.0
    # A batch may take longer than the trigger, a first one much longer; where the pool does not answer, nothing speaks
    # for one.
    bound_s = max(30.0, 3 * trigger_s, 3 * max(series.batches_s), PATIENT_S if state == State.STARTING else 0.0)
    if min(age_s, pending_s) > (max(20.0, trigger_s + 10.0) if state == State.UNKNOWN else bound_s):
        return f"input is pending, no commit for {age_s:.0f} s"
    if watermark_age_s is None:
        return ""
    # Counted from the first rows read since it moved: it stands while nothing comes as well.
    read_at = [
        series.at[n]
        for n in range(1, len(series.at))
        if series.processed[n] > series.processed[n - 1] and series.at[n] > series.at[-1] - watermark_age_s
    ]
    bound_s = max(60.0, 6 * trigger_s)
    if read_at and series.at[-1] - read_at[0] > bound_s and series.at[-1] - read_at[-1] < bound_s:
        return f"rows are being read, but the watermark has not advanced for {watermark_age_s:.0f} s"
    return ""


def _movement(series: SampleSeries, trigger_s: float, previous: str, *, working: bool, by_files: bool) -> LagTrend:
    """Return growing, draining or steady, from the last monotone stretch of the lag sampled right after commits."""
    if series.has_counters or not working:
        points = _after_commits(series, trigger_s, working=working)
        noise, backlog = _expected(series, trigger_s, working=working)
    else:
        points, noise = _lowest(series, trigger_s)
        backlog = 1.5 * noise
    if len(points) < 2:
        return LagTrend(Trend.STEADY, reason="no change in lag beyond noise")
    leg = _last_leg(points, noise)
    recent = [point for point in leg if point[0] >= min(leg[-1][0] - _RATE_S, leg[-4:][0][0])]
    slope = _slope(recent)
    change = leg[-1][1] - leg[0][1]
    # One burst is no trend: a rise that is mostly its largest step waits for the next, unless that takes too long.
    burst = max((after[1] - before[1] for before, after in pairwise(leg)), default=0.0)
    lag = leg[-1][1]
    kept = 0.6 if previous in (Trend.GROWING, Trend.DRAINING) else 1.0
    rate = round(slope, 3) if series.in_rows else None
    slow = not working or trigger_s > 2 * series.interval_s
    in_steps = slow or change - burst > min(noise * kept, 0.4 * change)
    if lag > backlog * kept and slope > 0 and change > noise * kept and in_steps:
        return LagTrend(Trend.GROWING, rate, reason=f"lag is rising by {slope:.3g}/s")
    if lag > backlog * kept and slope < 0 and -change > noise * kept:
        left_s = _seconds_left(series, recent, by_files=by_files)
        # The last batch is half full on average, and takes its turn all the same.
        eta_s = max(0.0, left_s + trigger_s / 2 - (series.at[-1] - leg[-1][0]))
        return LagTrend(Trend.DRAINING, rate, round(eta_s, 1), reason=f"lag is falling by {-slope:.3g}/s")
    return LagTrend(Trend.STEADY, reason="no change in lag beyond noise")


def _seconds_left(series: SampleSeries, recent: Sequence[tuple[float, float]], *, by_files: bool) -> float:
    """Return the seconds until a falling lag is processed; by files, if batches are limited in files."""
    files = dict(zip(series.at, series.files, strict=False)) if len(series.files) == len(series.at) else {}
    of_files = [(at, files[at]) for at, _ in recent if at in files]
    if by_files and (slope := _slope(of_files)) < 0:
        return of_files[-1][1] / -slope
    return recent[-1][1] / -_slope(recent)


def _expected(series: SampleSeries, trigger_s: float, *, working: bool) -> tuple[float, float]:
    """Return the noise, and the largest backlog right after a commit of a statement that keeps up."""
    blur_s = max(series.interval_s, series.usual_gap_s)
    arrival_rate = series.arrival_rate()
    noise = max(1.0, arrival_rate * blur_s)
    if not working:
        return noise, noise
    # The newest batch counts up to three triggers: a longer one may be the first of an overload.
    batch_s = max(median(series.batches_s), min(series.batches_s[-1], 3 * trigger_s))
    return noise, max(1.0, arrival_rate * (batch_s + blur_s) * 1.4)


def _after_commits(series: SampleSeries, trigger_s: float, *, working: bool) -> list[tuple[float, float]]:
    first = next(n for n in range(len(series.at)) if series.at[n] >= series.at[-1] - _LOOK_BACK_S)
    every = range(max(1, first), len(series.at))
    commits = [n for n in every if series.processed[n] > series.processed[n - 1]]
    points = [(series.at[n], series.lag[n]) for n in commits]
    if not working:
        start = commits[-1] if commits else first
        return [(series.at[n], series.lag[n]) for n in range(start, len(series.at))]
    gaps = [series.at[b] - series.at[a] for a, b in pairwise(commits)]
    usual_s = max(trigger_s, median(gaps) if gaps else 0.0)
    empty = max((n for n in every if series.lag[n] == 0), default=0)
    if commits and series.at[-1] - series.at[max(commits[-1], empty)] > 1.5 * usual_s + series.interval_s:
        # The batch takes longer than usual: what it would leave behind, were it as big as usual.
        usual = median(series.processed[n] - series.processed[n - 1] for n in commits)
        points.append((series.at[-1], max(0.0, series.lag[-1] - usual)))
    return points


def _lowest(series: SampleSeries, trigger_s: float) -> tuple[list[tuple[float, float]], float]:
    """Return, without counters, the lowest lag of each stretch with a commit, and the swing of lag within one."""
    width = trigger_s + 2 * series.interval_s
    stretches: dict[int, list[tuple[float, float]]] = {}
    for at, lag in zip(series.at, series.lag, strict=True):
        if (age := series.at[-1] - at) < _LOOK_BACK_S:
            stretches.setdefault(-int(age // width), []).append((lag, at))
    whole = [stretch for _, stretch in sorted(stretches.items()) if len(stretch) > 1]
    swing = median(max(stretch)[0] - min(stretch)[0] for stretch in whole) if whole else 0.0
    return [(at, lag) for lag, at in (min(stretch) for stretch in whole)], max(1.0, swing, series.batch_rows_s * width)


def _last_leg(points: Sequence[tuple[float, float]], noise: float) -> Sequence[tuple[float, float]]:
    """Return the points since the last turn, the last extreme from which the lag moved by more than noise."""
    low = high = 0
    start, direction = 0, 0
    for n, (_, lag) in enumerate(points):
        if lag <= points[low][1]:
            low = n
        if lag >= points[high][1]:
            high = n
        if direction >= 0 and points[high][1] - lag > noise:
            start, direction, low = high, -1, n
        elif direction <= 0 and lag - points[low][1] > noise:
            start, direction, high = low, 1, n
    return points[start:]


def _slope(points: Sequence[tuple[float, float]]) -> float:
    """Return the Theil-Sen slope, the median over all pairs, which is robust against single odd batches."""
    slopes = [
        (lag - before) / (at - since)
        for n, (since, before) in enumerate(points)
        for at, lag in points[n + 1 :]
        if at > since
    ]
    return median(slopes) if slopes else 0.0
