"""The agent's ports to Spark: queries, tables, analysis; each implementation is one class in `pipelines`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from core.changes.spark_analysis import AnalysisAnswer, AnalysisQuestion
from core.model.errors import EngineRefused
from core.text.sentence import Sentence

NEWEST_WRITER = 2
"""The version of the code that upserts, for what is deployed from now on."""


@dataclass(frozen=True, slots=True)
class Upsert:
    """How the rows of a statement are written into a table by their key."""

    place: str
    """Absolute folder of the table."""
    deleted: str
    """Absolute folder of the table of deleted keys, which the first batch makes."""
    checkpoint: str
    columns: tuple[str, ...]
    key: tuple[str, ...]
    sequence: str = ""
    """The column that says which of two rows of a key is newer; empty where a batch has one row of each."""
    deletes: str = ""
    """A condition over the columns: such a row deletes its key."""
    writer: int = NEWEST_WRITER
    """The version of the code that writes."""


@dataclass(frozen=True, slots=True)
class QueryStart:
    """Everything needed to start one query; nothing else is read at start."""

    name: str
    """Query name, `orders@v3`."""
    select: str
    """Compiled SELECT: physical names, options, source names."""
    target: str
    """Physical table in the catalog, which exists."""
    format: str
    checkpoint: str
    """Absolute folder."""
    trigger: str
    mode: str = "append"
    partitioned_by: tuple[str, ...] = ()
    """Columns by which the target is partitioned, as declared: a catalog that was filled again may not know them."""
    upsert: Upsert | None = None
    """None where rows are appended."""


@dataclass(frozen=True, slots=True)
class ReportedQuery:
    """A query as the pool reports it."""

    name: str
    id: str
    """Stable over restarts from the same checkpoint."""
    run_id: str
    active: bool
    message: str = ""
    """Spark's status message."""
    trigger_active: bool = False
    progress: Mapping[str, Any] | None = None
    """Last progress as decoded JSON, None before the first batch."""
    error_class: str = ""
    error: str = ""
    """Spark's message, first line; empty while it is healthy."""
    silent_s: float | None = None
    """Since its last progress or idle event, or since it was first seen; None where nobody listens."""


def unheard() -> None:
    """Hear nothing of a call, where nobody measures it."""


class AnotherQuery(EngineRefused):
    """A query runs under the name of one that was to be started, and is not the one."""


class Queries(Protocol):
    """Streaming queries of the operating session; each call raises PoolUnreachable or EngineRefused."""

    def start(self, start: QueryStart, run_id: str = "") -> ReportedQuery:
        """Start a query, or find it running.

        One of its name is it if its run is `run_id`, or if it is known to have been started with an equal `start`.
        Raises AnotherQuery where it is not: that runs what somebody else, or an earlier start, has asked for.
        """

    def stop(self, name: str, calling: Callable[[], object] = unheard, *, upserts: bool = False) -> None:
        """Return once the query is gone from the pool, or at once if it is not there; `calling` hears of each call.

        Of one that `upserts`, which writes by a key, once nothing writes its last batch any more.
        """

    def active(self) -> tuple[ReportedQuery, ...]:
        """All queries of this session, with their last progress."""

    def look(self, query: ReportedQuery) -> ReportedQuery:
        """Return a query's last progress, its status message and whether a trigger is active, as the query itself
        reports them."""

    def ended(self) -> tuple[ReportedQuery, ...]:
        """Queries that terminated since the last call, with error class and message."""

    def expect(self, name: str, id: str, run_id: str) -> None:
        """Register a query that an earlier agent left running, so that its end is noticed."""

    def other_python(self) -> Sentence | None:
        """Explain why the pool's Python cannot run a writer of keyed tables; None where it can."""


def unnoticed(view: str) -> None:
    """Do nothing where nobody wants to hear which view moves next."""


Pointer = tuple[str, tuple[str, ...], tuple[str, ...]]
"""A view, the tables whose rows it is to serve, that of the version itself last, and its columns in order."""


@dataclass(frozen=True, slots=True)
class FileView:
    """Some of a table's files as a view."""

    name: str
    folder: str
    """The table's: partitions are read from what follows it in a path."""
    files: tuple[str, ...]
    columns: tuple[tuple[str, str], ...]
    """As declared: (name, type); what a file lacks is NULL."""
    format: str = "parquet"


@dataclass(frozen=True, slots=True)
class CatalogTable:
    """A table that a catalog is to have."""

    name: str
    ddl: str
    """The compiled CREATE TABLE IF NOT EXISTS."""
    exists: bool = False
    """Whether its log has its columns, which it keeps."""
    columns: Mapping[str, str] | None = None
    """Types by name as that log has them; None where they are not known, and the catalog has to be asked."""


class Tables(Protocol):
    """The catalog; every call is idempotent."""

    def create(self, name: str, ddl: str, *, exists: bool = False, columns: Mapping[str, str] | None = None) -> None:
        """Run a compiled CREATE TABLE IF NOT EXISTS; a table that `exists` keeps the columns that its log has.

        Those are types by name, and are compared with what is declared; the catalog's are where they are not given.
        """

    def create_together(self, tables: Sequence[CatalogTable]) -> frozenset[str]:
        """Make in one request what is not there, and return the names of what was made, as it is declared.

        The others are left to `create`. Raises EngineRefused where Spark refuses one: some may be made, others not.
        """

    def has(self, name: str) -> bool:
        """Return whether the catalog has a table or view of this name now, whoever made or dropped it."""

    def add_columns(self, name: str, columns: tuple[tuple[str, str], ...]) -> None:
        """Add (name, type) columns that are not there yet."""

    def widen_columns(self, name: str, columns: tuple[tuple[str, str], ...], allowing: str) -> None:
        """Widen (name, type) columns to their type where that is a wider one, which a property of the table allows."""

    def clone(self, name: str, source: str, version: int, location: str) -> None:
        """Make a table of the rows of a version of another, which lies in a folder, in place of an empty one.

        It names the files of that one, which have to stay. One that holds rows was made before, and stays.
        """

    def record_batch(self, location: str, query: str, batch: int) -> None:
        """Have the log of the table in a folder say that it has a batch of a query; one that it has is none."""

    def forget(self, name: str) -> None:
        """Drop from the catalog; files stay."""

    def point(self, view: str, targets: tuple[str, ...], columns: tuple[str, ...]) -> None:
        """Point the view at these columns of all targets: ALTER VIEW if it exists, else CREATE VIEW."""

    def point_together(self, pointers: Sequence[Pointer]) -> frozenset[str]:
        """Make in one request the views that are not there, and return their names; raises as `create_together`."""

    def swap(self, pointers: Sequence[Pointer], before: Callable[[str], object] = unnoticed) -> float:
        """Point all views, each (view, targets, columns), in one tight loop; return its seconds.

        What could refuse one is looked at before the first is moved; `before` hears of each just before it moves.
        """

    def standing(self, pointers: Sequence[Pointer]) -> frozenset[Pointer]:
        """Return those of which the catalog has the view, over these tables and with these columns."""

    def unpoint(self, view: str) -> None: ...
    def read(self, sql: str, limit: int) -> tuple[tuple[str, ...], tuple[tuple[object, ...], ...]]:
        """Column names and at most `limit` rows of a batch query, for `peek` and checks."""

    def read_files(
        self, sql: str, limit: int, views: Sequence[FileView], tag: str = ""
    ) -> tuple[tuple[str, ...], tuple[tuple[object, ...], ...]]:
        """Read as `read` does a query that may name views of files, which are there for this query alone.

        Whoever gives a tag can end the query by it.
        """

    def end_reads(self, tag: str) -> None:
        """End the queries that are read under a tag now, on the server too; nothing where there is none."""


class Analysis(Protocol):
    """Spark's analysis of statements, over empty tables of ours; nothing is started."""

    def engine(self) -> str:
        """Spark's version; asked of the pool once for each session."""

    def ask(self, question: AnalysisQuestion) -> AnalysisAnswer:
        """Answer a question; raises EngineRefused where a table that it reads cannot be made, TryAgain."""

    def clear(self) -> None:
        """Drop what was made for the questions so far."""


class TableUpkeep(Protocol):
    """What looks after the files of tables; each may take long, and whoever gives a tag can end it by that.

    A table is given by its name in the catalog, or by the absolute folder of its log.
    """

    def optimize(self, table: str, tag: str) -> None:
        """Write the small files of a table into large ones; one that is ended has changed nothing."""

    def vacuum(self, table: str, retain_h: str, tag: str) -> None:
        """Delete the files of a table that versions before so many hours hold alone; empty is as the table says."""

    def end(self, tag: str) -> None:
        """End what runs under a tag, on the server too; nothing where there is none."""
