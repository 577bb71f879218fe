"""What a table format with a log of its own says of its tables: the port that a module for one more format implements.

A folder is that of the table itself, as a path, with its log in it. What is read is as of now, unless said otherwise.
"""

from collections.abc import Mapping
from typing import Protocol, TypeVar

from core.model.names import TableName
from core.observed.log_history import LogHistory
from core.ports.storage import FolderContents, LogMark, SeenLog, SourceLag, Upkeep
from core.sql.log_starts import LogStart

Offset = TypeVar("Offset")
"""How far a query has read one source, as the format writes it into the offsets of a checkpoint."""


class LogTables(Protocol[Offset]):
    """Tables of one format; asked by many threads.

    Raises ValueError, KeyError or TypeError for what is no log that it knows.
    """

    def is_there(self, folder: str) -> bool:
        """Return whether a folder holds a table with a log."""

    def identity(self, folder: str) -> str:
        """Return the id of the table; empty where there is none."""

    def mark(self, folder: str, version: int | None) -> LogMark | None:
        """Return where a log stands, or how it was at a version, at its end where it ends before; None without one."""

    def columns(self, folder: str) -> Mapping[str, str] | None:
        """Return the types of a table's columns by name; None where its log does not say them, or there is no table."""

    def properties(self, folder: str) -> Mapping[str, str]:
        """Return the properties of a table; none where there is no table."""

    def sink_batch(self, folder: str, query: str) -> int | None:
        """Return the newest batch of a query that its table has; None where it has none."""

    def written_by_hand(self, folder: str) -> tuple[int, str] | None:
        """Return the newest version whose rows no statement has written, and by what; None where there is none."""

    def offsets(self, checkpoint: str, batch: int | None) -> Mapping[int, Offset]:
        """Return how far a batch has read each source of this format, by ordinal; none where there is no batch."""

    def first_offsets(self, checkpoint: str, batch: int | None) -> Mapping[int, Offset]:
        """Return where a first batch begins that was planned and not committed, of each source, by ordinal."""

    def mark_of(self, line: str) -> str | None:
        """Return a text of a line of offsets that is equal where the same was read; None for another format's line."""

    def why_other(self, offset: Offset, folder: str, *, takes_changes: bool = False, tracked: bool = False) -> str:
        """Explain why a query at an offset cannot go on with the table that is there; empty where it can."""

    def lag(self, offset: Offset | None, table: TableName, folder: str) -> SourceLag:
        """Measure one source of a query that stands at an offset, None before its first batch."""

    def rows(self, folder: str) -> int | None:
        """Count the rows of the newest version; None where its log does not say it, or there is no table."""

    def rows_since(self, folder: str, moment: float) -> int | None:
        """Count the rows that were written since a moment, epoch seconds; None where its log does not say it."""

    def contents(self, folder: str) -> FolderContents | None:
        """Return what the newest version holds; None where there is no table."""

    def history(self, folder: str) -> LogHistory | None:
        """Return what a table's log says of its versions; None where there is no table, or no commit any more."""

    def held(self, folder: str) -> Mapping[str, tuple[int, int]]:
        """Return what a reader has read, as a mark → the first and last batch of the writer at which it held that."""

    def written_files(self, folder: str, upto: int) -> tuple[str, ...] | None:
        """Return the files that a table held after a batch of its writer; None where its log does not say it any more.

        Raises Refused where the rows of the table are not those of its files.
        """

    def seen(self, folder: str, upto: int | None) -> SeenLog | None:
        """Return the place behind a batch of a table's writer, behind all where none is given; None as above."""

    def written_version(self, folder: str, query: str, batch: int) -> int | None:
        """Return the newest version of a table without any batch of a query after one; None as above."""

    def lost_files(self, folder: str, version: int) -> tuple[str, ...]:
        """List the files that a version names and that are not there, by path; none where its log does not say it."""

    def why_not_from(self, folder: str, start: LogStart, *, takes_changes: bool, tracked: bool = False) -> str:
        """Explain why a stream cannot begin at a place in a table's log now; empty where it can."""

    def upkeep(self, folder: str, operation: str, tag: str) -> Upkeep | None:
        """Return what the newest whole operation with a tag has done; None without one."""

    def kept_h(self, folder: str) -> float | None:
        """Return for how many hours a table keeps files of older versions; None where it says so unreadably."""

    def unread_before(self, offset: Offset, folder: str, moment: float, *, takes_changes: bool = False) -> int | None:
        """Return the first version that a query has not read and of which a file was replaced before a moment."""

    def keeps_all(self, folder: str) -> bool:
        """Return whether no row was taken out of a table as far as its log is known."""
