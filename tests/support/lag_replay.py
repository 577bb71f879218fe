"""Replays recordings of `lag_recorder` through the assessment of lag, one result per measurement."""

import gzip
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from microbatch_model import Point

from core.lag.faults import FaultWatch, fault_sign, objective_s
from core.lag.lag_samples import Lag
from core.lag.trend import LagTrend, UpstreamHealth, lag_trend
from core.lineage.table_graph import depths
from core.model.names import TableName, trigger_s
from core.model.states import Fault, Trend

EVERY_S = 5.0
APART_S = 2.0
"""Minimum seconds between the last measurement of a round and the first of the next."""

KEPT = 180
"""Number of samples that the agent keeps per statement."""


@dataclass(frozen=True, slots=True)
class Said:
    """The assessment of a statement's lag after one measurement."""

    at: float
    table: TableName
    state: str
    rows: int | None
    behind_s: float | None
    judged: LagTrend
    fault: Fault
    why: str
    inputs: tuple[str, ...]


@dataclass(slots=True)
class _Replayed:
    samples: deque[Point] = field(default_factory=lambda: deque(maxlen=KEPT))
    previous: str = Trend.UNKNOWN
    watch: FaultWatch = field(default_factory=FaultWatch)
    watermark: str = ""
    watermark_at: float | None = None
    state: str = ""
    state_since: float = 0.0


def replay(path: Path, objectives: Mapping[str, str]) -> tuple[dict[str, float], list[Said]]:
    """Return when each phase began, and the assessments in order of measurement, given the declared objectives."""
    phases: dict[str, float] = {}
    measured: list[list[str]] = []
    for line in gzip.decompress(path.read_bytes()).decode().splitlines():
        if line.startswith("#"):
            _, at, phase = line.split()
            phases[phase] = float(at)
        else:
            measured.append(line.split("\t"))
    known: dict[str, _Replayed] = defaultdict(_Replayed)
    said = [_judge(fields, known, objectives.get(fields[1], "")) for fields in _parents_first(measured)]
    return phases, said


def _parents_first(measured: list[list[str]]) -> list[list[str]]:
    """Sort the records of each round as the agent measures, parents first; a gap in time separates rounds."""
    by_table = depths(
        (TableName(fields[1]), [TableName(source.partition(":")[0]) for source in fields[15:]]) for fields in measured
    )
    number, numbered = 0, []
    for before, fields in pairwise([measured[0], *measured]):
        number += float(fields[0]) - float(before[0]) > APART_S
        numbered.append((number, by_table[TableName(fields[1])], fields))
    return [fields for *_, fields in sorted(numbered, key=lambda each: each[:2])]


def _judge(fields: list[str], known: dict[str, _Replayed], objective: str) -> Said:
    """Assess one record as the agent does, using each parent's trend from its own newest measurement."""
    at, table, state, wanted, trigger = float(fields[0]), TableName(fields[1]), fields[2], fields[3], fields[4]
    rows, files, oldest, batch_ms, produced, consumed, started, committed = map(_number, fields[5:13])
    of = known[table]
    if fields[13] and fields[13] != of.watermark:
        of.watermark, of.watermark_at = fields[13], at
    if state != of.state:
        of.state, of.state_since = state, at
    of.samples.append(Point(at, _whole(rows), _whole(files), _whole(batch_ms), _whole(produced), _whole(consumed)))
    parents = tuple(_parent(source, known) for source in fields[15:])
    missing = tuple(parent.table for parent in parents if parent.missing)
    newest = [parent.silent_s for parent in parents if parent.silent_s is not None]
    lag = Lag(_whole(rows), int(files or 0), 0, True, oldest, missing, max(newest, default=None))
    judged = lag_trend(
        tuple(of.samples), at, interval_s=EVERY_S, state=state, parents=parents, trigger_s=trigger_s(trigger),
        previous=of.previous, commit_age_s=at - max(committed, started or 0.0) if committed is not None else None,
        watermark_age_s=at - of.watermark_at if of.watermark_at is not None else None, by_files=fields[14] == "1",
        behind_s=lag.behind_s, proven=committed is not None and committed >= (started or 0.0),
        rests_since=of.state_since, started_at=started,
    )  # fmt: skip
    of.previous = judged.trend
    if judged.trend is Trend.STARVED and of.watermark_at is not None:
        of.watermark_at = at
    sign = fault_sign(lag, judged, state=state, wanted=wanted, objective_s=objective_s(objective, trigger))
    of.watch = of.watch.updated(sign, at)
    inputs = tuple(sorted(source.partition(":")[0] for source in fields[15:]))
    fault = of.watch.said.fault
    return Said(at, table, state, _whole(rows), lag.behind_s, judged, fault, of.watch.said.why, (*inputs, trigger))


def _parent(source: str, known: Mapping[str, _Replayed]) -> UpstreamHealth:
    table, newest, missing, external, state = source.split(":")
    trend = known[table].previous if table in known else ""
    return UpstreamHealth(
        TableName(table), state, missing == "1", external == "1", _number(newest), "" if external == "1" else trend
    )


def same_lag(said: list[Said]) -> Iterator[list[Said]]:
    """Yield groups of assessments from the same round whose statements read the same inputs and are equally late."""
    groups: dict[tuple[object, ...], list[Said]] = defaultdict(list)
    for one in said:
        # A round takes less than a second, so one point in time identifies it, and two rounds never share a group.
        groups[round(one.at / 2), one.inputs, one.rows, one.behind_s].append(one)
    return (group for group in groups.values() if len(group) > 1)


def _number(text: str) -> float | None:
    return float(text) if text else None


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)
