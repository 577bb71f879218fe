"""The plan as a value: what will happen to which statement, why, in which order, and what it was computed from."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from core.names import TableName

FORMAT = "headgate.plan/1"
PLANNER = "2"
"""Version of the planner; an agent refuses plans of another one."""


class Action(StrEnum):
    """What a plan does to one statement."""

    KEEP = "keep"
    RECORD = "record"
    START = "start"
    RESUME = "resume"
    RESTART = "restart"
    REBUILD = "rebuild"
    STOP = "stop"
    DELETE = "delete"


class Do(StrEnum):
    """What a step does: the executor branches on this and on nothing else of the plan."""

    REGISTER = "register"
    """CREATE TABLE IF NOT EXISTS for an external table."""
    CREATE = "create"
    """Physical table of a version, its empty checkpoint with owner file, `_headgate.json` beside both."""
    START = "start"
    """Start the query of a version on its new checkpoint."""
    RESUME = "resume"
    """Start the deployed revision on its existing checkpoint."""
    CATCH_UP = "catch_up"
    """Wait until a version has caught up with its inputs, within a bound."""
    SWAP = "swap"
    """Move the pointers of `tables` (sinks first) to their new versions: CREATE VIEW when absent, else ALTER VIEW."""
    RESTART = "restart"
    """Stop, then start the new revision on the same checkpoint."""
    ALTER = "alter"
    """ALTER TABLE ADD COLUMNS on the physical table, and the registration DDL in the ledger."""
    STOP = "stop"
    """Stop the query of a version and prove it stopped; table and checkpoint stay."""
    RECORD = "record"
    """Write the declared revision into the registry; nothing on the pool changes."""
    UNPOINT = "unpoint"
    """Drop the pointer view of a deleted table."""
    TOMBSTONE = "tombstone"
    """Take a version's table from the catalog and set its files and checkpoint aside until `drop_after`."""


@dataclass(frozen=True, slots=True)
class Texts:
    """A revision's texts: the unit of what is declared and deployed."""

    ddl: str = ""
    dml: str = ""
    yml: str = ""


@dataclass(frozen=True, slots=True)
class Binding:
    """A parent as one deployment reads it; `version` 0 is an external table."""

    parent: TableName
    version: int
    streamed: bool


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked for; all tuples sorted, so that the same request has the same bytes."""

    verb: str = "deploy"
    """deploy or delete."""
    tables: tuple[TableName, ...] = ()
    products: tuple[str, ...] = ()
    everything: bool = False
    children: str = "product"
    """none, product or all."""
    exclude: tuple[TableName, ...] = ()
    rebuild: bool = False
    nonce: str = ""
    """Makes the same request at another time another plan, because each is applied once; empty offline."""
    continues: str = ""
    """Id of the failed run that this goes on from: what that run has made is used, or set aside."""


@dataclass(frozen=True, slots=True)
class Spare:
    """A version that never served: its run ended before the pointer moved to it."""

    version: int
    revision: str
    bindings: tuple[Binding, ...] = ()
    running: bool = False
    checkpoint_ok: bool = True
    begun: bool = True
    """Whether its query was ever started: one that was not has read nothing and holds nothing."""


@dataclass(frozen=True, slots=True)
class Observed:
    """What is known of a table's deployment; everything but `state` may be unknown offline."""

    state: str = "absent"
    revision: str = "same"
    """same, changed, or the deployed revision's sha."""
    deployed: Texts | None = None
    since: str = ""
    version: int = 0
    """The active version; 0 when none is deployed (offline: 1 is assumed when the state is not absent)."""
    highest_version: int = 0
    """The highest version number ever used: a rebuild takes the next one."""
    bindings: tuple[Binding, ...] = ()
    checkpoint_id: str = ""
    checkpoint_ok: bool = True
    """False when the checkpoint is missing, unreadable or not ours (row 0b)."""
    pointer: str = ""
    """The pointer's target, `orders__v3`; empty when there is none."""
    table_id: str = ""
    wanted: str = "running"
    retained: tuple[int, ...] = ()
    """Older versions whose query still runs because something is bound to them."""
    kept: tuple[int, ...] = ()
    """Every other version that exists, running or not: a delete sets all of them aside."""
    spare: tuple[Spare, ...] = ()
    """Other versions that never served, newest first."""
    begun: bool = True
    """Whether the query of `version` was ever started, or it serves."""


@dataclass(frozen=True, slots=True)
class Node:
    """What the plan says of one statement."""

    table: TableName
    product: str
    layer: str
    stateful: bool
    action: Action
    row: str
    """Row of planning.md §3: 0, 0b, 1, 2, 3, 4, 5 …; empty for deletes."""
    evidence: tuple[str, ...]
    classified: bool
    strategy: str
    """first, earliest, in_place or empty."""
    reason: str
    """From the closed list of `core.reasons`; for people, never branched on."""
    because_of: tuple[TableName, ...]
    level: int
    """Topological generation inside the plan, 0 first."""
    loses: tuple[str, ...]
    replay_rows: int | None = None
    eta_s: float | None = None
    retention: str | None = None
    reversible_until: str | None = None
    from_version: int = 0
    version: int = 0
    """The version after the plan; equal to `from_version` unless it is started or rebuilt."""
    bindings: tuple[Binding, ...] = ()
    """What the version after the plan reads."""
    revision: str = ""
    """Hash of the declared texts."""
    texts: Texts = field(default_factory=Texts)
    """Declared texts (old ones for a delete)."""
    old: Texts = field(default_factory=Texts)
    trigger: str = ""
    owner: str = ""
    confirmed_by_spark: bool | None = None
    """False when Spark reads the statement otherwise than we do; None when it was not asked, or could not say."""

    @property
    def for_spark(self) -> bool:
        """Whether Spark has something to say of it: SQL that is new or changed."""
        begins = self.action is Action.START or (self.old.dml, self.old.ddl) != (self.texts.dml, self.texts.ddl)
        return begins and bool(self.texts.dml.strip()) and self.action not in (Action.KEEP, Action.DELETE)


@dataclass(frozen=True, slots=True)
class Step:
    """One action in a plan."""

    n: int
    """From 1, in the order of execution."""
    do: Do
    table: TableName
    version: int
    after: tuple[int, ...]
    """Steps that must be done before; a failed one blocks this one."""
    why: str
    undo: str
    tables: tuple[TableName, ...] = ()
    """For a swap: every pointer of the release, sinks first; else empty."""


@dataclass(frozen=True, slots=True)
class LeftBehind:
    """A reader outside the plan's scope that stays on an old version."""

    table: TableName
    product: str
    reads: str
    """The physical table it stays on: `orders__v1`."""
    owner: str = ""


@dataclass(frozen=True, slots=True)
class Guard:
    """A verdict over the plan; `verdict` is ok, warn or deny."""

    name: str
    verdict: str
    summary: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why the request cannot be done at all."""

    table: str
    summary: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Warned:
    """Something the reviewer should know of a table."""

    table: str
    summary: str


@dataclass(frozen=True, slots=True)
class Plan:
    """A proposal: a function of project texts, request, observed values and policy; `hash` covers all the rest."""

    hash: str
    """SHA-256 of the canonical JSON without `hash`."""
    project_id: str
    environment: str
    protected: bool
    planner: str
    request: Request
    nodes: tuple[Node, ...]
    """In the order of execution of their first step; kept ones by level and name."""
    order: tuple[TableName, ...]
    """Tables that are acted on, as they execute."""
    steps: tuple[Step, ...]
    left_behind: tuple[LeftBehind, ...] = ()
    guards: tuple[Guard, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    warnings: tuple[Warned, ...] = ()
    preconditions: Mapping[TableName, Mapping[str, str]] = field(default_factory=dict)
    """Per node what must still be true at apply: revision, version, checkpoint_id, pointer, table_id, wanted, state."""

    @property
    def empty(self) -> bool:
        """Whether applying it would change nothing."""
        return not self.steps

    @property
    def acknowledges(self) -> bool:
        """Whether applying it accepts what a restart cannot undo: another watermark on the old state (row 6d)."""
        return any(node.action is Action.RESTART and node.row == "6d" for node in self.nodes)

    @property
    def destructive(self) -> bool:
        """Whether it deletes, loses state or swaps pointers away from a serving version (confirmation level C3)."""
        return any(node.action is Action.DELETE or node.loses or (node.action is Action.REBUILD) for node in self.nodes)
