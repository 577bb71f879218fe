"""The plan as a value: what will happen to which statement, why, in which order, and what it was computed from."""

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
from core.text.sentence import Sentence

PLAN_FORMAT = "headgate.plan/1"
PLANNER_VERSION = "10"
"""Version of the planner; an agent refuses plans of another one."""

UNDO_D = 90.0
"""Days after its run for which the ledger keeps a plan, and with it the texts from before."""


_NOTHING_FOR_SPARK = frozenset(
    {
        Action.KEEP, Action.DELETE, Action.ROLLBACK, Action.UNDELETE, Action.RETIRE, Action.OPTIMIZE, Action.VACUUM,
    }
)  # fmt: skip
"""Actions without a text that is new or changed."""


class RetentionKind(StrEnum):
    """Whether what is read again is still there."""

    OK = "ok"
    SHORT = "short"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Retention:
    """Whether what a statement reads again is still there, and what is known of what is gone."""

    kind: RetentionKind
    files_gone: int = 0
    """Files that it has read and that no longer exist."""
    earliest: str = ""
    """Time of the earliest row that is left; empty where it is not known."""


@dataclass(frozen=True, slots=True)
class StrategyOffer:
    """A strategy that is allowed for a node, with its price; None is what is not known."""

    strategy: str
    replay_rows: int | None = None
    eta_s: float | None = None
    replay_bytes: int | None = None
    disk_bytes: int | None = None
    """What it takes besides what is there already."""
    loses: tuple[str, ...] = ()
    note: Sentence | None = None
    """What to know before it is chosen."""

    @property
    def executable(self) -> bool:
        """Return whether an agent carries it out; the others are priced, and refused when they are chosen."""
        return self.strategy in EXECUTABLE


@dataclass(frozen=True, slots=True)
class PlanNode:
    """What the plan says of one statement."""

    table: TableName
    product: str
    layer: str
    stateful: bool
    action: Action
    change: ChangeKind | None
    """What kind of change it is; None where nothing was compared, as for a delete."""
    evidence: tuple[Evidence, ...]
    classified: bool
    strategy: str
    """A word of `Strategy`; empty where nothing is started."""
    reason: Reason
    """For people; executing never branches on it."""
    because_of: tuple[TableName, ...]
    level: int
    """Topological generation inside the plan, 0 first."""
    loses: tuple[str, ...]
    replay_rows: int | None = None
    eta_s: float | None = None
    """Until it has read what it reads again, at the fastest; what a run takes besides is in the range below."""
    predicted_low_s: float | None = None
    """From the beginning of the run until its last step ends; None where nothing like it was measured."""
    predicted_high_s: float | None = None
    retention: Retention | None = None
    undo: str = ""
    """`plan`, `stop` or `none`, for the column UNDO; empty where nothing is to be undone. `Plan.undo` says all."""
    from_version: int = 0
    version: int = 0
    """The version after the plan; equal to `from_version` unless it is started or rebuilt."""
    bindings: tuple[Binding, ...] = ()
    """What the version after the plan reads."""
    revision: str = ""
    """Hash of the declared texts."""
    texts: RevisionTexts = field(default_factory=RevisionTexts)
    """Declared texts (old ones for a delete)."""
    old: RevisionTexts = field(default_factory=RevisionTexts)
    trigger: str = ""
    owner: str = ""
    offers: tuple[StrategyOffer, ...] = ()
    """Every strategy that is allowed, the chosen one first."""
    at: str = ""
    """Where its strategy begins, where it begins at a place: `now`, a time, a position, or a partition."""
    begins_where: tuple[str, ...] = ()
    """What its version reads of its streams, where that is not everything: `orders.ts >= TIMESTAMP '…'`, one for each.
    """
    lowered: bool = False
    """Whether the operator chose a strategy that is less severe than the default."""
    replay_bytes: int | None = None
    confirmed_by_spark: bool | None = None
    """False when Spark reads the statement otherwise than we do; None when it was not asked, or could not say."""

    @property
    def row(self) -> str:
        """Return the code of its kind of change, which documents and hashes hold; empty where there is none."""
        return self.change.definition.code if self.change is not None else ""

    @property
    def for_spark(self) -> bool:
        """Return whether Spark has something to say of it: SQL that is new or changed."""
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
    """Steps that must be done before; a failed one blocks this one."""
    why: Sentence
    tables: tuple[TableName, ...] = ()
    """For a swap: every pointer of the release, sinks first; else empty."""
    predicted_low_s: float | None = None
    """What it takes by itself; None where nothing like it was measured."""
    predicted_high_s: float | None = None


@dataclass(frozen=True, slots=True)
class Undo:
    """What undoes a plan for some of its tables, and what that takes; or why nothing does."""

    act: str
    """`plan undo` or `stop`, as typed behind `headgate`; empty where there is no way back."""
    tables: tuple[TableName, ...]
    """What it acts on, readers that come along included."""
    words: Sentence
    """What the command does to them, or why there is none."""
    replay_rows: int | None = 0
    """Rows that are read again; None where that is not known."""
    eta_s: float | None = None
    until: Sentence | None = None
    """Its end, in words: `at any time`; empty where there is no way back."""
    predicted_low_s: float | None = None
    """What it takes as a whole, as a run's; None where that is not known."""
    predicted_high_s: float | None = None

    @classmethod
    def of(cls, act: str, tables: tuple[TableName, ...], words: str, *, until: str = "") -> "Undo":
        """Name an act and what it does; without rows that are read again."""
        return cls(act, tables, Sentence(words), until=Sentence(until) if until else None)


@dataclass(frozen=True, slots=True)
class LeftBehind:
    """A reader outside the plan's scope that stays on an old version."""

    table: TableName
    product: str
    reads: str
    """The physical table it stays on: `orders__v1`."""
    owner: str = ""
    through: str = ""
    """The table that it reads and that moves on, or is left behind itself."""
    depth: int = 1
    """1 for a reader of a table that moves on, 2 for a reader of that one, and so on."""


@dataclass(frozen=True, slots=True)
class Exposure:
    """A reader that the project only declares: it is told what changes for it."""

    reader: str
    table: TableName
    before: str
    """The physical table that it reads now."""
    after: str
    """The one that the pointer will serve; empty when the table goes."""
    owner: str = ""


@dataclass(frozen=True, slots=True)
class Guard:
    """A verdict over the plan; `verdict` is ok, unknown, warn, approve or deny."""

    name: str
    verdict: str
    summary: Sentence
    remedy: Sentence | None = None
    """What to do about a denial."""

    @classmethod
    def of(cls, name: str, verdict: str, summary: str, remedy: str = "") -> "Guard":
        """Judge."""
        return cls(name, verdict, Sentence(summary), Sentence(remedy) if remedy else None)


@dataclass(frozen=True, slots=True)
class PlanRefusal:
    """Why the request cannot be done at all."""

    table: str
    summary: Sentence
    """A whole sentence, which names the table itself."""
    remedy: Sentence
    guard: str = ""
    """The guard that denies it; empty where it is refused for itself."""

    @classmethod
    def of(cls, table: str, summary: str, remedy: str) -> "PlanRefusal":
        """Refuse a request for itself."""
        return cls(table, Sentence(summary), Sentence(remedy))


@dataclass(frozen=True, slots=True)
class PlanWarning:
    """Something the reviewer should know about a table."""

    table: str
    """Empty for a warning about the whole plan."""
    summary: Sentence
    """What follows behind the name of the table."""
    multiplies_rows: bool = False
    """Whether the same input may give more rows: these are read first."""

    @classmethod
    def of(cls, table: str, summary: str, *, multiplies_rows: bool = False) -> "PlanWarning":
        """Warn of a table."""
        return cls(table, Sentence(summary), multiplies_rows)


@dataclass(frozen=True, slots=True)
class Plan:
    """A proposal: a function of project texts, request, observed values and policy; `hash` covers what matters."""

    hash: str
    """SHA-256 of the canonical JSON, of all that does not drift while nothing changes (`core.plan.codec.plan_hash`)."""
    project_id: str
    environment: str
    protected: bool
    planner: str
    request: PlanRequest
    nodes: tuple[PlanNode, ...]
    """In the order of execution of their first step; kept ones by level and name."""
    order: tuple[TableName, ...]
    """Tables that are acted on, as they execute."""
    steps: tuple[Step, ...]
    left_behind: tuple[LeftBehind, ...] = ()
    guards: tuple[Guard, ...] = ()
    refusals: tuple[PlanRefusal, ...] = ()
    warnings: tuple[PlanWarning, ...] = ()
    readers: tuple[Exposure, ...] = ()
    approvals: int = 0
    """How many others must approve it before it is applied."""
    policy: str = ""
    """Digest of the policy that it was judged by."""
    preconditions: Mapping[TableName, Mapping[str, str]] = field(default_factory=dict)
    """Per node what must still be true at apply (`core.plan.preconditions`)."""
    undo: tuple[Undo, ...] = ()
    """What it takes to undo it, once it was executed."""
    predicted_low_s: float | None = None
    """What its run takes; None where nothing like it was measured."""
    predicted_high_s: float | None = None

    @property
    def empty(self) -> bool:
        """Return whether applying it would change nothing."""
        return not self.steps

    @property
    def acknowledges(self) -> bool:
        """Return whether applying it accepts what a restart cannot undo:
        another watermark on the old state.
        """
        return any(node.action is Action.RESTART and node.change is ChangeKind.WATERMARK_DELAY for node in self.nodes)

    @property
    def destructive(self) -> bool:
        """Return whether it deletes, loses state or swaps pointers away from a serving version (confirmation
        level C3).
        """
        moves = (Action.DELETE, Action.REBUILD, Action.ROLLBACK, Action.RETIRE)
        return any(node.action in moves or node.loses for node in self.nodes)
