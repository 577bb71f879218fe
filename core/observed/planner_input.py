"""What the planner knows about an environment: the state of each table, measurements, policy and step durations."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from core.model.names import TableName
from core.model.reasons import LOST_CHECKPOINT
from core.observed.cluster_manager import ManagerWord
from core.observed.table_statistics import Headroom, TableStatistics
from core.observed.versions import Binding
from core.policy.roles_and_rules import Policy
from core.project.model import Pool
from core.project.revision import RevisionTexts
from core.text.sentence import Fact, Sentence

OWN_LEAST = 2
"""Minimum number of measured steps per kind and table; with fewer, the steps of all tables are used."""

ROOM, ROOM_S = 1.5, 1.0
"""Factor and seconds by which a predicted range exceeds the measurements, since other work may run concurrently."""


@dataclass(frozen=True, slots=True)
class Seconds:
    """A range of durations, in seconds."""

    low: float
    high: float

    def __add__(self, other: "Seconds") -> "Seconds":
        return Seconds(self.low + other.low, self.high + other.high)

    def less(self, elapsed_s: float) -> "Seconds":
        """Return the range of the time that remains after `elapsed_s` seconds, with bounds of at least 0."""
        return Seconds(max(0.0, self.low - elapsed_s), max(0.0, self.high - elapsed_s))


@dataclass(frozen=True, slots=True)
class MeasuredStep:
    """The measured duration of a step that succeeded on its first attempt."""

    do: str
    table: str
    took_s: float


StepDurations = Mapping[str, Seconds]
"""Duration ranges by step kind (`start`), and by kind and table (`start orders`) if enough steps were measured."""


def step_durations(measured: Iterable[MeasuredStep]) -> StepDurations:
    """Return the typical duration range of each step kind, and of each kind and table with enough measurements."""
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
    """A version that does not serve: it served before, or is the orphan of a run that never moved the pointer to it."""

    version: int
    revision: str = ""
    bindings: tuple[Binding, ...] = ()
    running: bool = False
    """Whether the query of the version still runs."""
    checkpoint_ok: bool = True
    begun: bool = True
    """Whether the query was ever started; if not, the version holds no rows."""
    begins_where: tuple[str, ...] = ()
    """Start conditions of the version's streams.

    For an orphan, also its start position and a description of the older rows that its SQL does not produce.
    """
    texts: RevisionTexts = field(default_factory=RevisionTexts)
    trigger: str = ""
    drop_after: float | None = None
    """When the files of the version will be deleted, in epoch seconds; None if they are not in the trash."""
    outlived: tuple[int, ...] = ()
    """For a version in the trash, the versions that served after it and whose files are already deleted."""
    pool: str = ""
    """Name of the pool in which the version was last started; empty if it is unknown."""


@dataclass(frozen=True, slots=True)
class OpenTicket:
    """A reader outside Headgate that may still read a replaced version, until an operator confirms that it does not."""

    reader: str
    version: int
    """The version that was replaced."""
    run: str
    """The run that replaced the version."""


@dataclass(frozen=True, slots=True)
class ObservedDeployment:
    """The observed deployment of a table; for offline planning, everything but `state` may be unknown."""

    state: str = "absent"
    revision: str = "same"
    """`same`, `changed`, or the hash of the deployed revision; empty means `same`."""
    deployed: RevisionTexts | None = None
    since: str = ""
    version: int = 0
    """The active version, 0 if none is deployed; offline, 1 is assumed unless the state is absent."""
    highest_version: int = 0
    """The highest version number ever used; a rebuild uses the next one."""
    bindings: tuple[Binding, ...] = ()
    checkpoint_id: str = ""
    checkpoint_ok: bool = True
    """False if the statement cannot continue: its checkpoint, its table or an input is missing or was replaced."""
    lost: str = ""
    """Why the statement cannot continue, as a sentence; empty if it can, or if no cause was recorded."""
    lost_kind: str = ""
    """The `TableFaultKind` of the table that prevents the statement from continuing; empty for any other cause."""
    pointer: str = ""
    """The physical table behind the pointer, such as `orders__v3`; empty if there is no pointer."""
    table_id: str = ""
    wanted: str = "running"
    serial: int = 0
    """Number of operator actions and runs that have changed the SQL, version or desired state of the table."""
    retained: tuple[int, ...] = ()
    """Other versions, including failed ones, that are kept running because something reads them or waits for them."""
    kept: tuple[int, ...] = ()
    """All other existing versions, running or not; a delete also moves them to the trash."""
    orphan_versions: tuple[OtherVersion, ...] = ()
    """Orphans of runs that never moved the pointer, newest first."""
    served_by: str = ""
    """The run that moved the pointer to the version in `version`; empty if unknown."""
    former: OtherVersion | None = None
    """The version that served before; None if there was none or its files are gone."""
    runs_on: tuple[OtherVersion, ...] = ()
    """Versions older than `former` that still run, in their grace period or because they have readers; newest first."""
    in_trash: OtherVersion | None = None
    """For a deleted table, the version that served last, as long as its files are kept."""
    tickets: tuple[OpenTicket, ...] = ()
    """Open tickets on replaced versions, by reader."""
    begun: bool = True
    """Whether the version in `version` serves or its query was ever started."""
    begins_where: tuple[str, ...] = ()
    """Start conditions of the serving version, unchanged by restarts; empty if the version reads everything."""
    pool: Pool | None = None
    """The pool of the serving version (`core.changes.pinned_settings.recorded_pool`); None if unknown.

    Its settings include those pinned at the first start.
    """
    engine: str = ""
    """Spark version at the last start; empty if unknown."""
    begins_after: str = ""
    """Position after which the version in `version` starts, such as `batch 12 of orders@v1`; empty if there is none."""
    clones: tuple[tuple[int, int], ...] = ()
    """Pairs (clone, origin) of existing versions; the files of the origin must be kept because the clone references
    them.
    """
    rows_before: bool = False
    """Whether the pointer also serves a separate table of earlier rows."""
    statistics: TableStatistics | None = None
    """Measurements of the table, used only to estimate costs; None if there are none."""
    replaced_ddl: tuple[tuple[int, str], ...] = ()
    """Pairs (version, DDL) of the existing versions that served before, oldest first."""
    overlays: tuple[tuple[str, int], ...] = ()
    """Overlays that read versions of the table, as (environment, version), sorted."""
    trigger: str = ""
    """Interval of the trigger of the serving version, as Spark writes it; empty if unknown."""

    @property
    def why_lost(self) -> Sentence | None:
        """Why the statement cannot continue, as recorded by the agent; None if it can continue."""
        return None if self.checkpoint_ok else Sentence(self.lost or LOST_CHECKPOINT)


@dataclass(frozen=True, slots=True)
class SourceTable:
    """The serving version of a table in the environment from which a plan promotes revisions."""

    revision: str
    """Hash of the deployed SQL and YAML as written, with variables instead of their values."""
    version: int = 0
    """The serving version; 0 for an external table."""
    state: str = "running"
    """A value of `State`; UNKNOWN if no agent observes the environment. An external table counts as running."""
    fault: str = ""
    """A value of `Fault`."""
    compared: bool = True
    """False if the version replaced another one without a comparison of their rows."""
    reads: tuple[tuple[TableName, str], ...] = ()
    """The inputs of the version, each with such a hash of the version that it reads."""
    earlier: frozenset[str] = frozenset()
    """Such hashes of other versions of the table."""
    plan: str = ""
    """Hash of the plan that deployed the revision; empty if unknown."""


@dataclass(frozen=True, slots=True)
class ObservedPool:
    """What is known of one pool of an environment with several."""

    cordoned: bool = False
    """Whether the pool takes no new statements."""
    engine: str = ""
    """Spark version of its server; empty if unknown."""
    unfit: str = ""
    """The state in which it cannot run more statements: silent, down, failed or degraded; empty if it can."""
    manager_says: Fact[ManagerWord] | None = None
    """What the manager of its cluster says about its server, which does not answer; None if it was not asked."""


@dataclass(frozen=True, slots=True)
class PlannerInput:
    """A snapshot of everything that the planner knows about an environment; missing values are unknown."""

    observed: Mapping[TableName, ObservedDeployment] = field(default_factory=dict)
    """The observed deployment of each table; a table without an entry is absent."""
    answers: Mapping[str, str] = field(default_factory=dict)
    """Answers to the questions of earlier plans, by key: Spark's analyses, upgrade tests, and topics that were seen."""
    headroom: Headroom | None = None
    policy: Policy | None = None
    """The recorded policy; None means that the declared policy applies."""
    durations: StepDurations = field(default_factory=dict)
    source: Mapping[TableName, SourceTable] = field(default_factory=dict)
    """For a promotion, the serving tables of the environment from which it promotes; otherwise empty."""
    pools: Mapping[str, ObservedPool] = field(default_factory=dict)
    """The pools of an environment with several, by name; those of which nothing is known may be absent."""
