"""The plan as a value: what happens to which statement, why, in which order, and what it was computed from."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from core.changes.kinds import ChangeKind
from core.model.actions import EXECUTABLE, Action, StepKind
from core.model.evidence import Evidence
from core.model.names import TableName
from core.model.reasons import Reason
from core.observed.versions import Binding
from core.plan.request import PlanRequest
from core.project.revision import RevisionTexts
from core.text.sentence import Fact, FactKind, Sentence

PLAN_FORMAT = "headgate.plan/1"
PLANNER_VERSION = "11"
"""Version of the planner; an agent refuses plans of another one."""

UNDO_D = 90.0
"""Days after its run for which the ledger keeps a plan, and with it the texts from before."""


_NOTHING_FOR_SPARK = frozenset(
    {
        Action.KEEP, Action.DELETE, Action.ROLLBACK, Action.UNDELETE, Action.RETIRE, Action.OPTIMIZE, Action.VACUUM,
    }
)  # fmt: skip
"""Actions without a new or changed text."""


class RetentionKind(StrEnum):
    """Whether the rows to read again still exist."""

    OK = "ok"
    SHORT = "short"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Retention:
    """Whether the rows that a statement reads again still exist, with details of the missing ones."""

    kind: RetentionKind
    files_gone: int = 0
    """Number of files that it has read and that no longer exist."""
    earliest: str = ""
    """Time of the earliest remaining row; empty if unknown."""


@dataclass(frozen=True, slots=True)
class StrategyOffer:
    """An allowed strategy of a node with its cost; None stands for unknown values."""

    strategy: str
    replay_rows: int | None = None
    eta_s: float | None = None
    replay_bytes: int | None = None
    disk_bytes: int | None = None
    """Additional bytes on disk."""
    loses: tuple[str, ...] = ()
    note: Sentence | None = None
    """What to know before choosing it."""

    @property
    def executable(self) -> bool:
        """Return whether an agent can execute the strategy; other ones only have a cost, and agents refuse them."""
        return self.strategy in EXECUTABLE


@dataclass(frozen=True, slots=True)
class PlanNode:
    """What a plan does to one table."""

    table: TableName
    product: str
    layer: str
    stateful: bool
    action: Action
    change: ChangeKind | None
    """The kind of change; None if nothing was compared, as in a delete."""
    evidence: tuple[Evidence, ...]
    classified: bool
    strategy: str
    """A value of `Strategy`; empty if nothing is started."""
    reason: Reason
    """For people; execution never branches on it."""
    because_of: tuple[TableName, ...]
    level: int
    """Topological generation within the plan, from 0."""
    loses: tuple[str, ...]
    replay_rows: int | None = None
    eta_s: float | None = None
    """Minimum seconds until the replay is read; the range below covers the whole run."""
    predicted_low_s: float | None = None
    """Seconds from the start of the run to the end of its last step; None without measurements."""
    predicted_high_s: float | None = None
    retention: Retention | None = None
    undo: str = ""
    """`plan`, `stop`, `back` or `none` for the column UNDO; empty if there is nothing to undo. See `Plan.undo`."""
    from_version: int = 0
    version: int = 0
    """The version after the plan; equal to `from_version` unless it is started or rebuilt."""
    bindings: tuple[Binding, ...] = ()
    """Bindings of the version after the plan."""
    revision: str = ""
    """Hash of the declared texts."""
    texts: RevisionTexts = field(default_factory=RevisionTexts)
    """Declared texts; the old ones for a delete."""
    old: RevisionTexts = field(default_factory=RevisionTexts)
    trigger: str = ""
    owner: str = ""
    offers: tuple[StrategyOffer, ...] = ()
    """The allowed strategies, the chosen one first."""
    at: str = ""
    """The start position of its strategy: `now`, a time, a version or a partition; empty without one."""
    begins_where: tuple[str, ...] = ()
    """Conditions on its streams, as `orders.ts >= TIMESTAMP '…'`; empty if it reads all rows."""
    lowered: bool = False
    """Whether the operator chose a strategy that is less severe than the default."""
    replay_bytes: int | None = None
    confirmed_by_spark: bool | None = None
    """False if Spark's analysis differs from Headgate's; None if it was not asked or gave no answer."""

    @property
    def row(self) -> str:
        """Return the code of its kind of change, as in documents and hashes; empty without a change."""
        return self.change.definition.code if self.change is not None else ""

    @property
    def for_spark(self) -> bool:
        """Return whether Spark can analyse it: its SQL is new or changed."""
        if self.action in _NOTHING_FOR_SPARK:
            return False
        begins = self.action is Action.START or (self.old.dml, self.old.ddl) != (self.texts.dml, self.texts.ddl)
        return begins and bool(self.texts.dml.strip())


@dataclass(frozen=True, slots=True)
class Step:
    """One action in a plan."""

    n: int
    """From 1, in the order of execution."""
    do: StepKind
    table: TableName
    version: int
    after: tuple[int, ...]
    """Steps that must succeed first."""
    why: Sentence
    tables: tuple[TableName, ...] = ()
    """For a swap or hold: all pointers of the release, sinks first; else empty."""
    predicted_low_s: float | None = None
    """Seconds that the step itself takes; None without measurements."""
    predicted_high_s: float | None = None


@dataclass(frozen=True, slots=True)
class Undo:
    """The command that undoes a plan for some of its tables, with its cost; or why there is none."""

    act: str
    """The command behind `headgate`, as `plan undo` or `stop`; empty if there is none."""
    tables: tuple[TableName, ...]
    """The tables that it acts on, including readers."""
    words: Sentence
    """What the command does, or why there is none."""
    replay_rows: int | None = 0
    """Rows that are read again; None if unknown."""
    eta_s: float | None = None
    until: Sentence | None = None
    """Until when it is possible, as `at any time`; None without a command."""
    predicted_low_s: float | None = None
    """Seconds that it takes as a whole; None if unknown."""
    predicted_high_s: float | None = None

    @classmethod
    def of(cls, act: str, tables: tuple[TableName, ...], words: str, *, until: str = "") -> "Undo":
        """Make an undo that reads no row again."""
        return cls(act, tables, Sentence(words), until=Sentence(until) if until else None)


@dataclass(frozen=True, slots=True)
class LeftBehind:
    """A reader outside of the plan's scope that stays on an old version."""

    table: TableName
    product: str
    reads: str
    """The physical table that it stays on, as `orders__v1`."""
    owner: str = ""
    through: str = ""
    """The table that it reads, which moves on or is left behind itself."""
    depth: int = 1
    """1 for a reader of a table that moves on, 2 for a reader of that one, and so on."""


@dataclass(frozen=True, slots=True)
class Exposure:
    """A declared reader outside of Headgate, with what changes for it."""

    reader: str
    table: TableName
    before: str
    """The physical table that it reads now."""
    after: str
    """The physical table that the pointer will serve; empty if the table is deleted."""
    owner: str = ""


@dataclass(frozen=True, slots=True)
class Guard:
    """One check of a plan; `verdict` is ok, unknown, warn, approve or deny."""

    name: str
    verdict: str
    summary: Sentence
    remedy: Sentence | None = None
    """The remedy of a denial."""
    kind: str = ""
    """The code of what was found; empty in plans of older versions, as for refusals and warnings."""
    fields: Mapping[str, object] = field(default_factory=dict, compare=False)
    """The values of that kind, as JSON."""

    @classmethod
    def of(cls, name: str, verdict: str, found: Fact[FactKind]) -> "Guard":
        """Make a guard from what was found."""
        return cls(name, verdict, found.sentence, found.remedy, kind=found.kind.code, fields=found.fields)


@dataclass(frozen=True, slots=True)
class PlanRefusal:
    """Why a request cannot be planned."""

    table: str
    summary: Sentence
    """A whole sentence, which names the table itself."""
    remedy: Sentence
    guard: str = ""
    """The guard that denies the plan; empty for any other refusal."""
    kind: str = ""
    """The code of its kind; that of the guard's finding for a denial."""
    fields: Mapping[str, object] = field(default_factory=dict, compare=False)
    """The values of its kind, as JSON."""

    @classmethod
    def of(cls, table: str, why: Fact[FactKind]) -> "PlanRefusal":
        """Make a refusal that does not come from a guard; its sentence may name the table as `{table}`."""
        said = _about(table, why)
        remedy = said.remedy
        assert remedy is not None, "a refusal has a remedy"
        return cls(table, said.sentence, remedy, kind=why.kind.code, fields=why.fields)


@dataclass(frozen=True, slots=True)
class PlanWarning:
    """Something the reviewer should know about a table."""

    table: str
    """Empty for a warning about the whole plan."""
    summary: Sentence
    """What follows behind the name of the table."""
    multiplies_rows: bool = False
    """Whether the same input may produce more rows; such warnings come first."""
    kind: str = ""
    """The code of its kind."""
    fields: Mapping[str, object] = field(default_factory=dict, compare=False)
    """The values of its kind, as JSON."""

    @classmethod
    def of(cls, table: str, said: Fact[FactKind], *, multiplies_rows: bool = False) -> "PlanWarning":
        """Make a warning; its sentence may name the table as `{table}`."""
        return cls(table, _about(table, said).sentence, multiplies_rows, said.kind.code, said.fields)


def _about(table: str, said: Fact[FactKind]) -> Fact[FactKind]:
    return Fact(said.kind, (("table", table), *said.values))


@dataclass(frozen=True, slots=True)
class Plan:
    """A proposal, computed from project texts, request, observations and policy."""

    hash: str
    """SHA-256 over everything that does not drift by itself, see `core.plan.codec.plan_hash`."""
    project_id: str
    environment: str
    protected: bool
    planner: str
    request: PlanRequest
    nodes: tuple[PlanNode, ...]
    """By the execution of their first step; kept ones by level and name."""
    order: tuple[TableName, ...]
    """Tables that are acted on, in the order of execution."""
    steps: tuple[Step, ...]
    left_behind: tuple[LeftBehind, ...] = ()
    guards: tuple[Guard, ...] = ()
    refusals: tuple[PlanRefusal, ...] = ()
    warnings: tuple[PlanWarning, ...] = ()
    readers: tuple[Exposure, ...] = ()
    approvals: int = 0
    """Number of other logins that must approve it."""
    policy: str = ""
    """Digest of the policy of its guards."""
    preconditions: Mapping[TableName, Mapping[str, str]] = field(default_factory=dict)
    """Values by table that must not have changed when it is applied, see `core.plan.preconditions`."""
    undo: tuple[Undo, ...] = ()
    """How to undo it after its execution."""
    predicted_low_s: float | None = None
    """Seconds that its run takes; None without measurements."""
    predicted_high_s: float | None = None

    @property
    def empty(self) -> bool:
        """Return whether applying it would change nothing."""
        return not self.steps

    @property
    def acknowledges(self) -> bool:
        """Return whether applying it accepts what no restart can undo: a changed watermark on existing state."""
        return any(node.action is Action.RESTART and node.change is ChangeKind.WATERMARK_DELAY for node in self.nodes)

    @property
    def destructive(self) -> bool:
        """Return whether it deletes, loses rows, or swaps away from a serving version (confirmation level C3)."""
        moves = (Action.DELETE, Action.REBUILD, Action.ROLLBACK, Action.RETIRE)
        return any(node.action in moves or node.loses for node in self.nodes)
