"""The plan as a value: what happens to each statement, why, and in which order."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from core.changes.kinds import ChangeKind
from core.model.actions import EXECUTABLE, Action, StepKind
from core.model.evidence import Evidence
from core.model.names import TableName, physical_name
from core.model.reasons import Reason
from core.observed.versions import Binding
from core.plan.request import PlanRequest
from core.project.revision import RevisionTexts
from core.text.sentence import Fact, FactKind, Sentence

PLAN_FORMAT = "headgate.plan/1"
PLANNER_VERSION = "13"
"""Version of the planner; an agent refuses plans of any other version."""

_NOTHING_FOR_SPARK = frozenset(
    {
        Action.KEEP, Action.DELETE, Action.ROLLBACK, Action.UNDELETE, Action.RETIRE, Action.OPTIMIZE, Action.VACUUM,
    }
)  # fmt: skip
"""Actions that deploy no new or changed SQL."""


class RetentionKind(StrEnum):
    """Whether the input rows that a statement would read again still exist."""

    OK = "ok"
    SHORT = "short"
    UNKNOWN = "unknown"


_CLOSED_WINDOWS = "windows_stay_closed"
_READ_BY_OVERLAY = "read_by_overlay"
"""The code of the warning that a watermark changes on existing state."""


@dataclass(frozen=True, slots=True)
class Retention:
    """Whether the input that a replay of a statement would read still exists."""

    kind: RetentionKind
    files_gone: int = 0
    """Number of input files that the statement once read and that no longer exist."""
    earliest: str = ""
    """Time of the earliest remaining row; empty if unknown."""


@dataclass(frozen=True, slots=True)
class StrategyOffer:
    """A strategy that is allowed for a node, and its cost; None means unknown."""

    strategy: str
    replay_rows: int | None = None
    eta_s: float | None = None
    replay_bytes: int | None = None
    disk_bytes: int | None = None
    """Additional disk space, in bytes."""
    loses: tuple[str, ...] = ()
    note: Sentence | None = None
    """What an operator should know before choosing this strategy."""

    @property
    def executable(self) -> bool:
        """True if agents can execute the strategy; other strategies are offered only to show their cost."""
        return self.strategy in EXECUTABLE


class Placement(FactKind):
    """Why a statement runs in its pool."""

    NAMED = "runs in {pool}, which its yml names"
    DRAINED = "runs in {pool}, to which the drain of {drained} moves it"
    DEFAULT = "runs in {pool}, the default pool"
    STAYS = "stays in {pool}"
    BACK = "goes back to {pool}, where this version ran"
    MADE = "runs in {pool}, in which a failed run has made this version"
    CHOSEN = "runs in {pool}, which has room and was chosen when the plan was made"
    ONLY = "runs in {pool}, the only pool that takes new statements"
    ONLY_OF_CLASS = "runs in {pool}, the only pool of class {of_class} that takes new statements"
    MOST_ROOM = "runs in {pool}, which has the most room: {percent} % of its {dimension} stay free"
    MOST_ROOM_OF_CLASS = (
        "runs in {pool}, which has the most room of class {of_class}: {percent} % of its {dimension} stay free"
    )
    FEWEST = "runs in {pool}, which has no capacity that could be exceeded, and only {statements:statement}"
    FEWEST_OF_CLASS = (
        "runs in {pool}, which is of class {of_class}, has no capacity that could be exceeded, and only "
        "{statements:statement}"
    )

    @property
    def is_choice(self) -> bool:
        """True if the planner has chosen the pool."""
        return self not in (
            Placement.NAMED,
            Placement.DRAINED,
            Placement.DEFAULT,
            Placement.STAYS,
            Placement.BACK,
            Placement.MADE,
        )


@dataclass(frozen=True, slots=True)
class PlanNode:
    """A plan's decision about one table: the action, its reasons, cost and effects."""

    table: TableName
    product: str
    layer: str
    stateful: bool
    action: Action
    change: ChangeKind | None
    """Kind of change; None if no revisions were compared, as in a delete."""
    evidence: tuple[Evidence, ...]
    classified: bool
    strategy: str
    """A `Strategy` value; empty if the action starts no query."""
    reason: Reason
    """The reason for display; execution never depends on it."""
    because_of: tuple[TableName, ...]
    level: int
    """Topological level within the plan, starting at 0."""
    loses: tuple[str, ...]
    replay_rows: int | None = None
    eta_s: float | None = None
    """Minimum seconds to read the rows again; `predicted_low_s` and `predicted_high_s` cover the whole run."""
    predicted_low_s: float | None = None
    """Minimum seconds from the start of the run to the end of the node's last step; None without measurements."""
    predicted_high_s: float | None = None
    retention: Retention | None = None
    undo: str = ""
    """Label in column UNDO: `plan`, `stop`, `back` or `none`; empty if there is nothing to undo. See `Plan.undo`."""
    from_version: int = 0
    version: int = 0
    """The version after the plan; equal to `from_version` unless the plan creates or resumes another version."""
    bindings: tuple[Binding, ...] = ()
    """Bindings of the version after the plan."""
    revision: str = ""
    """Hash of the declared SQL and YAML."""
    texts: RevisionTexts = field(default_factory=RevisionTexts)
    """SQL and YAML of the version after the plan; may be empty for a kept table. A delete has the deployed texts."""
    old: RevisionTexts = field(default_factory=RevisionTexts)
    trigger: str = ""
    owner: str = ""
    offers: tuple[StrategyOffer, ...] = ()
    """Strategies that are allowed for the node; the chosen strategy comes first."""
    at: str = ""
    """Start position of the strategy: `now`, a time, a version or a partition; empty if it has none."""
    begins_where: tuple[str, ...] = ()
    """Conditions on the input streams, such as `orders.ts >= TIMESTAMP '…'`; empty if the node reads all rows."""
    lowered: bool = False
    """True if the operator's strategy is less severe than the default."""
    replay_bytes: int | None = None
    confirmed_by_spark: bool | None = None
    """True if Spark's analysis confirms the change, False if it contradicts it; None if it does neither."""
    pool: str = ""
    """Name of the pool in which the plan runs the version; empty if it runs none, or if there is only one pool."""
    placed: Fact[Placement] | None = None
    """Why that is its pool; None without one."""
    placed_n: int = 0
    """Its place in the order in which the planner has chosen pools, from 1; 0 if it has chosen none."""

    @property
    def row(self) -> str:
        """Code of the kind of change, as used in documents and hashes; empty if no revisions were compared."""
        return self.change.definition.code if self.change is not None else ""

    @property
    def for_spark(self) -> bool:
        """True if the node has new or changed SQL for Spark to analyse."""
        if self.action in _NOTHING_FOR_SPARK:
            return False
        begins = self.action is Action.START or (self.old.dml, self.old.ddl) != (self.texts.dml, self.texts.ddl)
        return begins and bool(self.texts.dml.strip())


@dataclass(frozen=True, slots=True)
class Step:
    """A numbered action of a plan, usually on one version of a table."""

    n: int
    """Number of the step, from 1, in execution order."""
    do: StepKind
    table: TableName
    version: int
    after: tuple[int, ...]
    """Numbers of the steps that must succeed first."""
    why: Sentence
    tables: tuple[TableName, ...] = ()
    """For a swap or hold, the tables whose pointers move together, sinks first; otherwise empty."""
    predicted_low_s: float | None = None
    """Minimum seconds that the step itself takes; None without measurements."""
    predicted_high_s: float | None = None


@dataclass(frozen=True, slots=True)
class Undo:
    """A command that undoes a plan for some of its tables, with its cost, or the reason why there is no command."""

    act: str
    """Command after `headgate`, such as `plan undo` or `stop`; empty if there is none."""
    tables: tuple[TableName, ...]
    """The tables that the command acts on, including readers."""
    words: Sentence
    """What the command does, or why there is no command."""
    replay_rows: int | None = 0
    """Number of rows to read again; None if unknown."""
    eta_s: float | None = None
    until: Sentence | None = None
    """How long the undo is possible, for example `at any time`; None if there is no command."""
    predicted_low_s: float | None = None
    """Minimum seconds that the whole undo takes; None if unknown."""
    predicted_high_s: float | None = None

    @classmethod
    def of(cls, act: str, tables: tuple[TableName, ...], words: str, *, until: str = "") -> "Undo":
        """Create an undo that reads no rows again."""
        return cls(act, tables, Sentence(words), until=Sentence(until) if until else None)


@dataclass(frozen=True, slots=True)
class LeftBehind:
    """A reader outside the plan's scope that keeps reading an old version."""

    table: TableName
    product: str
    reads: str
    """The physical table that the reader keeps reading, such as `orders__v1`."""
    owner: str = ""
    through: str = ""
    """The parent that links the reader to the plan: a table that changes its version, or a reader left behind."""
    depth: int = 1
    """1 for a reader of a table that changes its version, 2 for a reader of such a reader, and so on."""


@dataclass(frozen=True, slots=True)
class Exposure:
    """A declared reader outside Headgate, and its physical table before and after the plan."""

    reader: str
    table: TableName
    before: str
    """Physical table that the pointer serves now."""
    after: str
    """Physical table that the pointer will serve; empty if the table is deleted."""
    owner: str = ""


@dataclass(frozen=True, slots=True)
class Guard:
    """The result of a check of a plan; `verdict` is ok, unknown, warn, approve or deny."""

    name: str
    verdict: str
    summary: Sentence
    remedy: Sentence | None = None
    """Remedy if the guard denies the plan, or if a rule of the policy can spare an approval."""
    kind: str = ""
    """Code of the guard's finding; empty in a plan made by an older version."""
    fields: Mapping[str, object] = field(default_factory=dict, compare=False)
    """The JSON values from which `summary` was built; `kind` determines the keys."""

    @classmethod
    def of(cls, name: str, verdict: str, found: Fact[FactKind]) -> "Guard":
        """Create a guard from its finding."""
        return cls(name, verdict, found.sentence, found.remedy, kind=found.kind.code, fields=found.fields)


@dataclass(frozen=True, slots=True)
class PlanRefusal:
    """A reason why a request cannot be planned, with its remedy."""

    table: str
    summary: Sentence
    """A full sentence that contains the name of the table."""
    remedy: Sentence
    guard: str = ""
    """The guard that denies the plan; empty for other refusals."""
    kind: str = ""
    """The code of the refusal; for a denial, the code of the guard's finding."""
    fields: Mapping[str, object] = field(default_factory=dict, compare=False)
    """The JSON values from which `summary` was built; `kind` determines the keys."""

    @classmethod
    def of(cls, table: str, why: Fact[FactKind]) -> "PlanRefusal":
        """Create a refusal that comes from no guard; its sentence may contain the table as `{table}`."""
        said = _about(table, why)
        remedy = said.remedy
        assert remedy is not None, "a refusal has a remedy"
        return cls(table, said.sentence, remedy, kind=why.kind.code, fields=why.fields)


@dataclass(frozen=True, slots=True)
class PlanWarning:
    """A warning for the reviewer about a table or the whole plan."""

    table: str
    """Table that the warning concerns; empty for the whole plan."""
    summary: Sentence
    """The text that follows the name of the table."""
    multiplies_rows: bool = False
    """True if the same input may yield more rows; such warnings are listed first."""
    kind: str = ""
    """The code of the warning."""
    drifts: bool = False
    """True if the warning is about a measurement that changes by itself; it is not part of the plan's hash."""
    fields: Mapping[str, object] = field(default_factory=dict, compare=False)
    """The JSON values from which `summary` was built; `kind` determines the keys."""

    @classmethod
    def of(
        cls, table: str, said: Fact[FactKind], *, multiplies_rows: bool = False, drifts: bool = False
    ) -> "PlanWarning":
        """Create a warning; its sentence may contain the table as `{table}`."""
        sentence = _about(table, said).sentence
        return cls(table, sentence, multiplies_rows, said.kind.code, drifts=drifts, fields=said.fields)


def _about(table: str, said: Fact[FactKind]) -> Fact[FactKind]:
    return Fact(said.kind, (("table", table), *said.values))


@dataclass(frozen=True, slots=True)
class Plan:
    """A proposed change, computed from project files, a request, observations and a policy."""

    hash: str
    """SHA-256 of the parts that change only through an edit; see `core.plan.codec.plan_hash`."""
    project_id: str
    environment: str
    protected: bool
    planner: str
    request: PlanRequest
    nodes: tuple[PlanNode, ...]
    """The nodes, ordered by when their first step is executed; kept nodes by level and name."""
    order: tuple[TableName, ...]
    """The tables that the plan acts on, in execution order."""
    steps: tuple[Step, ...]
    left_behind: tuple[LeftBehind, ...] = ()
    guards: tuple[Guard, ...] = ()
    refusals: tuple[PlanRefusal, ...] = ()
    warnings: tuple[PlanWarning, ...] = ()
    readers: tuple[Exposure, ...] = ()
    approvals: int = 0
    """Number of approvals required from other logins."""
    policy: str = ""
    """Digest of the policy that the guards applied."""
    preconditions: Mapping[TableName, Mapping[str, str]] = field(default_factory=dict)
    """Values by table that must be unchanged when the plan is applied; see `core.plan.preconditions`."""
    undo: tuple[Undo, ...] = ()
    """How to undo the plan after its execution."""
    predicted_low_s: float | None = None
    """Minimum seconds that the run takes; None without measurements."""
    predicted_high_s: float | None = None

    @property
    def lasting_warnings(self) -> tuple[PlanWarning, ...]:
        """The warnings that change only through an edit."""
        return tuple(warning for warning in self.warnings if not warning.drifts)

    @property
    def empty(self) -> bool:
        """True if applying the plan would change nothing."""
        return not self.steps

    def overlays_named(self, table: str, version: int) -> frozenset[str]:
        """Return the overlays that read a version which the plan removes, as far as it warns of them."""
        name = physical_name(TableName(table), version)
        return frozenset(
            str(each.fields["overlay"])
            for each in self.warnings
            if each.table == table and each.kind == _READ_BY_OVERLAY and each.fields["version"] == name
        )

    @property
    def acknowledges(self) -> bool:
        """True if the plan permanently changes a watermark on existing state; the operator must acknowledge this."""
        restarts = (node.change for node in self.nodes if node.action is Action.RESTART)
        # A more severe edit of the same table may hide the kind, but never its warning.
        return ChangeKind.WATERMARK_DELAY in restarts or any(each.kind == _CLOSED_WINDOWS for each in self.warnings)

    @property
    def destructive(self) -> bool:
        """True if the plan deletes, loses rows, or replaces a serving version (confirmation level C3)."""
        moves = (Action.DELETE, Action.REBUILD, Action.ROLLBACK, Action.RETIRE)
        return any(node.action in moves or node.loses for node in self.nodes)
