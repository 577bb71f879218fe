"""The closed lists of reasons to refuse a strategy or start position, and of notes about strategies."""

from core.text.sentence import Fact, FactKind


class StrategyRefusal(FactKind):
    """A reason to refuse a strategy or a start position."""

    NOT_HERE = "it does not apply to this change"
    NO_STATEMENT = "it has no statement"
    NOT_STARTED = "the plan does not start it"
    CHANGE_UNKNOWN = "what changed is unknown"
    UNPROVEN = "{evidence}"
    """The placeholder is filled with the evidence that leaves the change unproven."""
    LOST = "{what}"
    """The placeholder is filled with the agent's recorded reason for the loss of a checkpoint."""

    # About the statement itself.
    KEEPS_STATE = "it keeps state"
    NO_STATE = "it keeps no state that could be taken along"
    OTHER_STATE = "its state does not fit the new query"
    SAME_QUERY = "its query does not change, so that a fork would be a copy of what serves"
    UPSERTS = "it does more than append rows"
    DELETED_KEYS = "the keys that its table remembers as deleted would not come along, and late rows bring them back"
    COMMITS_UNKNOWN = "its table is upserted by a key, and its log does not tell which commits belong to a batch"
    ROWS_BEFORE = "its pointer serves rows from before its first, and they would have to move along"
    NO_RECORD_OF_BATCHES = "it writes a topic, which has no record of the batches that are in it"
    TOPIC_NOT_FORKED = "it writes a topic, and there are no rows to copy; carry_over continues after the old version"
    SEVERAL_STREAMS = "it streams more than one table, or names its source"
    OWN_CHANGE = "its own statement changes"

    # About the statement's inputs.
    REBUILD_ASKED = "a rebuild was requested"
    PARENT_RECREATED = "its offsets are meaningless in an upstream table that is re-created"
    PARENT_AT_OTHER_VERSION = "its offsets are meaningless in another version of an upstream table"
    PARENT_REWRITTEN = "its state would double-count rows that an upstream table writes again"
    STATE_LACKS_COLUMNS = "its state would hold columns that its checkpoint does not have"
    STATE_LACKS_TYPE = "its state may hold a different type than its checkpoint"
    SET_REBUILT = "its statement set is rebuilt with it"
    OFFSETS_MEANINGLESS = "current offsets are meaningless in {parents}, which is re-created"
    PARENTS_CHANGE = "its upstream tables change"
    FORMAT_CHANGES = "its format changes from {before} to {after}"
    NO_PARENT_RECREATED = "none of its upstream tables is re-created"

    # About the start position.
    STATE_BEFORE_FIRST_BATCH = "it keeps state, and a batch that only marks {sources} as read would leave no state"
    SEQUENCE_FORGOTTEN = (
        "a late row could replace a newer one of its key: the new version does not know the {sequence} of earlier rows"
    )
    SEQUENCE_AND_DELETES_FORGOTTEN = (
        "a late row could replace a newer one of its key or bring a deleted key back: the new version does not know "
        "the {sequence} of earlier rows"
    )
    NO_START_POSITION = "it needs a time or a partition: partial@2026-01-02T03:04Z"
    NEEDS_POSITION = "it needs a position: seeded@now"
    VERSION_IS_PARTIAL = "a version is a start position of partial, not of seeded: partial@{at}"
    TIME_IS_PARTIAL = "it streams a table with a log, in which a time of commits is found: partial@{at}"
    NO_START_AT = "it cannot start at {at}"
    NO_EVENT_TIME = "its event time is unknown: it has no watermark, no window and not exactly one timestamp column"
    NO_EVENT_TIME_BUT_COMMITS = "{why}; partial@{committed} uses the time of commits instead"
    NO_SUCH_START_POSITION = "{at} is neither a time, a partition nor a version"
    NOT_PARTITIONED_BY = "none of the tables that it streams is partitioned by {column}"
    NO_VERSIONS = "{table} has no versions to start at: its format is {format}"
    TIME_OF_FILES = "{table} has no log: seeded@{at} starts with the files written since then, if no stream has one"
    TIME_OF_TOPICS = "{table} is in topics: seeded@{at} starts at the messages of that time, if all streams are"
    SEVERAL_VERSIONS = "a version belongs to one table, but it streams {tables}: use partial@{committed}TIME"
    VERSIONS_BESIDE_TABLES = (
        "{parents} {parents:gets/get} a new version in this plan, and other tables that it streams do not: no start "
        "position applies to both"
    )
    LOGS_BESIDE_FILES = (
        "{logs} {logs:has/have} a log and {others} {others:has/have} none: no start position applies to both"
    )
    NOT_A_TIME = "{at} is not a time: {committed}2026-01-02T03:04Z"
    TEXT_SAYS = "its own text sets {option}"
    LOG_OF_NEW_VERSION = "versions and commit times of {parents} are meaningless in a new version of it"
    LOG_ENDS = "the newest version of {table} is {version}; seeded@now starts with rows that arrive from now on"
    VERSION_GONE = "version {version} of {table} is missing: its log begins with version {first}"
    VERSIONS_GONE = "versions {version} to {last} of {table} are missing: its log begins with version {first}"
    NO_COMMIT_SINCE = (
        "nothing was committed to {table} since {time}; seeded@now starts with rows that arrive from now on"
    )
    COMMITS_GONE = "earlier commits to {table} are missing: its log begins with version {first} of {time}"

    # About the readers of a chained table.
    CHAIN_NEEDS_STORAGE = "chain applies only when the format, partitioning or location of its table changes"
    CHAIN_COLUMNS = "its columns change as well, and one pointer serves old and new rows"
    READER_LEFT_BEHIND = "{reader} would be left behind on a version that receives no more rows"
    READER_LACKS_ROWS = "{reader} reads it as a static side, which would lack the old rows"
    READER_CANNOT_MOVE = "{reader} streams it and could not go on in the new version: {why}"

    # About a rewrite in place by key.
    NOT_UPSERTED = "its table is not upserted by a key"
    KEY_CHANGES = "its primary key changes"
    COLUMNS_CHANGE = "its columns change as well: deploy them first, by a plan of their own"
    STORED_DIFFERENTLY = "its table is stored differently"
    NOT_COMPATIBLE = "it is not tagged {tag}, which declares that its rows may be written again while they are read"
    READER_NOT_TOLERANT = "{reader} is not tagged {tag}, which declares that it accepts repeated rows in any order"
    UPSTREAM_RECREATED = "an upstream table is re-created"
    STREAMS_DELETES = "it streams {parent}, which does not repeat its deletions"
    SEQUENCE_CHANGES = "its sequence changes, and an existing row might hide every newer one"
    NO_SEQUENCE = "it has no sequence, and a batch of a full re-read has several rows per key"
    READS_OTHER_TABLES = "it reads other tables, whose rows need not be newer"
    KEY_UNCERTAIN = "its edit does not show whether {columns} keep their values"
    KEY_COMPUTED_DIFFERENTLY = "{columns} would be computed differently, and old rows would stay beside new ones"


class StrategyNote(FactKind):
    """A note for the operator who has to choose a strategy."""

    SEES_BOTH = "{rows}; until it has caught up, readers see old and new rows in any order"
    SAME_AS_OLD = "rows, positions and state are those of the old version, which is kept as a fallback"
    CLONES_OLD = (
        "rows, positions and state are those of the old version, which is kept as a fallback; the new table is a "
        "clone: files of the old one stay as long as it exists"
    )
    NO_ROWS_BEFORE = "has no rows from before the start"
    UNION_OF_BOTH = "the pointer becomes the union of both versions"
    FROM_COMMON_BATCH = (
        "from the batch at which the new upstream version had read what the old one had, if there is one"
    )
    MIXED = "old rows and old state keep their old meaning and are mixed with new ones"
    OPEN_WINDOWS = "windows that are open at that point lack their earlier rows"
    BY_TIME = "by {columns}"
    BY_TIME_WITH_STATE = "by {columns}; what its state would hold from before is missing"
    BY_WINDOW = "by {columns}, aligned to the start of a window"
    BY_SLIDING_WINDOW = (
        "by {columns}, aligned to the start of a window; windows that began before and end after it lack their earlier "
        "rows"
    )
    BY_PARTITION = "by partition: {columns}"
    BY_COMMIT = "by version, or by the time of commits"
    BY_COMMIT_WITH_STATE = "by version, or by the time of commits; what its state would hold from before is missing"


Refusal = Fact[FactKind]
"""A `StrategyRefusal`, or a `CheckpointRefusal`: why a changed statement cannot restart from its checkpoint."""
