"""The agent's port to the files of tables and checkpoints, and the values read from them."""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol

from core.model.errors import HeadgateError, Refused
from core.model.names import TableName
from core.model.states import TableFaultKind
from core.observed.aligned_positions import BatchHistory
from core.observed.table_statistics import LogHistory, TableStatistics
from core.observed.time_left import TimeLeft
from core.sql.statement import LogStart
from core.text.sentence import Sentence

Sources = tuple[tuple[int, TableName, str, str], ...]
"""Streamed sources of a statement, each as (ordinal, table, folder, format)."""


class FolderTaken(Refused):
    """Raised if a folder of this ledger cannot be prepared, because another run or query has already used it."""


@dataclass(frozen=True, slots=True)
class TableFault:
    """Why a statement cannot continue to read or write a table: the kind of fault, and a clause for display."""

    kind: TableFaultKind
    why: str
    """The fault as a human-readable clause."""
    remedy: str = ""

    @property
    def sentence(self) -> str:
        """The fault and its remedy in one line."""
        return self.refused().sentence

    def refused(self) -> Refused:
        """Convert the fault to a Refused error, for the caller to raise."""
        return Refused(self.why, remedy=self.remedy)


@dataclass(frozen=True, slots=True)
class CheckpointState:
    """The contents of a checkpoint folder; `batch` is None if no batch was committed."""

    id: str
    """The streaming query id of Spark's `metadata`; empty before the first start."""
    owner: str
    """Ledger id in the owner file `_headgate_owner`; empty if there is no such file."""
    batch: int | None = None
    planned: int | None = None
    """Latest batch in `offsets/`, committed or not; None if there is none."""
    committed_at: float | None = None
    """When the latest batch was committed, in epoch seconds."""
    consumed: Mapping[int, int] = field(default_factory=dict)
    """For each source ordinal, the last consumed entry of its file log (`logOffset`), as of the latest commit."""
    epoch: int = 0
    """Ledger epoch in the owner file, which also contains `machine` and `run`; 0 if the file has no epoch."""
    machine: str = ""
    run: str = ""
    """The run that created the folder."""


@dataclass(frozen=True, slots=True)
class SourceLag:
    """How far a version is behind one of its streamed sources, measured from files or from topic offsets."""

    table: TableName
    files: int
    """Number of pending files or, for topics, of pending messages."""
    bytes: int
    """Size of the pending files; 0 for topics, whose sizes are unknown."""
    rows: int | None
    exact: bool
    """False if `rows` is estimated from bytes (JSON, CSV)."""
    oldest_s: float | None
    """Age of the oldest unconsumed file in seconds; None if there is none."""
    produced_rows: int | None = None
    """Rows that the source has ever committed, which never decreases; None if unknown."""
    consumed_rows: int | None = None
    newest_s: float | None = None
    """Age in seconds of the newest committed file, that is, how long the source has been silent; None if unknown."""
    missing: bool = False
    """Whether the source no longer exists or was replaced."""
    versions: int | None = None
    """Number of versions of the source that are not completely read; None if there is no transaction log."""
    skipped: int | None = None
    """Messages that were deleted unread and that the next batch skips; None unless the table's options allow it."""
    topics: bool = False
    """Whether the source consists of topics or of database changes, so that `files` counts messages."""
    wal_bytes: int | None = None
    """Bytes of a database's log after the position, whatever they contain; None for other sources."""
    time_left: TimeLeft | None = None
    """How long the committed position stays readable; None if no position is committed, or if the table format alone
    determines it."""
    unmeasured: HeadgateError | None = None
    """Why a broker or database did not give the lag; None if it did. The other fields are then without meaning."""


@dataclass(frozen=True, slots=True)
class StatementFolders:
    """The folders from which a statement's progress and lag are measured."""

    checkpoint: str
    sources: Sources
    table: str
    """The folder of the table that the statement writes."""
    format: str


@dataclass(frozen=True, slots=True)
class MeasuredFiles:
    """What was measured from a statement's files."""

    state: CheckpointState | None
    lag: tuple[SourceLag, ...]
    """The lag behind each source; empty if it could not be measured."""
    rows: int | None
    """Number of rows of the written table, as by `Checkpoints.rows`."""
    unmeasured: HeadgateError | None = None
    """Why the lag could not be measured; None if it was."""


@dataclass(frozen=True, slots=True)
class FolderContents:
    """Totals over a table's files: those in its log that still exist or, if it has no log, all files in its folder."""

    files: int
    bytes: int
    rows: int | None
    """Number of rows; None if it cannot be estimated."""
    exact: bool
    """Whether all rows were counted."""
    earliest: float | None
    """When the oldest file was written, in epoch seconds; None if there is no file."""
    newest: float | None = None
    """When the newest file was written, in epoch seconds; None if there is no file."""
    small_files: int | None = None
    """Number of files smaller than `SMALL_FILE`; None if there is no transaction log."""
    log_entries: int | None = None
    """Number of versions since the last checkpoint of the log; None if there is no transaction log."""
    log_bytes: int | None = None
    """Size in bytes of the commits since the last checkpoint of the log; None if there are too many or one is gone."""

    def as_statistics(self, at: float, missing_inputs: int | None, history: LogHistory | None) -> TableStatistics:
        """Convert to table statistics measured at `at`; `missing_inputs` is the number of input files that are gone."""
        return TableStatistics(
            at,
            self.rows,
            exact=self.exact,
            bytes=self.bytes,
            files=self.files,
            earliest=self.earliest,
            gone=missing_inputs,
            small_files=self.small_files,
            log_entries=self.log_entries,
            log_bytes=self.log_bytes,
            log=history.as_text() if history is not None else "",
        )


class OriginRows(Enum):
    """Where the rows of an old version are stored after a new version has continued from it."""

    LEFT = "left"
    """The rows stay in the old version; the new version contains only later rows."""
    INSIDE = "inside"
    """The new version includes the rows by referencing the old files."""
    BEFORE = "before"
    """The new version keeps the rows unchanged in a separate table (`VersionFolders.before`)."""


@dataclass(frozen=True, slots=True)
class VersionFolders:
    """Absolute paths of a version's table folder and checkpoint folder."""

    table: str
    checkpoint: str

    @property
    def before(self) -> str:
        """The folder of the table with earlier rows; it is inside the folder `table`, and therefore moves with it."""
        return f"{self.table}/{BEFORE_FOLDER}"


BEFORE_FOLDER = "_before"


@dataclass(frozen=True, slots=True)
class StartPosition:
    """The position at which a version with a forked or seeded checkpoint starts."""

    batch: int | None
    """The last batch that the version does not run itself; None if the version runs all batches."""
    id: str
    """The streaming query id in the version's checkpoint; empty if Spark will assign one."""


@dataclass(frozen=True, slots=True)
class SeenFile:
    """A source file marked as read."""

    path: str
    """URI of the file, exactly as Spark writes it."""
    modified_ms: int


@dataclass(frozen=True, slots=True)
class SeenLog:
    """A transaction log marked as read up to a version."""

    offset: str
    """The position as written in the offsets of a checkpoint."""
    version: int = 0
    """The first unread version."""


@dataclass(frozen=True, slots=True)
class SeenMessages:
    """Messages of topics marked as read, up to an offset in each partition."""

    offset: str
    """The position as written in the offsets of a checkpoint."""


Seen = Sequence[SeenFile] | SeenLog | SeenMessages
"""The contents of a source that are marked as read."""


@dataclass(frozen=True, slots=True)
class LogMark:
    """The position of a transaction log, recorded so that an older copy of the table can be recognized later."""

    id: str
    """Id of the table."""
    version: int
    commit: str
    """Digest of the commit of `version`; empty if that commit is no longer in the log."""


@dataclass(frozen=True, slots=True)
class Upkeep:
    """The result of an OPTIMIZE or VACUUM, as recorded in the table's transaction log."""

    files: int
    """Files compacted or deleted."""
    made: int = 0
    """Files created by compaction."""

    def __add__(self, other: "Upkeep") -> "Upkeep":
        return Upkeep(self.files + other.files, self.made + other.made)


class Checkpoints(Protocol):
    """Access to the files of tables and checkpoints.

    `folder` is the folder of a version or of an external table; `format`, a name that `table_format` accepts,
    distinguishes the two. `sources` are the streamed sources of a statement. Every method raises TryAgain if a path
    cannot be reached or a log cannot be read at the moment.
    """

    epoch: int
    """Epoch of the environment, which is written into owner files; an adoption changes it."""

    @property
    def machine(self) -> str:
        """The id of this machine; empty if the machine has no id."""

    # Ownership of folders.

    def prepare(self, folder: str, note: Mapping[str, Any]) -> None:
        """Atomically create a folder that contains only an owner file and a note that includes the run's id.

        An existing folder of the same run is left unchanged; an unused folder of another run is taken over. Raises
        FolderTaken if another run has used the folder, Refused if the folder does not belong to this ledger.
        """

    def take_over(self, folder: str, former: str = "") -> None:
        """Claim a folder of this or the `former` ledger: write ledger, epoch and machine to its owner file.

        The run in the owner file stays the same. Raises Refused if the folder belongs to any other ledger.
        """

    def note(self, folder: str, note: Mapping[str, Any]) -> None:
        """Atomically write a JSON note to the file `_headgate.json` in a table's folder."""

    def set_aside(self, folder: str, into: str) -> None:
        """Move a folder of this ledger to the trash, to the path `into` or, if that path is in use, to a similar path.

        Does nothing if the folder does not exist. If the trash is on another file system, the folder is copied, and is
        deleted once the copy is complete.
        """

    def put_back(self, aside: str, folder: str) -> None:
        """Move a folder from the trash back to its original path; do nothing if it is already there.

        Raises Refused if there is no folder at either path, or if something else is at the original path. Folders
        without files do not count: a stream of another environment creates them again (Spark 4.2.0).
        """

    def remove(self, folder: str) -> bool:
        """Delete a folder of this ledger with all its contents; return False if the folder belongs to another ledger.

        Returns True if the folder does not exist. Files that cannot be deleted remain, and so does the owner file.
        """

    def is_there(self, folder: str) -> bool:
        """True if the folder exists."""

    def has_owner(self, folder: str) -> bool:
        """True if the folder is that of a version or checkpoint of any ledger.

        A stream of a Parquet table whose folder was moved away creates it again, empty (Spark 4.2.0).
        """

    def file_clock(self, folder: str) -> float:
        """Return the present time, in epoch seconds, by the clock that dates new files in a folder of this ledger.

        It may differ from the clock of this machine. Writes a file there, and deletes it. Raises TryAgain if it cannot.
        """

    # Checkpoints.

    def read(self, folder: str) -> CheckpointState | None:
        """Read the state of a checkpoint; None if the folder does not exist or is not a checkpoint."""

    def missing_checkpoint_file(self, folder: str) -> str:
        """Return the first missing file without which Spark cannot start from a checkpoint; empty if there is none.

        The returned path is relative to the checkpoint.
        """

    def checkpoints_of_version(self, checkpoint: str) -> tuple[str, ...]:
        """Return a version's existing checkpoints, sorted: the first, and those created for rebuilt inputs."""

    def source_fault(
        self,
        checkpoint: str,
        sources: Sources,
        *,
        take_changes: Set[int] = frozenset(),
        tracked: bool = False,
        running: bool = False,
    ) -> tuple[TableName, TableFault] | None:
        """Return the first source from which the statement cannot continue, with its fault; None if there is none.

        A renamed or dropped column is returned only if there is no other fault; with `tracked`, it is not a fault.
        Updated or deleted rows are a fault, except in the sources whose ordinals are in `take_changes`. With `running`,
        messages that the current batch reads count as read, since they may be deleted before the batch is committed.
        The ids of topics without a fault are recorded in the checkpoint, to recognize a topic that is created again.
        """

    def unread_before(
        self, checkpoint: str, source: tuple[int, TableName, str, str], moment: float, *, takes_changes: bool = False
    ) -> int | None:
        """Return the first version of a source whose files a vacuum would delete before the statement reads them.

        A vacuum deletes files that were replaced before `moment`, in epoch seconds. Returns None if there is no such
        version.
        """

    def count_missing_inputs(self, checkpoint: str, sources: Sources) -> int | None:
        """Return how many of the files that a statement has read no longer exist; None if some are unknown."""

    def missing_topics(self, locations: Iterable[str]) -> Mapping[str, tuple[str, ...] | HeadgateError]:
        """Return the topics that do not exist, by location, or why that is unknown. Each cluster is asked once."""

    def missing_folders(self, folders: Iterable[str]) -> tuple[str, ...]:
        """Return the folders, of absolute paths, that certainly do not exist; others may be missing or unknown."""

    def newest_message(self, location: str) -> tuple[int, float | None]:
        """Return the sum of the topics' latest offsets, and the newest timestamp of their messages in epoch seconds.

        The timestamp is None if there are no messages. Raises TryAgain if no broker answers, and Refused if the brokers
        refuse the credentials.
        """

    def measure_ahead(self, statements: Iterable[StatementFolders]) -> Mapping[str, MeasuredFiles | Exception]:
        """Measure the statements with folders in remote stores, several at once, and return the results by checkpoint.

        A store that does not answer within a few seconds yields an error, and does not delay the other results. The
        offsets of all topics are requested together, so that `lag` finds them for the other statements.
        """

    def lag(self, checkpoint: str, sources: Sources) -> tuple[SourceLag, ...]:
        """Measure how far a running or stopped statement is behind each of its sources.

        If no broker or database of theirs gives the lag, the error of the first one is raised.
        """

    def topic_offsets(
        self, checkpoint: str, source: tuple[int, TableName, str, str], *, planned: bool = False
    ) -> Mapping[tuple[str, int], int] | None:
        """Return a checkpoint's offsets for a Kafka source, by topic and partition; None if the source is not Kafka.

        The offsets are those of the latest committed batch or, with `planned`, of the latest batch. Before that batch,
        they are the offsets from which the first batch will start, and empty if those are undecided. Raises TryAgain if
        the checkpoint cannot be read.
        """

    def position(self, checkpoint: str, ordinal: int) -> int | None:
        """Return the position that a statement has committed in a log of changes; None before the first batch.

        Raises TryAgain if the checkpoint cannot be read.
        """

    def encoded_lag(self) -> Mapping[str, str]:
        """Return the cached positions and totals for measuring lag, as JSON by key; `restore_lag` restores them."""

    def restore_lag(self, encoded: Mapping[str, str]) -> None:
        """Restore the output of `encoded_lag`; call this before the first measurement."""

    def batch_history(self, checkpoint: str, sources: int, folder: str) -> BatchHistory:
        """Return what a version had read by the end of each recorded batch, and which rows its table then contained.

        `sources` is the number of streams in the version. The history is empty before the first batch, or if the logs
        cannot be read.
        """

    # Contents of tables.

    def contents(self, folder: str, format: str) -> FolderContents | None:
        """Return the number, size and age of a table's files; None if the table does not exist.

        The call is slow for tables with many files.
        """

    def rows(self, folder: str, format: str) -> int | None:
        """Return a table's number of rows; None if some are not counted yet or the format has no row counts."""

    def rows_since(self, folder: str, format: str, moment: float) -> int | None:
        """Return the number of rows written to a table since `moment`, in epoch seconds.

        Returns None if there are too many to count at once, or if they cannot be counted.
        """

    def sink_batch(self, folder: str, *, format: str = "", query: str = "") -> int | None:
        """Return the latest batch that a table records as written; None if there is none.

        In a table with a transaction log, only batches of the query id `query` are considered.
        """

    def written_files(self, folder: str, upto: int) -> tuple[str, ...] | None:
        """Return the files written by a table's batches up to batch `upto`; None if the log does not record them.

        Raises Refused if these files do not contain exactly the rows of the table.
        """

    def source_position(
        self, folder: str, upto: int | None = None, *, format: str = "", since: float | None = None
    ) -> tuple[SeenFile, ...] | SeenLog | SeenMessages:
        """Return a source's current files, log position or messages, for `create_checkpoint_after` to mark as read.

        With `upto`, only contents written up to that batch of the source are returned, according to the source's own
        record of batches. Without a `format`, the source is a table that Headgate writes. Raises Refused if the record
        does not separate that batch from later batches. With `since`, in epoch seconds, a source of topics returns only
        the messages before the first message of that time, and a source of files only those written before.
        """

    # Tables with a transaction log; for other formats the result is empty or None.

    def identity(self, folder: str, format: str) -> str:
        """Return the id of a table, or the ids of topics; empty if the table or any topic does not exist."""

    def columns(self, folder: str, format: str) -> Mapping[str, str] | None:
        """Return the types of a table's columns by name, spelled as in Spark; None if the log lacks any of them."""

    def properties(self, folder: str, format: str) -> Mapping[str, str]:
        """Return the properties of a table; empty if the table does not exist."""

    def written_by_hand(self, folder: str, format: str) -> tuple[int, str] | None:
        """Return the latest version in which rows were changed manually, and its operation; None if there is none.

        A change is manual if no statement made it.
        """

    def log_history(self, folder: str, format: str) -> LogHistory | None:
        """Return the versions of a table that are still in its log; None if there is no log."""

    def log_mark(self, place: str, version: int | None = None) -> LogMark | None:
        """Return the LogMark of a folder's transaction log at `version` (default: latest); None without a log."""

    def kept_h(self, folder: str, format: str) -> float | None:
        """Return the hours for which a table keeps files of older versions; None if its retention cannot be read."""

    def written_version(self, folder: str, query: str, batch: int) -> int | None:
        """Return the table version that contains exactly a query's batches up to `batch`; None if unknown."""

    def lost_files(self, folder: str, version: int) -> tuple[str, ...]:
        """Return the paths of a table version's missing files; the call checks every file of the version."""

    def why_not_from(
        self, folder: str, format: str, start: LogStart, *, takes_changes: bool, tracked: bool = False
    ) -> Sentence | None:
        """Explain why a stream cannot currently start at a position in a table's log; None if it can start there."""

    def upkeep(self, place: str, operation: str, tag: str) -> Upkeep | None:
        """Return the result of the latest completed `OPTIMIZE` or `VACUUM` with this tag; None if there is none."""

    # Versions that start at the position of another version, or of a source.

    def fork(
        self, origin: VersionFolders, copy: VersionFolders, note: Mapping[str, Any], *, rows: OriginRows
    ) -> StartPosition:
        """Create a checkpoint that continues after the latest committed batch of another version, which may be running.

        The new checkpoint is a copy with its own query id, and the new table's record of batches ends with the same
        batch; the origin is not changed. The run in `note` must have prepared the folders `copy`; repeating the call is
        harmless. For a table with a transaction log, only the checkpoint is created, and `Tables.clone` copies the rows
        and the record. Raises FolderTaken if a query was already started in `copy`, TryAgain if no complete copy could
        be made.
        """

    def create_checkpoint_after(
        self,
        version: VersionFolders,
        seen: Sequence[Seen],
        note: Mapping[str, Any],
        *,
        batch: int | None = None,
        like: str = "",
    ) -> StartPosition:
        """Create a checkpoint that marks the files or log positions in `seen` as read.

        `seen` is in the order of the source ordinals. Without `batch`, the version has yet to run its first batch,
        which skips the marked input; the statement may have any kind of state. With `batch`, the version continues
        after that batch, without state and with the settings pinned by the checkpoint `like`; a table that has no
        record of batches gets one. As with `fork`, the folders must have been prepared, repeated calls are harmless,
        and FolderTaken or TryAgain may be raised.
        """
