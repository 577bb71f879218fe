"""What the planner knows of an environment: the state of each table, measurements, policy and step durations."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from core.model.names import TableName
from core.model.reasons import LOST_CHECKPOINT
from core.observed.table_statistics import Headroom, TableStatistics
from core.observed.versions import Binding
from core.policy.model import Policy
from core.project.model import Pool
from core.project.revision import RevisionTexts
from core.text.sentence import Sentence

OWN_LEAST = 2
"""Steps of one kind on one table from which on only those count for it, not what other tables took."""

ROOM, ROOM_S = 1.5, 1.0
"""A step may take half as long again as those before and a second more, because of what is done beside it, or less."""


@dataclass(frozen=True, slots=True)
class Seconds:
    """A range of durations."""

    low: float
    high: float

    def __add__(self, other: "Seconds") -> "Seconds":
        return Seconds(self.low + other.low, self.high + other.high)

    def less(self, elapsed_s: float) -> "Seconds":
        """Return what is left after some of it has passed, never below 0."""
        return Seconds(max(0.0, self.low - elapsed_s), max(0.0, self.high - elapsed_s))


@dataclass(frozen=True, slots=True)
class MeasuredStep:
    """How long a step took that was done at the first try."""

    do: str
    table: str
    took_s: float


StepDurations = Mapping[str, Seconds]
"""By kind of step, `start`, and by kind and table, `start orders`, where that is known of itself."""


def step_durations(measured: Iterable[MeasuredStep]) -> StepDurations:
    """Return the range of each kind of step, and of each table that has at least OWN_LEAST of one kind."""
    found: dict[str, list[float]] = {}
    for step in measured:
        found.setdefault(step.do, []).append(step.took_s)
        found.setdefault(f"{step.do} {step.table}", []).append(step.took_s)
    return {words: _usual(took) for words, took in found.items() if " " not in words or len(took) >= OWN_LEAST}


def _usual(took: list[float]) -> Seconds:
    took = sorted(took)
    tenth = len(took) // 10
    return Seconds(max(0.0, took[tenth] / ROOM - ROOM_S), took[-1 - tenth] * ROOM + ROOM_S)


@dataclass(frozen=True, slots=True)
class OtherVersion:
    """A version of a table beside the one that serves: it served before, or its run ended before the pointer moved."""

    version: int
    revision: str = ""
    bindings: tuple[Binding, ...] = ()
    running: bool = False
    """Whether its query still runs."""
    checkpoint_ok: bool = True
    begun: bool = True
    """Whether its query was ever started: one that was not has read nothing and holds nothing."""
    begins_where: tuple[str, ...] = ()
    """Conditions of its streams; of one that never served also what it goes on from, if its text does not give all of
    its rows."""
    texts: RevisionTexts = field(default_factory=RevisionTexts)
    trigger: str = ""
    drop_after: float | None = None
    """When its files go, epoch seconds; None where it is not in the trash."""
    outlived: tuple[int, ...] = ()
    """Of one in the trash, the versions that served after it and whose files are gone."""


@dataclass(frozen=True, slots=True)
class OpenTicket:
    """A reader outside of Headgate that has not said that it reads what serves now."""

    reader: str
    version: int
    """The version that it reads."""
    run: str
    """The run that replaced it."""


@dataclass(frozen=True, slots=True)
class ObservedDeployment:
    """What is known of a table's deployment; everything but `state` may be unknown offline."""

    state: str = "absent"
    revision: str = "same"
    """same, changed, or the deployed revision's sha; empty is taken as the same."""
    deployed: RevisionTexts | None = None
    since: str = ""
    version: int = 0
    """The active version; 0 when none is deployed (offline: 1 is assumed when the state is not absent)."""
    highest_version: int = 0
    """The highest version number ever used: a rebuild takes the next one."""
    bindings: tuple[Binding, ...] = ()
    checkpoint_id: str = ""
    checkpoint_ok: bool = True
    """False when it cannot go on: the checkpoint, its table or one that it reads is missing or another's."""
    lost: str = ""
    """Which of them, and what is the matter with it, in a sentence; empty where nothing is, or nobody has said."""
    lost_kind: str = ""
    """Of `TableFaultKind`, where a table is what is the matter."""
    pointer: str = ""
    """The pointer's target, `orders__v3`; empty when there is none."""
    table_id: str = ""
    wanted: str = "running"
    serial: int = 0
    """Counts the acts on the table: what changed its text, its version or its wanted state."""
    retained: tuple[int, ...] = ()
    """Other versions that are kept running, also where they have failed: something is bound to them, or waits."""
    kept: tuple[int, ...] = ()
    """Every other version that exists, running or not: a delete sets all of them aside."""
    orphan_versions: tuple[OtherVersion, ...] = ()
    """Other versions that never served, newest first."""
    served_by: str = ""
    """The run that moved the pointer to `version`; empty where it is not known."""
    former: OtherVersion | None = None
    """What the pointer led to before; None where it was the first, or its files are gone."""
    runs_on: tuple[OtherVersion, ...] = ()
    """What served before `former` and is kept running, until its time is over or while it is read, newest first."""
    in_trash: OtherVersion | None = None
    """Of a deleted table, the version that served last, while its files are kept."""
    tickets: tuple[OpenTicket, ...] = ()
    """Open ones on versions that were replaced, by reader."""
    begun: bool = True
    """Whether the query of `version` was ever started, or it serves."""
    begins_where: tuple[str, ...] = ()
    """What the serving version reads of its streams, where that is not everything; it keeps this across restarts."""
    pool: Pool | None = None
    """What the serving version was started on, as `core.changes.pinned_settings.recorded_pool` gives it, with the
    pinned settings of its first start; None where that is not known."""
    engine: str = ""
    """Version of Spark that it was started on last; empty where it is not known."""
    begins_after: str = ""
    """What came before the first row of `version`, where that is not nothing: `batch 12 of orders@v1`."""
    clones: tuple[tuple[int, int], ...] = ()
    """Versions that exist, each with the version in whose files rows of it lie: those have to stay."""
    rows_before: bool = False
    """Whether its pointer serves rows from before the first of `version` as well, in a table of their own."""
    statistics: TableStatistics | None = None
    """What was measured of it; None where nothing was. Prices come from it, and nothing else does."""

    @property
    def why_lost(self) -> Sentence | None:
        """What the agent recorded of why it cannot go on; None where it can."""
        return None if self.checkpoint_ok else Sentence(self.lost or LOST_CHECKPOINT)


@dataclass(frozen=True, slots=True)
class PlannerInput:
    """One environment at one moment; what is left out is not known."""

    observed: Mapping[TableName, ObservedDeployment] = field(default_factory=dict)
    """A table that is not there is absent."""
    answers: Mapping[str, str] = field(default_factory=dict)
    """Spark's, to the questions of earlier plans."""
    headroom: Headroom | None = None
    policy: Policy | None = None
    """What is recorded to be in force; None is what the project declares."""
    durations: StepDurations = field(default_factory=dict)
