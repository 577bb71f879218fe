"""The result of a benchmark as a document: what was measured, on which machine, and the figures of each repetition.

Documents of other schema versions are refused, because a comparison of figures with other meanings would be wrong.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from typing import Any

from core.bench.quantiles import Distribution
from core.model.errors import UsageError

FORMAT = "headgate/bench"
SCHEMA = 1


class FigureKind(StrEnum):
    """What a figure measures. Times are in seconds, rates in rows per second over all sources."""

    LATENCY = "latency"
    """From when rows were visible in their source until the rows due to them were visible in the table."""
    EVENT_LATENCY = "event latency"
    """From the median event time of the rows until then."""
    WAIT = "wait"
    """The part of the last stage before the batch: the trigger, and earlier batches."""
    BATCH = "batch"
    """The part of the last stage in the batch that read the rows."""
    WATERMARK = "watermark"
    """The part of the last stage after that batch, until the watermark had passed the rows and they were written."""
    WAITS = "waits"
    """The parts of all stages before their batches."""
    BATCHES = "batches"
    WATERMARKS = "watermarks"
    WORK = "work"
    """Time in batches for the same rows."""
    STARTUP = "startup"
    """From a start, or from a kill, until rows were visible."""
    RATE = "rate"
    """The highest rate that was sustained."""
    FAILED_RATE = "failed rate"
    """The lowest rate that was not sustained."""
    SERVER_CPU = "server cpu"
    """CPU seconds of the Spark server and its children per second; at the highest sustained rate, if that is searched.
    """
    SERVER_MEMORY = "server memory"
    """Their largest resident memory, in bytes."""
    AGENT_CPU = "agent cpu"
    AGENT_MEMORY = "agent memory"


class Better(StrEnum):
    """Which of two values of a figure is the better one."""

    LOWER = "lower"
    HIGHER = "higher"


def better_of(kind: FigureKind) -> Better:
    """Return which values of a kind are better."""
    return Better.HIGHER if kind in (FigureKind.RATE, FigureKind.FAILED_RATE) else Better.LOWER


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of one repetition."""

    kind: FigureKind
    phase: str
    """Under which load it was measured, such as `idle`; empty if the kind implies it."""
    table: str
    """The table, or empty for the whole chain."""
    repetition: int
    """Counted from 1."""
    value: float
    """The median, if there is a distribution."""
    spread: Distribution | None = None
    source: str = ""
    """The external table whose rows were followed; empty if the figure is about no single source."""
    missing: int = 0
    """Number of inputs for which there is no value, which are not in `spread`."""
    missing_why: str = ""
    """The most frequent reason, as a value of `core.bench.batch_trace.Ended`."""


@dataclass(frozen=True, slots=True)
class TrialRecord:
    """A rate that was tried, and what was found about each statement."""

    repetition: int
    rate: float
    sustained: bool
    written_rows: int
    window_s: float
    statements: tuple[Mapping[str, Any], ...]
    """`core.bench.keeping_up.KeepingUp` of each statement as an object."""
    phase: str = ""
    """The phase of the figures to which the trial belongs."""
    used: tuple[Figure, ...] = ()
    """CPU and memory of agent and server while load was written."""


@dataclass(frozen=True, slots=True)
class BenchResult:
    """A benchmark and its figures."""

    kind: str
    """A value of `core.bench.request.BenchKind`."""
    project: str
    environment: str
    """The environment whose settings were used."""
    started_at: float
    """In epoch seconds."""
    took_s: float
    revision: str
    """Commit of the project; empty if it is not in git."""
    dirty: bool
    machine: Mapping[str, Any]
    """Facts about the machine: cores, memory, Java, Spark, disk, load."""
    parameters: Mapping[str, Any]
    """How it was measured: tables, rate, probes, window, pool."""
    figures: tuple[Figure, ...]
    trials: tuple[TrialRecord, ...] = ()
    stages: tuple[tuple[str, str], ...] = ()
    """The tables in topological order, each with the source through which its rows arrived last most often."""
    notes: tuple[str, ...] = ()
    """What a reader has to know about the figures."""

    def as_json(self) -> dict[str, Any]:
        """Return the document."""
        return {"format": FORMAT, "schema": SCHEMA, **asdict(self)}

    @property
    def repetitions(self) -> int:
        """Number of repetitions that have a figure."""
        return max((each.repetition for each in self.figures), default=0)


def result_from_json(body: object) -> BenchResult:
    """Read a document. Raises UsageError if it is no result of a benchmark, or of another schema version."""
    if not isinstance(body, Mapping) or body.get("format") != FORMAT:
        raise UsageError("it is not the result of a benchmark", remedy="headgate bench latency --out FILE writes one")
    if body.get("schema") != SCHEMA:
        raise UsageError(
            f"it has version {body.get('schema')} of the schema, and this Headgate reads version {SCHEMA}",
            remedy="run the benchmark again",
        )
    try:
        known = {name: body[name] for name in (each.name for each in fields(BenchResult))}
        return BenchResult(
            **{
                **known,
                "figures": tuple(map(figure_from_json, known["figures"])),
                "trials": tuple(map(trial_from_json, known["trials"])),
                "stages": tuple((table, source) for table, source in known["stages"]),
                "notes": tuple(known["notes"]),
            }
        )
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(f"the result is damaged: {error}", remedy="run the benchmark again") from error


def trial_from_json(body: Mapping[str, Any]) -> TrialRecord:
    """Rebuild a trial from the object that `asdict` makes of it."""
    used = tuple(map(figure_from_json, body.get("used", ())))
    return TrialRecord(**{**body, "statements": tuple(body["statements"]), "used": used})


def figure_from_json(body: Mapping[str, Any]) -> Figure:
    """Rebuild a figure from the object that `asdict` makes of it."""
    spread = body["spread"]
    return Figure(
        **{**body, "kind": FigureKind(body["kind"]), "spread": Distribution(**spread) if spread is not None else None}
    )


FigureName = tuple[FigureKind, str, str, str]
"""Kind, phase, table and source of a figure."""


def by_name(figures: Iterable[Figure]) -> dict[FigureName, list[Figure]]:
    """Return figures by kind, phase, table and source, in the order in which each name occurs first."""
    found: dict[FigureName, list[Figure]] = {}
    for each in figures:
        found.setdefault((each.kind, each.phase, each.table, each.source), []).append(each)
    return found


def spread_of(values: Sequence[float]) -> float:
    """Return the relative spread of repeated values: the range divided by the mean; 0 for fewer than two values."""
    mean = sum(values) / len(values) if values else 0.0
    return (max(values) - min(values)) / mean if len(values) > 1 and mean else 0.0
