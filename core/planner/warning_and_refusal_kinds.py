"""The closed lists of a plan's warnings, refusals and guard findings, with their sentences and remedies."""

from core.text.sentence import FactKind


class PlanWarningKind(FactKind):
    """A warning for the reviewer of a plan; its text follows `table: ` and may contain the table as `{table}`."""

    # About the table's change and its state.
    NOT_CONFIRMED = "{evidence}"
    """The placeholder is filled with the difference between Spark's analysis and Headgate's."""
    CHANGE_UNKNOWN = "{evidence}"
    """The placeholder is filled with the evidence that leaves the change unknown, so that the table is rebuilt."""
    CONFIGURATION_PINNED = "{evidence}; a rebuild would apply it"
    STAYS_STOPPED = "was stopped on purpose and stays stopped; name it to start it"
    STARTS_STOPPED = "was stopped on purpose; this plan starts it"
    REBUILT_BESIDE = "is {state}; it is rebuilt beside the existing version, and no data is deleted"
    POOL_CHECKED = (
        "is {state}; it resumes from its checkpoint, but only if the pool shows that it is not running there; no data "
        "is deleted"
    )
    RESUMES = "is {state}; it resumes from its checkpoint, and no data is deleted"
    CANNOT_RESTART = "is running, but {why}: it could not be restarted"
    EXTERNAL_CHANGED = "is external and has changed ({edits}); its registration stays as it is"
    WINDOWS_STAY_CLOSED = "windows that its old watermark closed stay closed, and rows that arrive for them are dropped"
    ROWS_STAY_MISSING = "still lacks the rows that were skipped when it was started: it streams only {where}"
    CLONED = "starts as a clone of {base}: files of {base} hold its rows and must be kept as long as the clone exists"
    SEAM = (
        "keeps the rows made from the old upstream version and adds rows made from the new one, starting at a batch "
        "at which both versions have read the same input; it waits for such a batch, and fails if there is none"
    )
    REWRITTEN_IN_PLACE = "is rewritten in place: {rows}; a rebuild would not produce them"
    MEANINGS_MIXED = "keeps the rows and state that the old text produced, and adds those of the new text to them"
    OLD_STATIC_SIDE = "keeps state that was built from the old static side"
    ADDS_ROWS = "adds rows: {edit}; {cause}"
    MAY_MULTIPLY_ROWS = "may multiply rows: {edit}; {cause}"

    # About the topic that the statement writes.
    DELIVERS = "{delivery}"
    """The placeholder is filled with a `Delivery`, the guarantee for the messages of the statement."""
    WRITTEN_AGAIN = (
        "writes all messages to topic {topic} again: those of v{version} stay there, v{version} also writes until the "
        "swap, no rows are compared, and a rollback is not possible"
    )
    WRITTEN_ELSEWHERE = (
        "writes all messages to topic {topic}: those of v{version} stay in the topic that it wrote until the swap, no "
        "rows are compared, and a rollback is not possible"
    )
    WRITTEN_BY_BOTH = (
        "writes topic {topic} from its start on, and v{version} does so until the swap: messages in between are there "
        "twice, and a rollback is not possible"
    )
    WRITTEN_TOGETHER = (
        "{others} {others:writes/write} topic {topic} as well: readers cannot deduplicate by `key` across statements"
    )
    TOPIC_STAYS = "topic {topic} and its messages stay: Headgate deletes no topics"
    TOPIC_NOT_HELD = "cannot be held: readers of its topic see each message at once"

    # About what the statement reads.
    READS_OLD = "keeps reading the old {version}"
    LACKS_EARLIER_ROWS = (
        "gets only rows of the newest version of {parent}: earlier rows are served by its pointer alone; "
        "headgate plan {parent} --rebuild puts all rows into one version"
    )
    TOPICS_START_LATER = "does not read {parent} from its earliest message: its OPTIONS set {option} = {value}"
    SKIPS_LOST = "skips messages of {parent} that are deleted unread: its OPTIONS set failOnDataLoss = false"
    POSITION_EXPIRES = "its position stays readable for {left}: {advice}"
    POSITION_LOST = "cannot continue from its position: {bound}; headgate plan {table} --rebuild reads what is left"
    BEGINS_BEFORE_RETENTION = "lacks the messages of {parent} from before: Kafka deletes them after {kept_s:duration}"
    OPTIONS_LATER = "gives its new OPTIONS and columns to a running reader when that is restarted: {readers}"
    CHANGES_FROM_SLOT = (
        "reads the changes in {source} from where its replication slot is: rows that changed earlier are missing"
    )
    CHANGES_FROM_ROWS = (
        "begins with the rows that {source} has then, in one batch of any size; earlier changes of them are missing"
    )
    ROWS_TWICE = "{risk}; {remedy}"
    """The placeholders are filled with a `ChangesRisk` and its remedy."""
    READS_CHANGES = "reads the changes of {parent}, which replaces rows by key"
    READS_FIRST_ROWS = "reads only the first row of each key of {parent}, which replaces rows by key"
    READS_DELETED = "reads {versions}, which no longer {versions:exists/exist}: it gets no rows until it is rebuilt"
    READS_STOPPED = "reads {parent}, which is {state}: it gets no new rows until {parent} runs"
    PARENT_EXCLUDED = "gets no rows from {parent}, which is excluded and {state}"
    WILL_NOT_SEE_NEW = "will not see the new {parent}: {between} between them {between:stays/stay} on {old}"
    READS_NEW_AND_OLD = "reads the new {parent}, and the old one through {between}, which {between:stays/stay} on {old}"
    SEES_NEW_AND_OLD = (
        "sees the new {parent} through {by}, and the old one through {between}, which {between:stays/stay} on {old}"
    )
    MORE_OLD_INPUTS = "gets old rows of {parents:more table} in the same way"

    # About the table's readers.
    AGGREGATES_ACROSS = "keeps its state, so its aggregates mix rows from before and after {parent} takes its new text"
    STAR_WRITES = "selects * and will write the new column of {parent} after its next restart"
    STAR_WRITES_NULL = (
        "selects * from {parent}, which drops {column}: it writes NULL there once it reads the new version"
    )
    STOPS_FOR_CHANGE = (
        "is not part of this plan, but {end}: it is stopped during the change, and resumes with its own text"
    )
    OUTSIDE_STREAMS_END_AT_COLUMN = (
        "Spark ends queries outside of Headgate that stream {table} when it gets a column; "
        "restart them there: {readers}"
    )
    OUTSIDE_STREAMS_END_AT_TYPE = (
        "Spark ends queries outside of Headgate that stream {table} when a column takes a wider type; "
        "restart them there: {readers}"
    )
    VALUE_MAY_END_IT = (
        "writes {source}, which becomes {type}, into its column {column} {narrower}: a value that does not fit there "
        "would end it"
    )
    COMPATIBILITY_LOWERED = (
        "lowers its compatibility from {before} to {mode}; {before} would have refused this plan, because {table} "
        "{conflict}"
    )
    EXCLUDED_STAYS = "is excluded and stays on the old version of {parent}"
    UNDECLARED_STAYS = "is no longer declared and stays on the old version of {parent}"

    # About the table's older versions.
    OLD_VERSION_RUNS = "v{version} keeps running: {readers} {readers:reads/read} it"
    OLD_VERSION_RESTS = "v{version} stays {state} and gets no new rows: {readers} {readers:reads/read} it"
    OUTSIDE_READERS_KEEP = "v{version} keeps running: tables outside of this release read it"
    STOPS_AFTER = "v{version} stops only after {reader}, which was replaced and still reads it"
    READ_BY_DELETED = "v{version} stops: only deleted tables read it"
    ORPHAN_KEPT = "v{version} is an orphan version and is kept: {readers} {readers:reads/read} it"
    ORPHAN_TRASHED = "v{version} is an orphan version; it is stopped and moved to the trash"
    ROWS_IN_OLD_VERSION = "rows that v{version} wrote stay in {name}: headgate peek {table} --version {version}"
    LATER_VERSIONS_GONE = (
        "{gone} served later, but no files are left; v{version} has none of those rows, and continues after its own "
        "last batch"
    )
    DELETED_AS_WELL = (
        "{versions} {versions:is/are} deleted as well but {versions:does/do} not serve: an undelete restores only the "
        "serving version"
    )
    NO_ROLLBACK_LEFT = "a rollback to the retired versions is no longer possible"
    EARLIER_ROWS_RETIRED = "v{version} starts {where}: only the retired versions hold earlier rows"
    ROLLBACK_OF_READER_LOST = "{reader} can no longer be rolled back to v{version}, which reads {name}"

    # About a delete.
    EXTERNAL_STAYS = "is external and is not deleted"
    STAYS_FOR_READERS = "stays: {readers} {readers:reads/read} it"
    STAYS_WITH_SET = "stays: it belongs to one statement set with {tables}"
    SLOT_LEFT = (
        "cannot continue after an undelete: the replication slot of {source} does not wait for it, and is dropped with "
        "its last reader"
    )
    SLOT_WENT_ON = (
        "cannot continue if changes of {source} are gone, because the replication slot did not wait for it; then only "
        "its rows are back, and headgate plan {table} --rebuild --from earliest makes it anew"
    )
    READ_BY_OVERLAY = "{overlay} reads {version}, and its statements will fail: it overlays this environment"
    STOPPED_UNDER_OVERLAY = (
        "{overlay} reads {version} and gets no more rows once that is replaced: it overlays this environment"
    )
    VACUUMED_UNDER_OVERLAY = (
        "{overlay} reads {version}: the step fails while its statements still need what this deletes; it overlays this "
        "environment"
    )
    WOULD_NOT_RESUME = "is {state} and reads {parent}: it could not resume from its checkpoint"

    # About the request.
    NAMED_AND_EXCLUDED = "is both named and excluded; it is left out"
    EXCLUDED_FOR_NOTHING = "is excluded, but nothing in the request involves it"
    UNDECLARED_SINCE = "was declared at {since} and no longer is; to delete it: headgate plan delete {table}"
    UNDECLARED_NOT_DEPLOYED = "was declared at {since} and no longer is; it is not deployed"
    SETTINGS_CHANGED = (
        "the {part} of {environment} changed since {since}: {keys}; no plan applies that: "
        "restart the agent (headgate down, headgate up)"
    )
    POLICY_CHANGED = (
        "the policy of {environment} changed since {since}: {keys}; no plan applies that: "
        "record it (headgate policy apply)"
    )
    PLANNED_WITH_OLD_TEXTS = (
        "this plan uses the texts from before plan {plan}: where the files hold other texts, the next deploy brings "
        "these back"
    )
    PROMOTED = (
        "this plan uses the revisions that run in {source}: the next deploy of files that hold other texts replaces "
        "them"
    )
    POOL_NOT_HERE = "names the pool {pool}, but {environment} has only one, {only}, in which it runs"
    CORDONS = (
        "applying this plan cordons {pool}: it takes no new statements, and none back by an undo, until headgate pool "
        "uncordon {pool}"
    )
    FILES_NAME_POOL = (
        "the yml of {tables:few} must name the new {tables:pool/pools} before {tables:its/their} next plan, which is "
        "denied otherwise while {pool} is cordoned"
    )
    STATED_GONE = (
        "whoever applies this plan states that nothing runs in {pool} any more: if a query goes on there, two queries "
        "write one table, and rows are lost or doubled"
    )
    MANAGER_SAYS = (
        "{word}, but that is no proof that nothing runs in {pool}: a server can outlive its application for a moment"
    )
    NOBODY_VOUCHES = "nobody but whoever applies this plan vouches for {pool}: {why}"
    STAY_IN_POOL = (
        "{tables:few} {tables:does/do} not run and {tables:stays/stay} in {pool}, where nothing can be started while "
        "that is cordoned"
    )
    FILES_DIFFER = "the files of {tables} hold other texts: the next deploy brings them back"
    ENVIRONMENT_CHANGED = (
        "its environment changed ({change}), but it is not part of the request: it stays on its deployed revision"
    )
    CHANGED_ON_DISK = "changed on disk but is not part of the request: it stays on its deployed revision"
    STRATEGY_BEFORE_FROM = "--strategy {choice} takes precedence over --from {start}"
    NOT_SINCE = "does not start with what has arrived since {at}, but at the default position: {why}"
    """The reason is a `StrategyRefusal`."""
    CANNOT_BE_HELD = "cannot be held: it is rewritten in place, and its readers see each row at once"
    NOT_EXECUTABLE = "{what} cannot be executed yet: it can only be planned, and agents refuse it"

    # About the run.
    HELD = "before the swap, the run waits for headgate release swap RUN; the ETA does not include that wait"
    SOAKS = (
        "replaced versions keep running for {minutes} min beside the new ones; a rollback takes seconds during that "
        "time"
    )
    VACUUMED = (
        "versions older than {hours} h can no longer be read; the step fails while a statement still needs one of them"
    )
    VACUUMED_BY_TABLE = (
        "versions older than its retention can no longer be read; the step fails while a statement still needs one of "
        "them"
    )
    SMALL_FILES_STAY = "the small files stay next to the large ones until headgate vacuum {table}"
    PAUSES = "its statement pauses meanwhile, because a MERGE fails on files that are being rewritten"


class KnownReaders(FactKind):
    """The known readers of some versions of a table; the sentence follows the names of the versions."""

    READ_BY = "read by {readers}"
    UNREAD = "which no known reader reads"


class CompatibilitySource(FactKind):
    """Where the compatibility mode of a table is set."""

    TABLE = "its yml sets"
    PRODUCT = "for product {product}, headgate.yml sets"
    PROJECT = "for all tables, headgate.yml sets"


class JoinCause(FactKind):
    """A reason why an edited statement may produce more rows per input row."""

    KEY_NOT_EQUATED = "it does not equate the key of {joined}, {keys:or}"
    NOTHING_EQUATED = "each row of {joined} that meets it makes a row"
    NO_KEY_DECLARED = "as many as {joined} has rows for each {columns}, and no key of {joined} is declared"
    OF_EDIT = "{outcome}"
    """The placeholder is filled with the result of comparing the old and the new SQL."""


class PlanRefusalKind(FactKind):
    """A reason why a request cannot be planned, as a full sentence and a remedy.

    `{table}` stands for the table, or other name, that the refusal is about.
    """

    # About the request.
    UNKNOWN_NAME = "there is no {noun} {table}", "see the {noun}s with `headgate ls`"
    MISSPELLED_NAME = "there is no {noun} {table}", "{suggestion}"
    EMPTY_LAYER = "there is no table of layer {table}", "layers with tables: {layers}"
    EMPTY_FOLDER = "there is no table in {table}", "name a folder below pipelines/ that contains tables"
    NAMES_NO_TABLES = "the request names no tables", "name tables, a product, or everything"
    BY_NAME_ONLY = "{verb} takes tables by name", "name only tables"
    RETAIN_WITHOUT_VACUUM = "--retain is only for a vacuum", "leave it out"
    OPTION_OF_DEPLOY = "{option} does not apply to {verb}", "leave it out"
    PIPELINE_WITHOUT_DELETE = (
        "--pipeline is only for a delete", "deploy its sink: headgate plan {sinks:typed} starts what it needs",
    )  # fmt: skip
    REBUILD_AND_KEEP_TABLE = (
        "a rebuild creates a new table, but --keep-table keeps the existing one",
        "give either --rebuild or --keep-table",
    )
    SET_HALF_EXCLUDED = "{table} belongs to one statement set with {other}", "exclude both or neither"

    # About a promotion.
    SOURCE_IS_TARGET = "{table} cannot be promoted into itself", "name two environments: --from E --to F"
    NOT_IN_SOURCE = "{table} does not run in {source}", "leave it out, or deploy it there first"
    SOURCE_MOVED = (
        "{source} now runs revision {now} of {table}, and this promotion is of {asked}",
        "promote again: headgate promote {table} --from {source} --to {environment}",
    )
    NOT_THE_PROMOTED_TEXT = (
        "the submitted texts of {table} are revision {now}, and this promotion is of {asked}",
        "promote again: headgate promote {table} --from {source} --to {environment}",
    )
    PARENTS_DIFFER = (
        "{table} runs in {source} with other parents than {environment} has: {parents:;}",
        "promote them in the same plan: --with-parents",
    )
    READS_OLD_IN_SOURCE = (
        "{table} reads an older revision of {parents:and} in {source} than is promoted with it",
        "deploy it in {source} first: headgate plan {table} --env {source}",
    )
    NOT_PROMOTED = (
        "this plan would deploy {table}, which is not promoted", "promote it too, or leave it out: --exclude {table}",
    )  # fmt: skip

    # About tables that do not take part.
    NOT_DECLARED = "{table} is deployed but no longer declared", "restore its files, or delete it"
    NOT_DEPLOYED = "{table} is not deployed", "leave it out"
    NOT_STARTED = "{table} is not deployed", "start it: headgate plan {table}"
    IN_TRASH = "{table} is not deployed", "start it: headgate undelete {table}"
    NOTHING_TO_DELETE = "{table} is not deployed; there is nothing to delete", "leave it out"
    TOPIC_NOT_ROLLED_BACK = (
        "{table} writes a topic, and messages cannot be taken back", "plan its old text: headgate plan undo PLAN",
    )  # fmt: skip
    TOPIC_OR_TABLE = (
        "{table} changes from {before} to {after}: a topic has no pointer that could lead to the new version",
        "declare it under a new name, and delete {table}",
    )
    EXTERNAL = "{table} is external: others write it", "leave it out"
    EXTERNAL_NOT_DELETED = "{table} is external: Headgate does not delete it", "leave it out"
    EXTERNAL_CHANGED = (
        "{table} is external and changed: {edits}", "declare it under a new name and move its readers there",
    )  # fmt: skip
    WAS_EXTERNAL = (
        "{table} is registered as external, and has a statement now: its name leads to a table that others write",
        "declare it under a new name and move its readers there",
    )
    BOUND_VERSION_LACKS = (
        "{table} reads {columns} of {parent}, but the plan binds it to {version}, which lacks {columns}",
        "plan both: headgate plan {parent} {table}",
    )
    EXTERNAL_LOSES_COLUMN = (
        "{table} is external: only its writer can change it",
        "declare it under a new name and move its readers there",
    )
    STILL_DEPLOYED = "{table} is deployed", "leave it out: undelete restores only deleted tables"
    NOT_IN_TRASH = "the trash holds no version of {table} that served", "start it anew: headgate plan {table}"
    NO_EARLIER_VERSION = "{table} has no earlier version that served", "{way}"
    NOTHING_REPLACED = "{table} has no replaced version to retire", "see its versions: headgate show {table}"
    NO_MAINTENANCE = (
        "{table} is {format}, and maintenance is not supported for that format",
        "leave it out; only tables on Delta support maintenance",
    )
    RETAINS_LONGER = (
        "{table} retains files of older versions for {kept_h} h, which is longer than {asked_h} h",
        "retain {kept_h} h or more, or change {property} of the table",
    )

    # About checkpoints and inputs.
    CANNOT_RESUME = "{table} cannot be started: {why}", "rebuild it: headgate plan {table} --rebuild"
    READS_DELETED = (
        "{table} cannot be started: it reads {versions}, which {versions:was/were} deleted",
        "rebuild it: headgate plan {table} --rebuild",
    )
    PARENT_UNKNOWN = "{table} reads {parent}, which is neither declared nor deployed", "declare {parent}"
    NOTHING_TO_READ = (
        "{table} has nothing to read: {parent} is excluded and not deployed",
        "include {parent}, or exclude {table} too",
    )
    FORMER_CHECKPOINT_LOST = (
        "{name} cannot resume: its checkpoint or a table that it needs is missing, or belongs to something else",
        "{way}",
    )
    FORMER_INPUTS_STOPPED = "{name} reads {versions:and}, which no longer {versions:gets/get} rows", "{way}"

    # About the table's readers.
    COLUMN_IS_READ = (
        "{table} loses column {column}, which {reader} reads at {place}",
        "change these lines of {reader} in the same plan, or keep {column}",
    )
    STAR_LACKS_COLUMNS = (
        "{reader} selects * from {table}, but its own table has no column {columns}: every batch would fail",
        "add {columns} to the DDL of {reader} in the same plan, or list its columns instead of *",
    )
    STAR_INCOMPATIBLE = (
        "{reader} selects * from {table}, but its own table has no {columns}: every batch over the new version would "
        "fail; {source} compatibility: {mode}",
        "add {columns} to the DDL of {reader} in the same plan, or list its columns instead of *",
    )
    INCOMPATIBLE = (
        "{table} {conflict} ({place}): this is not {direction} compatible with {versions}, {read_by}; "
        "{source} compatibility: {mode}",
        "undo this edit, or declare the table under a new name; only compatibility: none allows every edit",
    )
    STATE_HOLDS_OLD_TYPE = "{reader} {use}", "include {reader} in the plan, which rebuilds it: --children all"
    FILES_OF_TWO_TYPES = (
        "{reader} writes {source}, which becomes {type}, into its column {column} {narrower}: its files would have two "
        "types and could not be read together",
        "declare it as {type} in the same plan, or cast to {narrower} in its SQL",
    )
    VALUES_ROUNDED = (
        "{reader} writes {source}, which becomes {type}, into its column {column} {narrower}: Spark would silently "
        "round the values",
        "declare it as {type} in the same plan, or cast to {narrower} in its SQL",
    )
    POINTER_SERVES_EARLIER_ROWS = (
        "{table} cannot be altered in place: its pointer serves rows from before v{version} as well",
        "rebuild it: headgate plan {table} --rebuild",
    )
    READ_BY = "{table} is read by {readers}", "delete them together: headgate plan delete {together:typed}"
    READ_BY_REPLACED = (
        "{table} is read by {reader}, which was replaced and is kept running",
        "plan again once it has stopped: headgate show {other}",
    )
    SERVED_BY_POINTER = (
        "the pointer {other} serves {version} of {table}",
        "delete them together: headgate plan delete {table} {other}",
    )
    SET_HALF_DELETED = (
        "{table} belongs to one statement set with {tables}", "delete the set: headgate plan delete {together:typed}",
    )  # fmt: skip
    RETIRED_IS_READ = "{name} is read by {named}", "move it to the serving version: headgate plan {reader}"
    RETIRED_IS_READ_BY_VERSION = "{name} is read by {reader}, which is kept running", "retire {other} as well"
    TICKET_OPEN = "{reader} has an open ticket on {name}", "once it has moved: headgate release close {run} {quoted}"
    CLONE_NEEDS_FILES = (
        "{clone} is a clone of {base}, whose files hold its rows",
        "first rebuild it into files of its own: headgate plan {table} --rebuild",
    )

    # About choices of the operator.
    STRATEGY_FOR_UNTOUCHED = (
        "a strategy is chosen for {table}, which this plan does not touch", "leave out this --strategy",
    )  # fmt: skip
    STRATEGY_NOT_ALLOWED = "{strategy} cannot be used for {table}: {why}", "use {allowed}"
    NO_STRATEGY_ALLOWED = "{strategy} cannot be used for {table}: {why}", "leave out this --strategy"
    CANNOT_BE_HELD = (
        "{table} cannot be held: it is rewritten in place, and its readers see each row at once",
        "leave out --hold, or rebuild it: --strategy {table}=earliest",
    )
    TOPIC_NOT_HELD = "{table} cannot be held: readers of its topic see each message at once", "leave out --hold"
    CANNOT_KEEP_TABLE = "{table} cannot keep its table: {why}", "leave out --keep-table"
    NO_TABLE_TO_KEEP = "{table} has no table to keep: it would be created", "leave out --keep-table"
    KEEP_TABLE_ADDS_COLUMNS = "{table} cannot keep its table: columns are added", "leave out --keep-table"
    KEEP_TABLE_WIDENS_COLUMNS = "{table} cannot keep its table: columns take a wider type", "leave out --keep-table"


class ParentDifference(FactKind):
    """How a parent differs between the source of a promotion and the environment that it is promoted into."""

    ABSENT = "{parent} is not deployed"
    OLDER = "{parent} has the older revision {now} instead of {tested}"
    OTHER = "{parent} has revision {now} instead of {tested}"


class WayForward(FactKind):
    """A suggested remedy for a table without a former version that can resume."""

    OLD_TEXT = "plan its old text as a new version: headgate plan undo PLAN"
    ANEW = "start it anew: headgate plan {table}"
    DELETE = "edit its text and plan it, or delete it: headgate plan delete {table}"
    UNDELETE = "headgate undelete {tables:typed}"


class GuardFinding(FactKind):
    """A finding of a guard, with a remedy if the guard denies the plan or a policy can spare the approval.

    Amounts, limits and reasons for an approval are findings that occur only inside the sentences of other findings.
    """

    CHECKPOINTS_NEW = "every new checkpoint has a new table"
    CHECKPOINT_ON_OLD_TABLE = (
        "a new checkpoint on an existing table would {harm:or}: {tables}", "rebuild it into a new table: --rebuild",
    )  # fmt: skip
    STREAMS_READ_TABLES = "every stream reads a table, not a view"
    STREAM_READS_POINTER = (
        "a pointer cannot be streamed: {reads}", "deploy the tables that are read in the same plan",
    )  # fmt: skip
    NOTHING_READ_IS_DROPPED = "no table is dropped while it is read"
    DROPPED_WHILE_READ = (
        "tables would be dropped while they are still read: {readers}",
        "delete the readers as well: headgate plan delete {readers:typed} …",
    )
    RATES_HARMLESS = "no statement with a rate limit below a watermark is rebuilt"
    RATES_MAY_DROP_ROWS = "a rate limit below a watermark drops rows if the backlog is large: {tables}"
    RATES_DROP_ROWS = (
        "with a rate limit below a watermark, a replay drops historical rows: {tables}",
        "remove the limit from the SQL, rebuild, and restore it with a later plan",
    )
    PROTECTED_IN_PLACE = (
        "{tables} would be changed in place but {tables:is/are} protected",
        "choose no strategy: by default the plan rebuilds beside the old version",
    )

    TOPICS_EXIST = "every topic that a started statement reads or writes exists"
    TOPICS_MISSING = "{missing:;}", "create it, for Headgate creates no topics: {commands:;}"
    WRITTEN_TOPIC_MISSING = "{table} writes topic {topics}, which does not exist at {servers}"
    READ_TOPIC_MISSING = "{table} reads {parent}, and there is no topic {topics:and} at {servers}"
    TOPICS_UNKNOWN = "{unknown:;}"
    TOPICS_UNSEEN = "whether topic {topics:and} of {table} exists is unknown: no agent has looked"
    TOPICS_UNREAD = "whether topic {topics:and} of {table} exists is unknown: {why}"
    FOLDERS_MISSING = "{missing:;}", "create it, an empty folder is enough: {commands:;}"
    READ_FOLDER_MISSING = "{tables:few} {tables:reads/read} {parent}, and there is no folder {folder}"
    SOURCE_SOUND = "what is promoted has no known fault in {source}"
    SOURCE_ACCEPTED = "{found:;}: the policy accepts that"
    SOURCE_FAILED = (
        "{tables:few} {tables:has/have} failed in {source}",
        "repair {tables:it/them} there, then promote: headgate ls --env {source}",
    )
    SOURCE_DEGRADED = (
        "{tables:few} {tables:is/are} degraded in {source}", "see why, and promote later: headgate ls --env {source}",
    )  # fmt: skip
    SOURCE_STOPPED = (
        "{tables:few} {tables:is/are} not known to run in {source}",
        "start {tables:it/them} there: headgate start {tables:typed} --env {source}",
    )
    SOURCE_BEHIND = (
        "{tables:few} {tables:misses its objective/miss their objectives} in {source}",
        "promote once {tables:it has/they have} caught up: headgate lag --env {source}",
    )
    SOURCE_UNVALIDATED = (
        "{tables:few} replaced a version in {source} without a comparison of rows",
        "release {tables:it/them} there with a comparison: headgate help releases",
    )

    NOTHING_REPLAYED = "nothing is replayed"
    HISTORY_SHORT = (
        "{gone:;}; a rebuild misses their rows",
        "restore the files, accept what is left with --from earliest, or start later with --from TIME",
    )
    HISTORY_SHORT_ACCEPTED = "{gone:;}; the request accepts what is left"
    HISTORY_AVAILABLE = "everything that is replayed is still available"
    HISTORY_SINCE_UNKNOWN = "it is unknown whether all input after the start position of {tables:few} still exists"
    HISTORY_COMPLETE = "{rebuilds:rebuild} from the earliest row, and no input is missing"
    HISTORY_UNKNOWN = "{rebuilds:rebuild} from the earliest row; how far back that reaches is unknown"
    FILES_GONE = "{table}: {files:file} that it has read no longer {files:exists/exist}"
    CHANGES_NOT_KEPT = "{table}: earlier changes in {source} are no longer in the log of the database"
    FILES_GONE_SINCE = "{table}: {files:file} that it has read no longer {files:exists/exist}, earliest {earliest}"

    ROWS = "{rows:number} rows"
    TIME = "{seconds:duration}"
    SIZE = "{bytes:size}"
    SIZE_UNKNOWN = "size unknown"
    AT_LEAST = "{amount} and more: no table statistics for {tables:few}"
    AMOUNT_UNKNOWN = "amount unknown: no table statistics for {tables:few}"

    ALLOWS_ROWS = "the policy allows {rows:number} rows"
    ALLOWS_TIME = "the policy allows {seconds:duration}"
    ALLOWS_PERCENT = "the policy allows {percent} %"
    ALLOWS_STOPPED = "{share} % of the running statements; the policy allows {percent} %"
    ALLOWS_CORES = "the policy allows {percent} % of them"
    NEEDS_FREE = "{factor} times the estimate must be free"
    UNKNOWN_NEEDS_APPROVAL = "{found}; {limit}, so another login must approve it"
    TOO_MANY_ROWS = (
        "{found}; {limit}", "plan fewer tables at once, or raise max_replay_rows: headgate policy apply",
    )  # fmt: skip
    TOO_LONG = "{found}; {limit}", "plan fewer tables at once, or raise max_replay_h: headgate policy apply"
    TOO_LITTLE_DISK = "{found}; {limit}", "free disk space, or plan fewer tables at once"
    TOO_BUSY = "{found}; {limit}", "plan fewer tables at once, or give the pool more cores"
    TOO_MANY_STOPPED = (
        "{found}; {limit}", "plan fewer tables at once: use --exclude, or plan one product at a time",
    )  # fmt: skip

    SMALL_FILES_TWICE = "small files are stored twice until a vacuum"
    NOTHING_TWICE = "no table is stored twice"
    STORED_TWICE = "{tables:table} stored twice; {size}"
    STORED_TWICE_BESIDE = "{tables:table} stored twice; {size}; {free:size} free"
    STORED_TWICE_FREE_UNKNOWN = "{tables:table} stored twice; {size}; free disk space is unknown"

    POOL_UNCHANGED = "no additional statements on {pool}"
    POOL_GROWS = "{statements:additional statement} on {pool}"
    POOL_GROWS_FOR_BOTH = "{statements:additional statement} on {pool} while both versions run"
    POOL_FULL = (
        "{found}: that makes {statements}, and the policy allows {most}",
        "plan fewer tables at once, or stop what is not needed",
    )
    POOL_AT_CAPACITY = (
        "{found}, which would hold {over:and}",
        "plan fewer tables at once, name another pool in their yml, or raise capacity: of {pool} in headgate.yml",
    )
    POOL_CORDONED = (
        "{tables:few} would start in {pool}, which is cordoned and takes no new statements",
        "name another pool in their yml, or headgate pool uncordon {pool}",
    )
    NO_POOL_HAS_ROOM = (
        "{tables:few} {tables:fits/fit} into no pool: {rooms:;}",
        "plan fewer tables at once, raise capacity: of a pool in headgate.yml, or add a pool",
    )
    NO_POOL_TAKES = (
        "no pool takes {tables:few}: {why:;}",
        "uncordon a pool, wait until one is up, or add one: headgate pool list",
    )
    POOLS_REFUSE = "{reasons:;}", "name other pools in their yml, uncordon pools, or raise capacity: in headgate.yml"
    POOLS_GROW = "{pools:;}"
    RUN_IN = "{tables:few} {tables:runs/run} in {pool}"
    POOL_LOAD_UNKNOWN = "{found}; the pool's load is unknown"
    POOL_LOAD = "{found}: load {before} → {after} of {cores:core}"
    POOL_OVERLOADED = "{found}: load {before} → {after} of {cores:core}, so batches wait for each other"
    STOPPED = "{statements:running statement} stopped or restarted"

    APPROVAL = "another login must approve it: {reasons:;}"
    APPROVAL_OF_PROMOTION = (
        "another login must approve it: {reasons:;}",
        "to promote without an approval, declare promote: {{{accepts}}} below policy, then headgate policy apply "
        "--env {environment}",
    )
    EVERY_PLAN = "the policy requires it for every plan"
    DELETES = "it deletes {tables:few}"
    RETIRES = "it retires versions of {tables:few}"
    VACUUMS = "it deletes files of {tables:few}"
    REBUILDS = "it rebuilds {tables:few}"
    SWAPS = "it swaps pointers"
    PROTECTED = "protected: {tables:few}"
    KEEPS_ROWS = "rows may stay that a rebuild would not produce: {tables:few}"
    LOWERED = "less severe than the default: {tables:few}"
    TOPICS_REWRITTEN = "messages that cannot be taken back are written again: {tables:few}"
    MANY_ROWS = "more than {rows:number} rows to replay"
    ROWS_UNKNOWN = "the number of rows to replay is unknown"

    FROZEN = "no plan is applied during {windows} (UTC)"
