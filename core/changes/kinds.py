"""Kinds of change, with the action, the reason and the effect on the checkpoint of each kind.

The README.md of this package states the rules behind them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from core.model.actions import Action, Strategy
from core.model.evidence import Notice
from core.model.reasons import LOST_CHECKPOINT, Reason
from core.text.sentence import FactKind, Sentence


class ChangeKind(StrEnum):
    """The kind of a change; its value is the name used in JSON."""

    NONE = "none"
    CHECKPOINT_LOST = "checkpoint_lost"
    COMMENT_OR_FORMAT = "comment_or_format"
    DESCRIPTION = "description"
    FILTER_OR_PROJECTION = "filter_or_projection"
    COLUMN_ADDED = "column_added"
    COLUMN_WIDENED = "column_widened"
    COLUMNS_CHANGED = "columns_changed"
    STATE_CHANGED = "state_changed"
    CHANGE_BEFORE_STATE = "change_before_state"
    CHANGE_AFTER_STATE = "change_after_state"
    WATERMARK_DELAY = "watermark_delay"
    SOURCES_CHANGED = "sources_changed"
    NAMED_SOURCES_CHANGED = "named_sources_changed"
    SOURCE_REPLACED = "source_replaced"
    TABLE_FORMAT = "table_format"
    OUTPUT_MODE_OR_KEY = "output_mode_or_key"
    TRIGGER_OR_RATE = "trigger_or_rate"
    SCHEMA_TRACKING = "schema_tracking"
    PINNED_CONFIGURATION = "pinned_configuration"
    POOL = "pool"
    ENGINE = "engine"
    STATIC_SIDE = "static_side"

    @property
    def definition(self) -> "ChangeKindDefinition":
        """The row of this kind in CHANGE_KINDS."""
        return _DEFINITION_BY_KIND[self]


class CheckpointRefusal(FactKind):
    """A reason why a restart from the old checkpoint cannot replace a rebuild."""

    LOST = LOST_CHECKPOINT
    COLUMNS_ADDED = "columns are added as well, and one restart cannot do both"
    COLUMNS_WIDENED = "columns take a wider type as well, and one restart cannot do both"
    TABLE_CANNOT_HOLD = "the old table cannot hold its columns"
    OTHER_SOURCES = "Spark rejects a checkpoint written for other sources"
    NAMES_NOT_TRACKED = "its offsets were not tracked by source name from the first start"
    OTHER_SOURCE = "its offsets would be applied to another source"
    TABLE_WRITTEN_DIFFERENTLY = "its table is written differently"
    UNPROVEN = "nobody has shown that Spark goes on from the old checkpoint"
    STATEMENT_CAME_OR_WENT = "a statement was added or removed"
    STATE_LACKS_COLUMNS = "its state would hold columns that its checkpoint does not have"
    OTHER_STATE = "its state has different operators, keys or values, which Spark rejects or misreads as the old ones"
    OTHER_AGGREGATES = "Spark may keep other aggregates once it has simplified what reads them"
    OTHER_INPUT = "Spark may reject what would enter its state"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeKindDefinition:
    """One row of the table of change kinds."""

    kind: ChangeKind
    code: str
    """Short name in plan documents (`row`); it must never change, because saved plans and hashes contain it."""
    label: str
    """What changed, in at most 24 characters; shown in column CHANGE."""
    severity: int
    """Rank of the kind; if an edit has several kinds, the highest rank decides. Ranks are unique."""
    action: Action
    """The action that this kind requires by default."""
    reason: Reason
    """The reason that a plan gives for the action."""
    why: str
    """Why the action is the default, in one sentence for users."""
    loses: Sentence | None = None
    """What the default action loses; None if it loses nothing."""
    leaves: Sentence | None = None
    """The effect on existing rows, or on an undo, if nothing is lost."""
    instead: tuple[Strategy, ...] = ()
    """Strategies that can replace the default action, if the statement allows them."""
    note: Notice | None = None
    """Evidence that is added to every edit of this kind."""
    breaks_checkpoint: CheckpointRefusal | None = None
    """Why a restart cannot replace a rebuild; see `why_not_from_checkpoint`."""
    judged_by_state: bool = False
    """True if the old and the new state decide whether a restart is possible; see `checkpoint_compatibility`."""
    same_statement: bool = False
    """True if the edit changes nothing that the statement reads, computes or writes."""
    leaves_seam: bool = False
    """True if a restart leaves rows of both the old and the new SQL in the table."""
    keeps_table_across_seam: bool = False
    """True if a statement with this edit can keep its table when a parent is re-created."""
    state_may_be_copied: bool = False
    """True if a new version can start from a copy of the old state."""
    changes_inputs_or_key: bool = False
    """True if offsets or rows of the old version have a different meaning in a new version."""
    alters_table: bool = False
    """True if the table is altered in place before the restart."""
    needs_another_table: bool = False
    """True if the old physical table cannot store the output of the new SQL."""
    is_of_the_environment: bool = False
    """True if the change is in the environment, not in the table's own files."""
    follows_from_parent: bool = False
    """True if the change only results from a re-created parent, without an edit to the statement."""

    @property
    def is_recorded(self) -> bool:
        """True if the change is only recorded, while the query keeps running."""
        return self.action is Action.RECORD

    @property
    def loss_words(self) -> Sentence:
        """One line on what the default action loses, and on its effect on existing rows or on an undo."""
        lost = self.loses or "nothing"
        return Sentence(f"{lost}; {self.leaves}" if self.leaves is not None else f"{lost}")

    @property
    def why_not_from_checkpoint(self) -> CheckpointRefusal | None:
        """Why a restart from the old checkpoint cannot replace a rebuild; None if it can, or if the states decide.

        For a kind that requires a rebuild by default and has no reason of its own, the reason is UNPROVEN.
        """
        if self.judged_by_state:
            return None
        return self.breaks_checkpoint or (CheckpointRefusal.UNPROVEN if self.action is Action.REBUILD else None)


_OLD_ROWS_STAY = Sentence("rows that are there already keep the meaning of the old text")
_HISTORY = Sentence("nothing where the sources still hold their history; else the rows that they no longer hold")

_NEW_VERSION = (Strategy.EARLIEST, Strategy.PARTIAL, Strategy.SEEDED)
"""Strategies that create a new version, reading from the beginning or from a start position."""
_LATER = (Strategy.PARTIAL, Strategy.SEEDED)

CHANGE_KINDS: tuple[ChangeKindDefinition, ...] = (
    ChangeKindDefinition(
        kind=ChangeKind.NONE, code="0", label="none", severity=0, action=Action.KEEP, reason=Reason.UNCHANGED,
        why="texts, settings, pool and Spark are the same as at its start",
        instead=(Strategy.EARLIEST,), same_statement=True, keeps_table_across_seam=True,
        follows_from_parent=True,
    ),
    ChangeKindDefinition(
        kind=ChangeKind.CHECKPOINT_LOST, code="0b", label="cannot go on", severity=200,
        action=Action.REBUILD, reason=Reason.CHECKPOINT_LOST,
        why="Spark would begin with an empty checkpoint on the same table and report success, with rows lost or "
        "doubled: a start is refused until a rebuild is requested",
        loses=_HISTORY, instead=_LATER, breaks_checkpoint=CheckpointRefusal.LOST,
    ),
    ChangeKindDefinition(
        kind=ChangeKind.COMMENT_OR_FORMAT, code="1", label="comment or format", severity=20, action=Action.RECORD,
        reason=Reason.SAME_MEANING,
        why="Spark plans the same query; the new text is written down, and nothing restarts",
        instead=(Strategy.EARLIEST,), same_statement=True, keeps_table_across_seam=True,
    ),
    ChangeKindDefinition(
        kind=ChangeKind.DESCRIPTION, code="2", label="settings outside Spark", severity=30, action=Action.RECORD,
        reason=Reason.DOCUMENTS, why="owner, tags, runbook and the like never reach Spark",
        instead=(Strategy.EARLIEST,), same_statement=True, keeps_table_across_seam=True,
    ),
    ChangeKindDefinition(
        kind=ChangeKind.FILTER_OR_PROJECTION, code="3", label="filter or projection", severity=60,
        action=Action.RESTART, reason=Reason.IN_PLACE,
        why="without state a checkpoint holds offsets only, and they mean the same to the new text",
        leaves=_OLD_ROWS_STAY, instead=(*_NEW_VERSION, Strategy.CARRY_OVER), leaves_seam=True,
    ),
    ChangeKindDefinition(
        kind=ChangeKind.COLUMN_ADDED, code="4", label="column added", severity=105, action=Action.RESTART,
        reason=Reason.COLUMNS_ADDED,
        why="a nullable column at the end fits the old files, and no state knows it: the table is altered, then the "
        "query restarts",
        leaves=Sentence("rows that are there already have NULL in the new column, which stays"),
        instead=(*_NEW_VERSION, Strategy.CARRY_OVER), alters_table=True,
        breaks_checkpoint=CheckpointRefusal.COLUMNS_ADDED,
    ),
    ChangeKindDefinition(
        kind=ChangeKind.COLUMN_WIDENED, code="4b", label="wider column type", severity=115, action=Action.RESTART,
        reason=Reason.COLUMNS_WIDENED,
        why="a table on Delta takes a wider type in place, its old files are read as the new one, and no state holds "
        "it: the table is altered, then the query restarts",
        leaves=Sentence("rows that are there already keep their values, and the column is not narrowed in place again"),
        instead=(*_NEW_VERSION, Strategy.FORK, Strategy.CARRY_OVER), leaves_seam=True, alters_table=True,
        breaks_checkpoint=CheckpointRefusal.COLUMNS_WIDENED,
    ),
    ChangeKindDefinition(
        kind=ChangeKind.COLUMNS_CHANGED, code="5", label="columns no longer fit", severity=170, action=Action.REBUILD,
        reason=Reason.COLUMNS_CHANGED,
        why="Spark would write files of other columns beside the old ones, and the table could not be read; a table on "
        "Delta takes a drop or a new name in place, but ends all that streams it at every start from then on",
        loses=_HISTORY, instead=(*_LATER, Strategy.CARRY_OVER), needs_another_table=True,
        breaks_checkpoint=CheckpointRefusal.TABLE_CANNOT_HOLD,
    ),
    ChangeKindDefinition(
        kind=ChangeKind.STATE_CHANGED, code="6a", label="state no longer fits", severity=190, action=Action.REBUILD,
        reason=Reason.STATE_CHANGED,
        why="another aggregate, key, window, join or deduplication: Spark rejects the old state or, worse, continues "
        "with it and mixes old and new; what cannot be classified counts as this kind",
        loses=_HISTORY, instead=(*_LATER, Strategy.IN_PLACE), judged_by_state=True,
    ),
    ChangeKindDefinition(
        kind=ChangeKind.CHANGE_BEFORE_STATE, code="6b", label="input to the state", severity=180,
        action=Action.REBUILD, reason=Reason.STATE_CHANGED,
        why="a filter or a value changed before an aggregate, join or deduplication: its state holds what the old text "
        "let in, and Spark silently continues with it",
        loses=_HISTORY, instead=(*_LATER, Strategy.IN_PLACE), judged_by_state=True,
    ),
    ChangeKindDefinition(
        kind=ChangeKind.CHANGE_AFTER_STATE, code="6c", label="output of the state", severity=80,
        action=Action.RESTART, reason=Reason.ABOVE_STATE,
        why="a filter (HAVING) or a value changed after all that keeps state, and the state stays as it is",
        leaves=_OLD_ROWS_STAY, instead=(*_NEW_VERSION, Strategy.FORK), leaves_seam=True, state_may_be_copied=True,
    ),
    ChangeKindDefinition(
        kind=ChangeKind.WATERMARK_DELAY, code="6d", label="watermark delay", severity=90, action=Action.RESTART,
        reason=Reason.DELAY_CHANGED,
        why="the state stays as it is; only when rows are given up changes, which must be acknowledged",
        loses=Sentence("nothing that is there; rows that come for windows that the old watermark closed are dropped"),
        instead=_NEW_VERSION, note=Notice.WINDOWS_STAY_CLOSED,
    ),
    ChangeKindDefinition(
        kind=ChangeKind.SOURCES_CHANGED, code="7a", label="source added or removed", severity=130,
        action=Action.REBUILD, reason=Reason.SOURCES_CHANGED,
        why="a checkpoint identifies unnamed sources by their number alone, and Spark rejects a different number",
        loses=_HISTORY, instead=_LATER, changes_inputs_or_key=True,
        note=Notice.OFFSETS_NOT_CARRIED,
        breaks_checkpoint=CheckpointRefusal.OTHER_SOURCES,
    ),
    ChangeKindDefinition(
        kind=ChangeKind.NAMED_SOURCES_CHANGED, code="7b", label="named sources changed", severity=120,
        action=Action.REBUILD, reason=Reason.SOURCES_CHANGED,
        why="offsets are tracked by source name only if that was enabled at the first start; then a statement without "
        "state restarts",
        loses=_HISTORY, instead=_LATER, changes_inputs_or_key=True,
        note=Notice.NAMES_NEEDED,
        breaks_checkpoint=CheckpointRefusal.NAMES_NOT_TRACKED,
    ),
    ChangeKindDefinition(
        kind=ChangeKind.SOURCE_REPLACED, code="7c", label="source is not the same", severity=140,
        action=Action.REBUILD, reason=Reason.SOURCES_CHANGED,
        why="another table, order, name or option of a source: Spark continues with the offsets of the old one, or "
        "fails",
        loses=_HISTORY, instead=_LATER, changes_inputs_or_key=True,
        breaks_checkpoint=CheckpointRefusal.OTHER_SOURCE,
    ),
    ChangeKindDefinition(
        kind=ChangeKind.TABLE_FORMAT, code="8", label="how the table is stored", severity=160, action=Action.REBUILD,
        reason=Reason.SINK_CHANGED, why="format, partitioning, location and properties are those of its first start",
        loses=_HISTORY, instead=(*_LATER, Strategy.CARRY_OVER, Strategy.CHAIN), needs_another_table=True,
        breaks_checkpoint=CheckpointRefusal.TABLE_WRITTEN_DIFFERENTLY,
    ),
    ChangeKindDefinition(
        kind=ChangeKind.OUTPUT_MODE_OR_KEY, code="9", label="output mode or key", severity=150, action=Action.REBUILD,
        reason=Reason.SINK_CHANGED, why="rows that were written by the old mode or key would stay beside the new ones",
        loses=_HISTORY, instead=(*_LATER, Strategy.CARRY_OVER), changes_inputs_or_key=True,
        breaks_checkpoint=CheckpointRefusal.TABLE_WRITTEN_DIFFERENTLY,
    ),
    ChangeKindDefinition(
        kind=ChangeKind.TRIGGER_OR_RATE, code="11a", label="pace or resources", severity=40, action=Action.RESTART,
        reason=Reason.PACE, why="trigger, rate limits, cores and memory change how fast rows are read, and no row",
        instead=(*_NEW_VERSION, Strategy.CARRY_OVER), keeps_table_across_seam=True,
    ),
    ChangeKindDefinition(
        kind=ChangeKind.PINNED_CONFIGURATION, code="11b", label="pinned configuration", severity=10,
        action=Action.KEEP, reason=Reason.CONF_PINNED,
        why="the checkpoint keeps the value of its first start, and Spark silently ignores the new one",
        instead=(Strategy.EARLIEST,), keeps_table_across_seam=True, is_of_the_environment=True,
    ),
    ChangeKindDefinition(
        kind=ChangeKind.SCHEMA_TRACKING, code="11c", label="schema tracking", severity=45, action=Action.RESTART,
        reason=Reason.TRACKING,
        why="its offsets hold whether its streams keep the columns that they have read or not: Delta begins to keep "
        "them with the next start, and passes over what it has kept",
        instead=(*_NEW_VERSION, Strategy.CARRY_OVER), keeps_table_across_seam=True,
    ),
    ChangeKindDefinition(
        kind=ChangeKind.POOL, code="12", label="another pool", severity=110, action=Action.RESTART,
        reason=Reason.POOL_CHANGED,
        why="the same checkpoint continues elsewhere, never in two places at once; such a plan is refused when it is "
        "applied if the old pool is not declared any more, since it could not be asked",
        instead=(*_NEW_VERSION, Strategy.CARRY_OVER), is_of_the_environment=True,
        note=Notice.STOPPED_ON_OLD_POOL,
    ),
    ChangeKindDefinition(
        kind=ChangeKind.ENGINE, code="13", label="another Spark", severity=100, action=Action.RESTART,
        reason=Reason.ENGINE_CHANGED,
        why="a newer Spark reads the checkpoints of an older one; an older Spark counts as state that no longer fits",
        leaves=Sentence("the way back to the older Spark may be closed"),
        instead=(*_NEW_VERSION, Strategy.FORK, Strategy.CARRY_OVER), is_of_the_environment=True,
        state_may_be_copied=True,
        note=Notice.BACK_UP_CHECKPOINT,
    ),
    ChangeKindDefinition(
        kind=ChangeKind.STATIC_SIDE, code="14", label="static side", severity=50, action=Action.RESTART,
        reason=Reason.STATIC_CHANGED, why="a running query keeps the static side as it was when it started",
        leaves=_OLD_ROWS_STAY, instead=(*_NEW_VERSION, Strategy.CARRY_OVER), leaves_seam=True,
        keeps_table_across_seam=True, follows_from_parent=True,
    ),
)  # fmt: skip
"""Every kind once, in the order in which the kinds are explained to users."""

_DEFINITION_BY_KIND = {each.kind: each for each in CHANGE_KINDS}

_FREE = """\
CREATE TABLE t (id BIGINT, v BIGINT)
USING parquet;
INSERT INTO t
SELECT id, v
FROM STREAM src"""
_SHORT = _FREE.replace("v BIGINT)\nUSING parquet", "v INT)\nUSING delta")
_COUNTS = """\
CREATE TABLE t (s TIMESTAMP, n BIGINT)
USING parquet;
INSERT INTO t
SELECT window.start AS s, sum(v) AS n
FROM STREAM src WATERMARK ts DELAY OF INTERVAL 5 MINUTES
GROUP BY window(ts, '10 minutes')"""
_JOINED = """\
CREATE TABLE t (id BIGINT, k STRING)
USING parquet;
INSERT INTO t
SELECT src.id, names.k
FROM STREAM src
JOIN names ON names.id = src.id"""
_NAMED = f"{_FREE} IDENTIFIED BY one"
_MORE = "UNION ALL SELECT id, v FROM STREAM other"


def _edit(text: str, was: str, now: str) -> tuple[str, str]:
    assert was in text
    return text, text.replace(was, now)


KIND_EXAMPLES: Mapping[ChangeKind, tuple[str, str]] = {
    ChangeKind.NONE: (_FREE, _FREE),
    ChangeKind.COMMENT_OR_FORMAT: _edit(_FREE, "SELECT id, v", "select id, v -- one row for each order"),
    ChangeKind.DESCRIPTION: (f"{_FREE}\nyml: owner: lee", f"{_FREE}\nyml: owner: kim"),
    ChangeKind.FILTER_OR_PROJECTION: (_FREE, f"{_FREE}\nWHERE v > 10"),
    ChangeKind.COLUMN_ADDED: (
        _FREE,
        _FREE.replace("v BIGINT)", "v BIGINT, w BIGINT)").replace("SELECT id, v", "SELECT id, v, v * 2 AS w"),
    ),
    ChangeKind.COLUMN_WIDENED: _edit(_SHORT, "v INT", "v BIGINT"),
    ChangeKind.COLUMNS_CHANGED: (
        _FREE,
        _FREE.replace("v BIGINT)", "v STRING)").replace("SELECT id, v", "SELECT id, CAST(v AS STRING) AS v"),
    ),
    ChangeKind.STATE_CHANGED: _edit(_COUNTS, "sum(v)", "max(v)"),
    ChangeKind.CHANGE_BEFORE_STATE: _edit(_COUNTS, "GROUP BY", "WHERE v > 10\nGROUP BY"),
    ChangeKind.CHANGE_AFTER_STATE: (_COUNTS, f"{_COUNTS}\nHAVING sum(v) > 100"),
    ChangeKind.WATERMARK_DELAY: _edit(_COUNTS, "INTERVAL 5 MINUTES", "INTERVAL 10 MINUTES"),
    ChangeKind.SOURCES_CHANGED: (_FREE, f"{_FREE}\n{_MORE}"),
    ChangeKind.NAMED_SOURCES_CHANGED: (_NAMED, f"{_NAMED}\n{_MORE} IDENTIFIED BY two"),
    ChangeKind.SOURCE_REPLACED: _edit(_FREE, "STREAM src", "STREAM other"),
    ChangeKind.TABLE_FORMAT: _edit(_FREE, "USING parquet", "USING parquet PARTITIONED BY (id)"),
    ChangeKind.OUTPUT_MODE_OR_KEY: (f"{_FREE}\nyml: key: [id]", f"{_FREE}\nyml: key: [id, v]"),
    ChangeKind.TRIGGER_OR_RATE: (f"{_FREE}\nyml: trigger: 5 seconds", f"{_FREE}\nyml: trigger: 1 minute"),
    ChangeKind.SCHEMA_TRACKING: (_FREE, f"{_FREE}\nyml: schema_tracking: true"),
    ChangeKind.PINNED_CONFIGURATION: (
        f"{_COUNTS}\npool: spark.sql.shuffle.partitions=200",
        f"{_COUNTS}\npool: spark.sql.shuffle.partitions=400",
    ),
    ChangeKind.POOL: (f"{_FREE}\npool: small", f"{_FREE}\npool: large"),
    ChangeKind.ENGINE: (f"{_FREE}\nengine: 4.2.0", f"{_FREE}\nengine: 4.3.0"),
    ChangeKind.STATIC_SIDE: (_JOINED, _JOINED.replace("names", "new_names")),
}
"""A short example edit for each kind that SQL and YAML can express: the old and the new side of one table.

A side is a DDL up to its semicolon, then the clauses of the statement; lines that start with `yml:`, `pool:` and
`engine:` give everything that is not SQL. CHECKPOINT_LOST has no example, because it is not an edit.
"""


def example_lines(kind: ChangeKind) -> tuple[str, ...]:
    """Return the lines that differ in the example of a kind: old lines with `-`, new lines with `+`."""
    old, new = (side.splitlines() for side in KIND_EXAMPLES[kind])
    return (*(f"- {line}" for line in old if line not in new), *(f"+ {line}" for line in new if line not in old))
