"""The trend of a statement's lag, from samples: whether the statement keeps up, falls behind, or catches up.

The conditions are tried in this order; the first that holds decides:

unknown   There are fewer than 6 consecutive samples (a gap of more than 3 intervals, a counter that decreases, or a
          stop starts a new series), or the newest sample is older than 3 intervals or has no lag. The trend is
          also unknown while input is pending and nothing was committed since the start, and while `steady` cannot be
          proved, because the pool does not answer, a stopped statement has fewer than 6 samples since its last
          commit, or a statement whose input has waited for longer than 30 s and 3 triggers has processed input in
          fewer than 3 samples since its start. An unknown trend has no rate or ETA.
starved   The statement runs, and a parent is missing (dropped, replaced); or a parent that is itself a statement is
          absent, stopped, failed or silent, and the statement neither has a backlog that takes longer than 15 s and 3
          triggers, nor input that has waited for longer than 30 s and 3 triggers. A parent is silent if it runs and has
          delivered before, but has delivered nothing for the longer of 20 s and 6 of its typical intervals; if the
          parent's own trend is known, the parent is silent if the trend is stalled or starved.
stalled   The statement runs, input is pending, and nothing was committed for the longest of 30 s, 3 triggers and 3
          batches (10 min while it starts, since a first batch may take that long; the longer of 20 s and a trigger plus
          10 s while the pool does not answer, since no batch is known then). Or it has processed input for the longer
          of 60 s and 6 triggers while its watermark has not advanced, and it is not starved.
idle      Nothing is pending, and nothing has arrived for the longer of 20 s and 2.5 typical intervals. Readers of an
          external source that becomes silent are idle, not starved: it may have nothing more to deliver.
steady    The statement runs, has committed since its start if input is pending, and no input has waited for longer than
          30 s and 3 triggers, however many rows are pending: if the time is known, it takes precedence over rows.
growing   There is a backlog, and since its last turn it has risen by more than noise, in more than one step. This
          applies to stopped statements as well.
draining  There is a backlog, and since its last turn it has fallen by more than noise. The ETA is the time until it is
          gone.
steady    None of the above: input is processed batch by batch, or a backlog stays the same.

Lag rises while a batch runs and falls when the batch commits. It is therefore compared only right after commits since
the start (for a stopped statement, at every sample). *Noise* is the input that arrives between a commit and the next
sample. A *backlog* is a lag above the input that arrives during a typical batch and until the next sample. A *turn* is
a change of direction by more than the noise. The input rate is the median of the last three arrivals, because a parent
that starts again delivers one burst.
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
_LEAST_COMMITS = 3
_UNCOMMITTED = "nothing was committed since its start"
_TOO_EARLY = "too few batches since its start"


@dataclass(frozen=True, slots=True)
class UpstreamHealth:
    """The observed health of a streamed source, which decides whether its readers are starved."""

    table: TableName
    state: str
    missing: bool = False
    external: bool = False
    silent_s: float | None = None
    """Seconds since the latest committed file of the source; None if the source never had a file."""
    trend: str = ""
    """The source's own trend in the last round of measurements; empty if unknown."""


@dataclass(frozen=True, slots=True)
class LagTrend:
    """The trend of a statement's lag."""

    trend: Trend
    rate_rows_s: float | None = None
    """Change of the lag in rows per second; None if the lag neither grows nor drains, or is counted in files."""
    eta_s: float | None = None
    """Seconds until the backlog is processed; None unless the lag is draining."""
    reason: str = ""
    """The reason, as one human-readable clause."""


_UNANSWERED = LagTrend(Trend.UNKNOWN, reason="the pool does not answer")


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
    started_at: float | None = None,
) -> LagTrend:
    """Return the trend of a statement's lag, given samples about `interval_s` apart, oldest first.

    `previous` is the last trend: it takes more evidence to leave `growing` or `draining` than to stay. `commit_age_s`
    is the time since the latest commit or a later start, None if nothing was committed. `watermark_age_s` is the time
    since the watermark last advanced or the statement was last starved, None if there is no watermark. `by_files` means
    that batches are limited by number of files, which then determines their duration. `behind_s` is the age of the
    oldest pending input; if it is None, only rows are considered. `proven` means that the statement has committed since
    its start, which was at `started_at`. `rests_since` is when a stopped statement stopped: older samples are ignored.
    While the pool does not answer, a lack of commits proves nothing about a statement, so its trend is unknown.
    """
    working = state in MAY_WORK
    samples = samples if working or rests_since is None else [each for each in samples if each.at >= rests_since]
    series = sample_series(samples, now, interval_s)
    if series is None:
        return LagTrend(Trend.UNKNOWN, reason="too few consecutive samples")
    # A statement that does not run cannot be starved: it waits to be started, not for input.
    needed = parents if working else ()
    if gone := [parent.table for parent in needed if parent.missing]:
        return LagTrend(Trend.STARVED, reason=f"{', '.join(gone)} was dropped or replaced")
    since = started_at if working else None
    movement = _movement(series, _commits(series, since), trigger_s, previous, working=working, by_files=by_files)
    bound_s = keeps_up_s(trigger_s)
    has_work = behind_s is not None and behind_s > bound_s and series.lag[-1] > 0
    starving = _starving(needed, series)
    if starving and not has_work and not _works_off(movement, trigger_s, previous):
        return _UNANSWERED if state == State.UNKNOWN else LagTrend(Trend.STARVED, reason=starving)
    # The watermark does not advance while one of several inputs is silent.
    watermark_age_s = None if starving else watermark_age_s
    if working and (why := _stalling(series, trigger_s, commit_age_s, watermark_age_s, state)):
        return _UNANSWERED if state == State.UNKNOWN else LagTrend(Trend.STALLED, reason=why)
    quiet_s = _quiet_s(series, parents)
    if series.lag[-1] == 0 and quiet_s > max(20.0, 2.5 * series.usual_gap_s):
        return LagTrend(Trend.IDLE, reason=f"nothing pending, no input for {quiet_s:.0f} s")
    keeps_up = working and behind_s is not None and behind_s <= bound_s
    unproven = _unproven(series, state, since if has_work else None, proven=proven)
    if (keeps_up or movement.trend is Trend.STEADY) and unproven:
        return LagTrend(Trend.UNKNOWN, reason=unproven)
    # Input that arrives while a statement is stopped or in its first batch does not show how fast it is processed.
    if working and not proven and series.lag[-1] > 0 and not _has_processed(series, commit_age_s):
        return LagTrend(Trend.UNKNOWN, reason=_UNCOMMITTED)
    if keeps_up:
        return LagTrend(Trend.STEADY, reason=f"no input has waited for more than {bound_s:.0f} s")
    return movement


def _quiet_s(series: SampleSeries, parents: Sequence[UpstreamHealth]) -> float:
    silent = [parent.silent_s for parent in parents if parent.silent_s is not None]
    return min(silent) if silent else series.at[-1] - series.arrived_at


def _unproven(series: SampleSeries, state: str, backlog_since: float | None, *, proven: bool) -> str:
    if state == State.UNKNOWN:
        return _UNANSWERED.reason
    if state in MAY_WORK:
        if not proven and series.lag[-1] > 0:
            return _UNCOMMITTED
        is_recent = backlog_since is not None and series.at[0] <= backlog_since + _LOOK_BACK_S
        return _TOO_EARLY if is_recent and len(_commits(series, backlog_since)) < _LEAST_COMMITS else ""
    moved = max((n for n in range(1, len(series.at)) if series.processed[n] > series.processed[n - 1]), default=0)
    return "" if len(series.at) - moved >= LEAST_SAMPLES else "too few samples since its last commit"


def _commits(series: SampleSeries, since: float | None) -> Sequence[int]:
    """Return the indices of the samples in which input was processed, only those after `since` unless it is None."""
    rises = (n for n in range(1, len(series.at)) if series.processed[n] > series.processed[n - 1])
    return [n for n in rises if since is None or series.at[n] > since]


def _has_processed(series: SampleSeries, commit_age_s: float | None) -> bool:
    """True if input was processed since the last commit or start, or in any sample if neither is known."""
    since = 0.0 if commit_age_s is None else series.at[-1] - commit_age_s
    rises = (n for n in range(1, len(series.at)) if series.processed[n] > series.processed[n - 1])
    return any(series.at[n - 1] >= since for n in rises)


def keeps_up_s(trigger_s: float) -> float:
    """Return how many seconds input may wait before its statement no longer counts as keeping up."""
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
    """True if a shrinking backlog counts as draining although no input arrives.

    It counts if the trend was draining before, or if the backlog will take several more batches.
    """
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
    # Input must have been pending all that time: an old commit of an idle statement proves nothing.
    since = max((n for n in range(len(series.at)) if series.lag[n] == 0), default=-1) + 1
    pending_s = series.at[-1] - series.at[since] if since < len(series.at) else 0.0
    # A batch may take longer than the trigger, and a first batch much longer. While the pool does not answer, nothing
    # suggests that a batch is running.
    bound_s = max(30.0, 3 * trigger_s, 3 * max(series.batches_s), PATIENT_S if state == State.STARTING else 0.0)
    if min(age_s, pending_s) > (max(20.0, trigger_s + 10.0) if state == State.UNKNOWN else bound_s):
        return f"input is pending, no commit for {age_s:.0f} s"
    if watermark_age_s is None:
        return ""
    # The time counts from the first rows read since the watermark advanced, because it cannot advance without input.
    read_at = [
        series.at[n]
        for n in range(1, len(series.at))
        if series.processed[n] > series.processed[n - 1] and series.at[n] > series.at[-1] - watermark_age_s
    ]
    bound_s = max(60.0, 6 * trigger_s)
    if read_at and series.at[-1] - read_at[0] > bound_s and series.at[-1] - read_at[-1] < bound_s:
        return f"rows are being read, but the watermark has not advanced for {watermark_age_s:.0f} s"
    return ""


def _movement(
    series: SampleSeries, commits: Sequence[int], trigger_s: float, previous: str, *, working: bool, by_files: bool
) -> LagTrend:
    """Return growing, draining or steady, from the last monotone stretch of the lag right after commits."""
    if series.has_counters or not working:
        points = _after_commits(series, commits, trigger_s, working=working)
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
    # A single burst is not a trend: a rise that is mostly one step is judged again after the next, unless that takes
    # too long.
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
        # The last batch is half full on average, but still takes a whole trigger.
        eta_s = max(0.0, left_s + trigger_s / 2 - (series.at[-1] - leg[-1][0]))
        return LagTrend(Trend.DRAINING, rate, round(eta_s, 1), reason=f"lag is falling by {-slope:.3g}/s")
    return LagTrend(Trend.STEADY, reason="no change in lag beyond noise")


def _seconds_left(series: SampleSeries, recent: Sequence[tuple[float, float]], *, by_files: bool) -> float:
    """Return the seconds until the pending input is processed, computed from files if files limit the batches."""
    files = dict(zip(series.at, series.files, strict=False)) if len(series.files) == len(series.at) else {}
    of_files = [(at, files[at]) for at, _ in recent if at in files]
    if by_files and (slope := _slope(of_files)) < 0:
        return of_files[-1][1] / -slope
    return recent[-1][1] / -_slope(recent)


def _expected(series: SampleSeries, trigger_s: float, *, working: bool) -> tuple[float, float]:
    """Return the noise, and the largest lag right after a commit at which the statement still keeps up."""
    blur_s = max(series.interval_s, series.usual_gap_s)
    arrival_rate = series.arrival_rate()
    noise = max(1.0, arrival_rate * blur_s)
    if not working:
        return noise, noise
    # The newest batch counts for at most three triggers: a longer batch may be the first of an overload.
    batch_s = max(median(series.batches_s), min(series.batches_s[-1], 3 * trigger_s))
    return noise, max(1.0, arrival_rate * (batch_s + blur_s) * 1.4)


def _after_commits(
    series: SampleSeries, commits: Sequence[int], trigger_s: float, *, working: bool
) -> list[tuple[float, float]]:
    first = next(n for n in range(len(series.at)) if series.at[n] >= series.at[-1] - _LOOK_BACK_S)
    every = range(max(1, first), len(series.at))
    commits = [n for n in commits if n >= first]
    points = [(series.at[n], series.lag[n]) for n in commits]
    if not working:
        start = commits[-1] if commits else first
        return [(series.at[n], series.lag[n]) for n in range(start, len(series.at))]
    gaps = [series.at[b] - series.at[a] for a, b in pairwise(commits)]
    usual_s = max(trigger_s, median(gaps) if gaps else 0.0)
    empty = max((n for n in every if series.lag[n] == 0), default=0)
    if commits and series.at[-1] - series.at[max(commits[-1], empty)] > 1.5 * usual_s + series.interval_s:
        # The batch takes longer than usual: add the lag that it would leave if it were of typical size.
        usual = median(series.processed[n] - series.processed[n - 1] for n in commits)
        points.append((series.at[-1], max(0.0, series.lag[-1] - usual)))
    return points


def _lowest(series: SampleSeries, trigger_s: float) -> tuple[list[tuple[float, float]], float]:
    """Return the lowest lag in each stretch of samples long enough to contain a commit, and the noise.

    Used for samples without counters.
    """
    width = trigger_s + 2 * series.interval_s
    stretches: dict[int, list[tuple[float, float]]] = {}
    for at, lag in zip(series.at, series.lag, strict=True):
        if (age := series.at[-1] - at) < _LOOK_BACK_S:
            stretches.setdefault(-int(age // width), []).append((lag, at))
    whole = [stretch for _, stretch in sorted(stretches.items()) if len(stretch) > 1]
    swing = median(max(stretch)[0] - min(stretch)[0] for stretch in whole) if whole else 0.0
    return [(at, lag) for lag, at in (min(stretch) for stretch in whole)], max(1.0, swing, series.batch_rows_s * width)


def _last_leg(points: Sequence[tuple[float, float]], noise: float) -> Sequence[tuple[float, float]]:
    """Return the points since the last turn, which is the last extreme followed by a change that exceeds the noise."""
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
    """Return the Theil-Sen slope: the median slope of all pairs of points, which ignores single odd batches."""
    slopes = [
        (lag - before) / (at - since)
        for n, (since, before) in enumerate(points)
        for at, lag in points[n + 1 :]
        if at > since
    ]
    return median(slopes) if slopes else 0.0
