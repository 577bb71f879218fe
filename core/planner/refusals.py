"""Why a strategy cannot be had for a table, or why a statement cannot begin at a place: closed kinds."""

from core.text.sentence import Fact, FactKind


class StrategyRefusal(FactKind):
    """Why a strategy cannot be had."""

    NOT_HERE = "it does not apply to this change"
    NO_STATEMENT = "it has no statement"
    NOT_STARTED = "the plan does not start it"
    CHANGE_UNKNOWN = "what changed is unknown"
    UNPROVEN = "{evidence}"
    """What makes the change one of which nothing is known."""
    LOST = "{what}"
    """What the agent recorded of its checkpoint."""

    # What the statement is.
    KEEPS_STATE = "it keeps state"
    NO_STATE = "it keeps no state that could be taken along"
    OTHER_STATE = "its state does not fit the new query"
    SAME_QUERY = "its query does not change, so that a fork would be a copy of what serves"
    UPSERTS = "it does more than append rows"
    DELETED_KEYS = "the keys that its table remembers as deleted would not come along, and late rows bring them back"
    COMMITS_UNKNOWN = "its table is upserted by a key, and its log does not tell which commits belong to a batch"
    ROWS_BEFORE = "its pointer serves rows from before its first, and they would have to move along"
    SEVERAL_STREAMS = "it streams more than one table, or names its source"
    OWN_CHANGE = "its own statement changes"

    # What it reads.
    REBUILD_ASKED = "a rebuild was requested"
    PARENT_RECREATED = "its offsets are meaningless in an upstream table that is re-created"
    PARENT_AT_OTHER_VERSION = "its offsets are meaningless in another version of an upstream table"
    PARENT_REWRITTEN = "its state would double-count rows that an upstream table writes again"
    STATE_LACKS_COLUMNS = "its state would hold columns that its checkpoint has not"
    STATE_LACKS_TYPE = "its state may hold another type than its checkpoint has"
    SET_REBUILT = "its statement set is rebuilt with it"
    OFFSETS_MEANINGLESS = "current offsets are meaningless in {parents}, which is re-created"
    PARENTS_CHANGE = "its upstream tables change"
    FORMAT_CHANGES = "its format changes from {before} to {after}"
    NO_PARENT_RECREATED = "none of its upstream tables is re-created"

    # Where it would begin.
    STATE_BEFORE_FIRST_BATCH = "it keeps state, and a batch that has read {sources} would have kept none"
    SEQUENCE_FORGOTTEN = (
        "an older row that comes late would stand for its key: it does not know the {sequence} of rows from before"
    )
    SEQUENCE_AND_DELETES_FORGOTTEN = (
        "an older row that comes late would stand for its key and bring a deleted key back: it does not know the "
        "{sequence} of rows from before"
    )
    NO_PLACE = "it needs a time or a partition: partial@2026-01-02T03:04Z"
    NEEDS_POSITION = "it needs a position: seeded@now"
    VERSION_IS_PARTIAL = "a version is a place to begin at, not what is there now: partial@{at}"
    NO_START_AT = "it cannot start at {at}"
    NO_EVENT_TIME = "its event time is unknown: it has no watermark, no window and not exactly one timestamp column"
    NO_EVENT_TIME_BUT_COMMITS = "{why}; partial@{committed} goes by when rows were committed"
    NO_SUCH_PLACE = "{at} is neither a time, a partition nor a version"
    NOT_PARTITIONED_BY = "none of the tables that it streams is partitioned by {column}"
    NO_VERSIONS = "{table} has no versions to begin at: its format is {format}"
    SEVERAL_VERSIONS = "a version is one table's, and it streams {tables}: use partial@{committed}TIME"
    NOT_A_TIME = "{at} is not a time: {committed}2026-01-02T03:04Z"
    TEXT_SAYS = "its own text says {option}"
    LOG_OF_NEW_VERSION = "what the log of {parents} says is meaningless in a new version of it"
    LOG_ENDS = "{table} ends with version {version}; seeded@now begins with what comes"
    VERSION_GONE = "version {version} of {table} is missing: its log begins with version {first}"
    VERSIONS_GONE = "versions {version} to {last} of {table} are missing: its log begins with version {first}"
    NO_COMMIT_SINCE = "nothing of {table} was committed since {time}; seeded@now begins with what comes"
    COMMITS_GONE = "what was committed to {table} before is missing: its log begins with version {first} of {time}"

    # What reads it, by chain.
    CHAIN_NEEDS_STORAGE = "chain applies only when the format, partitioning or location of its table changes"
    CHAIN_COLUMNS = "its columns change as well, and one pointer serves old and new rows"
    READER_LEFT_BEHIND = "{reader} would be left behind on a version that receives no more rows"
    READER_LACKS_ROWS = "{reader} reads it as a static side, which would lack the old rows"
    READER_CANNOT_MOVE = "{reader} streams it and could not go on in the new version: {why}"

    # Written again in place, by its key.
    NOT_UPSERTED = "its table is not upserted by a key"
    KEY_CHANGES = "its primary key changes"
    COLUMNS_CHANGE = "its columns change as well: deploy them first, by a plan of their own"
    STORED_DIFFERENTLY = "its table is stored differently"
    NOT_COMPATIBLE = (
        "its tags do not include {tag}, by which its yml says that its rows may all be written again, and change "
        "beneath whoever reads them"
    )
    READER_NOT_TOLERANT = (
        "the tags of {reader} do not include {tag}, by which its yml says that it takes rows that come again, in any "
        "order"
    )
    UPSTREAM_RECREATED = "an upstream table is re-created"
    STREAMS_DELETES = "it streams {parent}, and what was deleted there is not told again"
    SEQUENCE_CHANGES = "its sequence changes, and a row of before might hide every newer one"
    NO_SEQUENCE = "it has no sequence: of all that is read again, a batch has several rows of a key"
    READS_OTHER_TABLES = "it reads other tables, and nothing says that their rows are newer"
    KEY_UNCERTAIN = "its edit does not show whether {columns} stay as they are"
    KEY_COMPUTED_DIFFERENTLY = "{columns} would be computed differently, and old rows would stay beside new ones"


class StrategyNote(FactKind):
    """What to know about a strategy before it is chosen."""

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
"""A `StrategyRefusal`, or what a change of the statement itself rules out (`core.changes.kinds.CheckpointRefusal`)."""
