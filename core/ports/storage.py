"""The agent's port to files of tables and checkpoints, and what is read of them: commits, lag, contents of a folder."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol

from core.model.errors import Refused
from core.model.names import TableName
from core.observed.aligned_positions import BatchHistory
from core.observed.log_history import LogHistory
from core.observed.table_statistics import TableStatistics
from core.sql.log_starts import LogStart


class FolderTaken(Refused):
    """The folder is this ledger's, and another run has used it: nothing may be appended to it."""


@dataclass(frozen=True, slots=True)
class CheckpointState:
    """What lies in a checkpoint folder; None batch means that none was committed."""

    id: str
    """The streaming query id of Spark's `metadata`; empty before the first start."""
    owner: str
    """Ledger id of `_headgate_owner`; empty when absent."""
    batch: int | None = None
    planned: int | None = None
    """Newest batch in `offsets/`, committed or not."""
    committed_at: float | None = None
    """Epoch seconds of the newest commit."""
    consumed: Mapping[int, int] = field(default_factory=dict)
    """Source ordinal → last consumed entry of its file log (`logOffset`), as of the newest commit."""
    epoch: int = 0
    """Of the owner file, as `machine` and `run`: the world epoch of its ledger; 0 where it says none."""
    machine: str = ""
    run: str = ""
    """The run that has made the folder."""


@dataclass(frozen=True, slots=True)
class SourceLag:
    """Lag of one streamed source of one deployment, measured from files."""

    table: TableName
    files: int
    bytes: int
    rows: int | None
    exact: bool
    """False when rows are an estimate from bytes (JSON, CSV)."""
    oldest_s: float | None
    """Age of the oldest file not consumed; None when there is none."""
    produced_rows: int | None = None
    """Rows ever committed by the source (monotone while it exists)."""
    consumed_rows: int | None = None
    newest_s: float | None = None
    """Age of the newest committed file of the source: how long it has been silent."""
    missing: bool = False
    """The source is gone or was replaced."""
    versions: int | None = None
    """Versions of the source that are not wholly read; None where it has no versions."""


@dataclass(frozen=True, slots=True)
class FolderContents:
    """What a table's folder holds: files that its log names and that are there, or all of them where it has none."""

    files: int
    bytes: int
    rows: int | None
    """None where they cannot even be estimated."""
    exact: bool
    """Whether all rows were counted."""
    earliest: float | None
    """When the oldest file was written, epoch seconds; None while there is none."""
    newest: float | None = None
    """When the newest one was."""
    small_files: int | None = None
    """Files of less than `SMALL_FILE`; None where no log of versions says so."""
    log_entries: int | None = None
    """Versions since the last checkpoint of the log; None where there is no such log."""
    log_bytes: int | None = None
    """What these are written in; None where they are too many to be looked at."""

    def as_statistics(self, at: float, gone: int | None, history: LogHistory | None) -> TableStatistics:
        """Return what is recorded of a table that was looked at then, with how many files its statement misses."""
        return TableStatistics(
            at,
            self.rows,
            self.exact,
            self.bytes,
            self.files,
            self.earliest,
            gone,
            small_files=self.small_files,
            log_entries=self.log_entries,
            log_bytes=self.log_bytes,
            log=history.as_text() if history is not None else "",
        )


class OriginRows(Enum):
    """What becomes of the rows of the version that another one goes on from."""

    LEFT = "left"
    """They stay where they are: the new version holds what comes after them."""
    INSIDE = "inside"
    """The new version holds them too: its files are those of the old one, and new ones beside them."""
    BEFORE = "before"
    """The new version has them in a table of their own (`VersionFolders.before`), as they were stored."""


@dataclass(frozen=True, slots=True)
class VersionFolders:
    """Where a version of a statement lies: absolute folders of its table and of its checkpoint."""

    table: str
    checkpoint: str

    @property
    def before(self) -> str:
        """Return the folder of the rows that came before its own; it moves with its table."""
        return f"{self.table}/{BEFORE_FOLDER}"


BEFORE_FOLDER = "_before"


@dataclass(frozen=True, slots=True)
class Cut:
    """Where a version begins that was not begun from nothing."""

    batch: int | None
    """The last batch that it does not run itself; None where it runs all of them."""
    id: str
    """The streaming query id of its checkpoint; empty where Spark gives it one."""


@dataclass(frozen=True, slots=True)
class SeenFile:
    """A file of a source that counts as read."""

    path: str
    """A URI, exactly as Spark writes it."""
    modified_ms: int


@dataclass(frozen=True, slots=True)
class SeenLog:
    """A table with a transaction log, of which everything before a version counts as read."""

    offset: str
    """What stands for it in a checkpoint's offsets."""
    version: int = 0
    """The first one that is not read."""


@dataclass(frozen=True, slots=True)
class LogMark:
    """Where the transaction log of a table stands, so that an older copy of it is told from it."""

    id: str
    """Of the table."""
    version: int
    commit: str
    """What tells the commit of that version from another one; empty where it is no longer in the log."""


@dataclass(frozen=True, slots=True)
class Upkeep:
    """What OPTIMIZE or VACUUM has done, as the log of a table says."""

    files: int
    """Files that were written into others, or deleted."""
    made: int = 0
    """Files that were written of them."""

    def __add__(self, other: "Upkeep") -> "Upkeep":
        return Upkeep(self.files + other.files, self.made + other.made)


class Checkpoints(Protocol):
    """Files of tables and checkpoints; raises TryAgain where the path cannot be reached.

    A folder is that of a version, or of a table that others write; the format, as `table_format` knows it, says which.
    """

    epoch: int
    """World epoch that owner files are written with; moved by an adoption."""

    @property
    def machine(self) -> str:
        """Id of this machine, empty where it has none."""

    def prepare(self, folder: str, note: Mapping[str, Any]) -> None:
        """Create an empty folder with the owner file and note, which names the run, in one rename.

        A folder of the same run is left as it is, and one that another run has made and nobody has used is taken over.
        Raises FolderTaken where another run has used it, Refused where it is not this ledger's.
        """

    def read(self, folder: str) -> CheckpointState | None:
        """None when there is no such folder or it cannot be read as a checkpoint."""

    def lacks(self, folder: str) -> str:
        """Return which file of a checkpoint is missing, by its place in it, without which Spark does not start; empty
        where none is."""

    def sink_batch(self, folder: str, *, format: str = "", query: str = "") -> int | None:
        """Return the newest batch in a table's own record of batches, of one query where it has several; None where it
        has none."""

    def identity(self, folder: str, format: str) -> str:
        """Return the id that a table itself has; empty where it has none, or its format knows none."""

    def columns(self, folder: str, format: str) -> Mapping[str, str] | None:
        """Return the types of a table's columns by name, in Spark's words, as its log has them; None where it has none,
        or does not say them all."""

    def properties(self, folder: str, format: str) -> Mapping[str, str]:
        """Return the properties of a table as its log has them; none where it has none, or is not there."""

    def written_by_hand(self, folder: str, format: str) -> tuple[int, str] | None:
        """Return the newest version of a table whose rows no statement has written, with its operation.

        None where there is none, or the format has no versions.
        """

    def why_other_source(
        self,
        checkpoint: str,
        sources: tuple[tuple[int, TableName, str, str], ...],
        *,
        take_changes: Set[int] = frozenset(),
        tracked: bool = False,
    ) -> tuple[TableName, str] | None:
        """Return the first of the sources, given as for `lag`, that is not what a statement has read, and why; None
        where all are, and where nobody can tell. Those by the ordinals `take_changes` go on over rows that were changed
        or taken out, which a stream of rows does not, and all that are `tracked` over columns with other names."""

    def take_over(self, folder: str, former: str = "") -> None:
        """Write ledger, epoch and machine of now into the owner file of a folder of this ledger, or of a former one.

        The run stays. Raises Refused where the folder is another ledger's.
        """

    def note(self, folder: str, note: Mapping[str, Any]) -> None:
        """Write `_headgate.json` of a table folder, whole or not at all."""

    def set_aside(self, folder: str, into: str) -> None:
        """Move a folder of ours into the trash, as `into`, or beside it where that is taken; nothing when it is gone.

        Onto another file system it is copied, and deleted once the copy is whole.
        """

    def remove(self, folder: str) -> bool:
        """Delete a folder of ours with all below it; returns whether it was ours, also where it is gone by now.

        What cannot be deleted stays, with the proof that it is ours.
        """

    def put_back(self, aside: str, folder: str) -> None:
        """Rename a folder that was set aside to where it was; nothing when it is there again already.

        Raises Refused where it is in neither place, or something else has taken its own.
        """

    def made_beside(self, checkpoint: str) -> tuple[str, ...]:
        """List a version's first checkpoint, where it is there, and those of seams beside it, `<first>.…`, by path."""

    def lag(self, checkpoint: str, sources: tuple[tuple[int, TableName, str, str], ...]) -> tuple[SourceLag, ...]:
        """Measure sources given as (ordinal, table, folder, format); works for stopped statements."""

    def rows(self, folder: str, format: str) -> int | None:
        """Count the rows of all files of a table; None while some are not counted, and where they never are."""

    def folded_lag(self) -> Mapping[str, str]:
        """Return what lag is measured from, positions and sums, as JSON by key, for `unfold_lag` after a restart."""

    def unfold_lag(self, folded: Mapping[str, str]) -> None:
        """Go on from what `folded_lag` gave, before anything is measured."""

    def is_there(self, folder: str) -> bool:
        """Return whether a folder exists on this machine; raises TryAgain where that cannot be told now."""

    def contents(self, folder: str, format: str) -> FolderContents | None:
        """Return size and range of all files of a table; slow for many files.

        None if the folder does not exist on this machine.
        """

    def rows_since(self, folder: str, format: str, moment: float) -> int | None:
        """Count the rows of the files that a written table has got since a moment, epoch seconds.

        None where they are too many to be counted at once, or cannot be.
        """

    def log_mark(self, place: str, version: int | None = None) -> LogMark | None:
        """Return where the log that lies in a folder stands, or how it was at a version; None where there is none.

        A log that ends before that version is told as it ends.
        """

    def upkeep(self, place: str, operation: str, tag: str) -> Upkeep | None:
        """Return what the newest whole `OPTIMIZE` or `VACUUM` with a tag has done to the table whose log lies in a
        folder; None without one."""

    def kept_h(self, folder: str, format: str) -> float | None:
        """Return for how many hours a table keeps files of older versions; None where that cannot be read."""

    def unread_before(
        self, checkpoint: str, source: tuple[int, TableName, str, str], moment: float, *, takes_changes: bool = False
    ) -> int | None:
        """Return the first version of a source whose files a statement has not read and that was replaced before a
        moment, so that a vacuum deletes them; None where there is none. The source is given as for `lag`.
        """

    def gone(self, checkpoint: str, sources: tuple[tuple[int, TableName, str, str], ...]) -> int | None:
        """Count the files that a statement has read, of sources as for `lag`, and that are no longer there.

        None where the checkpoint cannot say.
        """

    def batch_history(self, checkpoint: str, sources: int, folder: str) -> BatchHistory:
        """Return what each known batch of a version had read of its streamed sources, so many, and what its table held.

        Empty before its first batch, and where the logs cannot be read.
        """

    def written_files(self, folder: str, upto: int) -> tuple[str, ...] | None:
        """Return the files that a table's batches up to `upto` have written; None where its log does not say it any
        more.

        Raises Refused, with why, where they are not the rows of the table.
        """

    def fork(self, origin: VersionFolders, copy: VersionFolders, note: Mapping[str, Any], *, rows: OriginRows) -> Cut:
        """Have a version begin after the newest committed batch of another, which may be running: positions, state.

        Its checkpoint is a copy with an id of its own, its table's record of batches ends with the same batch, and
        the origin is only read. `copy` was prepared by the run that `note` names; doing it twice is doing it once. Of
        a table with a transaction log only the checkpoint is made: rows and record are the catalog's (`Tables.clone`).
        Raises FolderTaken where a query was started in it already, TryAgain where no whole copy could be had.
        """

    def seed(
        self,
        version: VersionFolders,
        seen: Sequence[Sequence[SeenFile] | SeenLog],
        note: Mapping[str, Any],
        *,
        batch: int | None = None,
        like: str = "",
    ) -> Cut:
        """Have a version begin as if the files, or the log, of each of its sources, by ordinal, had been read.

        Without a batch its own first one has them behind it, whatever state it keeps. With one it goes on after that
        batch, which has kept no state, with the settings that the checkpoint `like` has pinned; the record of batches
        in its table is made where there is none. Prepared, twice and taken as for `fork`.
        """

    def log_history(self, folder: str, format: str) -> LogHistory | None:
        """Return what a table's log says of its versions; None where it has none."""

    def why_not_from(
        self, folder: str, format: str, start: LogStart, *, takes_changes: bool, tracked: bool = False
    ) -> str:
        """Explain why a stream of a table cannot begin at a place in its log now; empty where it can."""

    def written_version(self, folder: str, query: str, batch: int) -> int | None:
        """Return the version of a table that holds a query's batches up to one, and no later one; None where its log
        does not say it any more, and of a table without versions.
        """

    def lost_files(self, folder: str, version: int) -> tuple[str, ...]:
        """List the files that a version of a table names and that are not there, by path; none of a table without
        versions. Costs a look at each of its files."""

    def seen(self, folder: str, upto: int | None = None, *, format: str = "") -> tuple[SeenFile, ...] | SeenLog:
        """Return what a source holds, a table of ours up to batch `upto` of its own record, for `seed`.

        Without a format it is a table of ours.

        Raises Refused where the record no longer tells that batch from later ones.
        """
