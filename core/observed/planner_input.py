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
"""From this many measured steps on, a table's own durations are used instead of those of all tables."""

ROOM, ROOM_S = 1.5, 1.0
"""A prediction allows for a factor of 1.5 and one second in either direction, for concurrent work."""


@dataclass(frozen=True, slots=True)
class Seconds:
    """A range of durations."""

    low: float
    high: float

    def __add__(self, other: "Seconds") -> "Seconds":
        return Seconds(self.low + other.low, self.high + other.high)

    def less(self, elapsed_s: float) -> "Seconds":
        """Return the remaining range after `elapsed_s`, never below 0."""
        return Seconds(max(0.0, self.low - elapsed_s), max(0.0, self.high - elapsed_s))


@dataclass(frozen=True, slots=True)
class MeasuredStep:
    """The duration of a step that succeeded at the first try."""

    do: str
    table: str
    took_s: float


StepDurations = Mapping[str, Seconds]
"""Keys are step kinds, `start`, or kind and table, `start orders`, if the table has enough own steps."""


def step_durations(measured: Iterable[MeasuredStep]) -> StepDurations:
    """Return the typical range per step kind, and per table with at least `OWN_LEAST` steps of that kind."""
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
    """A version beside the serving one: it served before, or is an orphan of a run that never moved the pointer."""

    version: int
    revision: str = ""
    bindings: tuple[Binding, ...] = ()
    running: bool = False
    """Whether its query still runs."""
    checkpoint_ok: bool = True
    begun: bool = True
    """Whether its query was ever started; otherwise it holds nothing."""
    begins_where: tuple[str, ...] = ()
    """Conditions on its streams; for an orphan also what it continues from, if its text does not produce all of its
    rows."""
    texts: RevisionTexts = field(default_factory=RevisionTexts)
    trigger: str = ""
    drop_after: float | None = None
    """When its files are deleted, epoch seconds; None outside of the trash."""
    outlived: tuple[int, ...] = ()
    """For a version in the trash, later serving versions whose files are already deleted."""


@dataclass(frozen=True, slots=True)
class OpenTicket:
    """An exposure that has not confirmed that it reads the serving version."""

    reader: str
    version: int
    """The version that it reads."""
    run: str
    """The run that replaced it."""


@dataclass(frozen=True, slots=True)
class ObservedDeployment:
    """The observed deployment of a table; offline, everything but `state` may be unknown."""

    state: str = "absent"
    revision: str = "same"
    """same, changed, or the hash of the deployed revision; empty means the same."""
    deployed: RevisionTexts | None = None
    since: str = ""
    version: int = 0
    """The active version; 0 when none is deployed (offline: 1 is assumed when the state is not absent)."""
    highest_version: int = 0
    """The highest version number ever used; a rebuild takes the next one."""
    bindings: tuple[Binding, ...] = ()
    checkpoint_id: str = ""
    checkpoint_ok: bool = True
    """False if it cannot continue: its checkpoint, its table or an input is missing or replaced."""
    lost: str = ""
    """The cause as a sentence; empty if there is none or it was not recorded."""
    lost_kind: str = ""
    """A `TableFaultKind` if a table is the cause."""
    pointer: str = ""
    """The target of the pointer, `orders__v3`; empty without a pointer."""
    table_id: str = ""
    wanted: str = "running"
    serial: int = 0
    """Number of acts on the table that changed its text, version or wanted state."""
    retained: tuple[int, ...] = ()
    """Other versions kept running, failed ones included, because something reads or waits for them."""
    kept: tuple[int, ...] = ()
    """All other existing versions, running or not; a delete moves them to the trash as well."""
    orphan_versions: tuple[OtherVersion, ...] = ()
    """Orphans, newest first."""
    served_by: str = ""
    """The run that moved the pointer to `version`; empty if unknown."""
    former: OtherVersion | None = None
    """The previously serving version; None if there was none or its files are gone."""
    runs_on: tuple[OtherVersion, ...] = ()
    """Versions before `former` that are still running, for a grace period or because they are read; newest first."""
    in_trash: OtherVersion | None = None
    """For a deleted table, the last serving version while its files are kept."""
    tickets: tuple[OpenTicket, ...] = ()
    """Open tickets on replaced versions, by reader."""
    begun: bool = True
    """Whether `version` serves or its query was ever started."""
    begins_where: tuple[str, ...] = ()
    """Start conditions of the serving version if it does not read everything; kept across restarts."""
    pool: Pool | None = None
    """The pool of the serving version from `core.changes.pinned_settings.recorded_pool`, with settings pinned at its
    first start; None if unknown."""
    engine: str = ""
    """Spark version of its last start; empty if unknown."""
    begins_after: str = ""
    """The position before the first row of `version`, if it has one: `batch 12 of orders@v1`."""
    clones: tuple[tuple[int, int], ...] = ()
    """Pairs of an existing clone and the version whose files it references, which must be kept."""
    rows_before: bool = False
    """Whether its pointer also serves earlier rows from a separate table."""
    statistics: TableStatistics | None = None
    """Its measurements; None if there are none. Only costs are computed from them."""

    @property
    def why_lost(self) -> Sentence | None:
        """Why it cannot continue, as recorded by the agent; None if it can."""
        return None if self.checkpoint_ok else Sentence(self.lost or LOST_CHECKPOINT)


@dataclass(frozen=True, slots=True)
class PlannerInput:
    """One environment at one moment; missing values are unknown."""

    observed: Mapping[TableName, ObservedDeployment] = field(default_factory=dict)
    """A table without an entry is absent."""
    answers: Mapping[str, str] = field(default_factory=dict)
    """Spark's answers to analysis questions of earlier plans."""
    headroom: Headroom | None = None
    policy: Policy | None = None
    """The recorded policy in force; None means the declared one."""
    durations: StepDurations = field(default_factory=dict)
