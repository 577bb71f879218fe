"""The agent's ports to Spark: queries, tables, analysis and upkeep; each port is implemented by one class in
`pipelines`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from core.changes.spark_questions_and_answers import AnalysisAnswer, AnalysisQuestion
from core.model.errors import EngineRefused, SparkFailure
from core.sql.avro_schemas import SchemasByPart
from core.sql.python_jobs import PythonJob
from core.sql.registered_functions import RegisteredFunction
from core.text.sentence import Fact, FactKind, Sentence

NEWEST_WRITER = 2
"""Version of the upsert code for new deployments."""


@dataclass(frozen=True, slots=True)
class Upsert:
    """Settings of a statement that upserts rows into its table by key."""

    place: str
    """Absolute folder of the table."""
    deleted: str
    """Absolute folder of the table of deleted keys, which the first batch creates."""
    checkpoint: str
    columns: tuple[str, ...]
    key: tuple[str, ...]
    sequence: str = ""
    """The column that orders the rows of a key; empty if each batch has at most one row per key."""
    deletes: str = ""
    """A condition over the columns; a row that meets it deletes its key."""
    writer: int = NEWEST_WRITER
    """Version of the upsert code."""
    uncompared: tuple[str, ...] = ()
    """Columns in which a row may differ from the stored row of its key and still count as equal to it."""


@dataclass(frozen=True, slots=True)
class QueryStart:
    """The parameters of a streaming query to be started."""

    name: str
    """Name of the query, such as `orders@v3`."""
    select: str
    """Compiled SELECT, with physical names, options and source names."""
    target: str
    """Physical table that the query writes to; it must already exist in the catalog."""
    format: str
    checkpoint: str
    """Absolute path of the checkpoint folder."""
    trigger: str
    mode: str = "append"
    partitioned_by: tuple[str, ...] = ()
    """Declared partition columns of the target, which a rebuilt catalog may not know."""
    upsert: Upsert | None = None
    """Upsert settings; None if rows are appended."""
    messages: tuple[str, ...] = ()
    """SQL expressions that turn rows into messages of a topic; empty if the target is a table."""
    options: tuple[tuple[str, str], ...] = ()
    """Options of the writer of messages, such as the topic."""
    added: tuple[tuple[str, str], ...] = ()
    """Columns that follow those of `select`, as (name, SQL expression), instead of any columns of the same names."""
    functions: tuple[RegisteredFunction, ...] = ()
    """Functions in Python and of a jar that `select` calls, which are registered before the start."""
    job: "BuiltJob | None" = None
    """The built plan if `select` is the text of a job in Python; None for SQL."""
    place: str = ""
    """Absolute folder of the table that a job with a function for each batch writes; empty for all other queries."""
    columns: tuple[str, ...] = ()
    """Columns that such a function must return, in any order."""


@dataclass(frozen=True, slots=True)
class BuiltJob:
    """The plan of a job in Python, as the job's process has built it and the agent has checked it."""

    relation: bytes
    """The unresolved plan, as Spark Connect encodes it."""
    each_batch: bytes = b""
    """The pickled function of each batch, which only the pool's Python may load; empty if there is none."""
    settings: tuple[tuple[str, str], ...] = ()
    """Spark's settings, as (name, value), that the query needs when it starts."""


@dataclass(frozen=True, slots=True)
class ReportedQuery:
    """A streaming query, as the pool reports it."""

    name: str
    id: str
    """Streaming query id, which stays the same when the query restarts from the same checkpoint."""
    run_id: str
    active: bool
    message: str = ""
    """Spark's status message."""
    waits: bool = False
    """Whether the query waits for input; until input arrives, it commits no first batch (seen on Spark 4.2.0)."""
    trigger_active: bool = False
    progress: Mapping[str, Any] | None = None
    """The last progress report as decoded JSON; None before the first batch."""
    error_class: str = ""
    error: str = ""
    """First line of Spark's error message; empty while the query is healthy."""
    failure: SparkFailure | None = None
    """The kind of `error` if decisions depend on it; None for any other error, and while the query is healthy."""
    schema: int | None = None
    """Id of a message's schema, if the query ended because this schema was unknown; None otherwise."""
    silent_s: float | None = None
    """Seconds since the query's last progress or idle event, or since it was first seen; None if no listener runs."""


def ignore_stop_request() -> None:
    """Do nothing; this is the default callback of `Queries.stop`."""


class AnotherQuery(EngineRefused):
    """Raised if a different query is already running under the name of the query to be started."""


class FunctionFault(FactKind):
    """Why the pool cannot load a function before a statement that calls it starts."""

    NOT_LOADED = "{error}", "install what is missing where the pool runs Python, or correct the file and deploy it"
    SLOW = (
        "{error}",
        "look for code outside of functions that waits, for example for a network, correct the file and deploy it",
    )
    ENDED = (
        "{file} ended its Python process while it was loaded",
        "look for code outside of functions that ends the process, such as os._exit, or takes too much memory, "
        "correct the file and deploy it",
    )
    JAR_MISSING = (
        "{error}",
        "copy the jar with sha256 {sha256} there, or deploy the table with another one",
    )
    CLASS_NOT_LOADED = "{cls} of {jar} cannot be loaded: {error}", "correct the class, and deploy the new jar"
    NEWER_JAVA = (
        "{cls} of {jar} is compiled for Java {needed}, and the pool runs Java {found}",
        "compile the jar for Java {found}, such as with javac --release {found}, and deploy it",
    )


class Queries(Protocol):
    """The streaming queries of the agent's Spark session; every call may raise PoolUnreachable or EngineRefused."""

    def start(self, start: QueryStart, run_id: str = "") -> ReportedQuery:
        """Start a query unless it is already running, and return it.

        A running query of the same name counts as the requested query if its run id is `run_id`, or if it is known to
        have been started with an equal `start`. Raises AnotherQuery if a different query runs under that name.
        """

    def stop(self, name: str, calling: Callable[[], object] = ignore_stop_request, *, upserts: bool = False) -> None:
        """Stop a query and wait until it has left the pool; `calling` is called before each stop request to Spark.

        With `upserts`, also wait until all writes of the query's last batch have ended.
        """

    def active(self) -> tuple[ReportedQuery, ...]:
        """Return all active queries of this session with their last progress."""

    def refresh(self, query: ReportedQuery) -> ReportedQuery:
        """Return a query with its progress, status message and trigger activity refreshed from Spark."""

    def ended(self) -> tuple[ReportedQuery, ...]:
        """Return the queries, with their errors, that have ended without a stop request since the previous call."""

    def register_running(self, name: str, id: str, run_id: str, jar: str = "") -> None:
        """Register a query that an earlier agent left running, so that `ended` will report its end.

        `jar` is the hash of the jar whose functions it calls; empty if there is none.
        """

    def load_functions(self, functions: Sequence[RegisteredFunction]) -> Fact[FunctionFault] | None:
        """Execute modules of Python functions, and load classes of jars, in the pool, and return the first error.

        Each is loaded once in a session.
        """

    def python_mismatch(self) -> Sentence | None:
        """Return why the pool's Python cannot run upserts; None if it can."""


def never() -> bool:
    """Return False; this is the default callback of `Jobs.build`."""
    return False


class Jobs(Protocol):
    """Builds the plans of jobs in Python. It takes seconds and has its own deadlines, so it is not a pool call."""

    def build(
        self,
        job: PythonJob,
        *,
        name: str,
        table: str,
        columns: tuple[tuple[str, str], ...],
        cancelled: Callable[[], bool] = never,
    ) -> BuiltJob:
        """Return the checked plan of the job of query `name`, which writes the columns, as (name, type), to a table.

        The code runs in a confined process. Raises EngineRefused with an error class HEADGATE_JOB_… if the job is
        wrong, PoolUnreachable if the pool does not answer, and Busy if somebody killed the process. `cancelled` is
        called several times a second; once it returns True, the process is killed, and Busy is raised.
        """


def ignore_view(view: str) -> None:
    """Do nothing; this is the default callback of `Tables.swap`."""


Pointer = tuple[str, tuple[str, ...], tuple[str, ...]]
"""A view as (name, tables, columns), which is the union of the tables; the last table belongs to the version itself."""


@dataclass(frozen=True, slots=True)
class FileView:
    """A temporary view over some files of a table."""

    name: str
    folder: str
    """Folder of the table; partition values are read from each file's path below this folder."""
    files: tuple[str, ...]
    columns: tuple[tuple[str, str], ...]
    """Declared columns as (name, type); the view has NULL for a column that a file lacks."""
    format: str = "parquet"


@dataclass(frozen=True, slots=True)
class CatalogTable:
    """A table to be registered in the pool's catalog."""

    name: str
    ddl: str
    """The compiled CREATE TABLE IF NOT EXISTS."""
    exists: bool = False
    """Whether the table already exists, in which case it keeps the columns in its transaction log."""
    columns: Mapping[str, str] | None = None
    """Column types by name, from the table's transaction log; None if the catalog must be asked instead."""


class Tables(Protocol):
    """Operations on the tables and views in the pool's catalog; repeating a call is harmless.

    A name may be qualified by its database, and that by its catalog: `orders`, `stage.orders`, `main.stage.orders`.
    """

    def create(self, name: str, ddl: str, *, exists: bool = False, columns: Mapping[str, str] | None = None) -> None:
        """Register a table with a compiled CREATE TABLE IF NOT EXISTS.

        If the table already `exists`, it keeps the columns in its transaction log. Their types, given by name in
        `columns`, are compared with the declaration; without `columns`, the types in the catalog are compared.
        """

    def create_over_avro(self, name: str, ddl: str, schemas: SchemasByPart) -> None:
        """Register a table over topics, given the registry's schemas of its messages; replace any older entry."""

    def create_together(self, tables: Sequence[CatalogTable]) -> frozenset[str]:
        """Create the missing tables among `tables` in one request.

        Return the names of those created, and of those that the catalog clearly has as declared. The caller must
        register all others with `create`. Raises EngineRefused if Spark refuses a table; other tables may have been
        created by then.
        """

    def create_database(self, name: str) -> None:
        """Create a database of the catalog unless it exists."""

    def places(self, names: Sequence[str]) -> Mapping[str, str]:
        """Return where the tables and views among `names` lie that the catalog has now.

        A view lies where the table lies that it reads. The place is empty if Spark cannot name it.
        """

    def has(self, name: str) -> bool:
        """True if the catalog currently has a table or view of the given name."""

    def copy_rows(self, ddl: str, note: str) -> None:
        """Replace the copy of a database table with its current rows, in one commit; create the copy if missing.

        `ddl` is compiled and names the folder of the copy. The commit contains `note`. Readers see the new rows from
        their next batch on.
        """

    def add_columns(self, name: str, columns: tuple[tuple[str, str], ...]) -> None:
        """Add the (name, type) columns that the table lacks."""

    def widen_columns(self, name: str, columns: tuple[tuple[str, str], ...], allowing: str) -> None:
        """Widen every column whose type in `columns`, as (name, type), is wider than its type in the table.

        `allowing` is the table property that permits widening.
        """

    def clone(self, name: str, source: str, version: int, location: str) -> None:
        """Replace an empty table with a clone of one version of the table in the folder `source`.

        The clone references the files of the source table, so they must be kept. A table that has rows is left
        unchanged.
        """

    def record_batch(self, location: str, query: str, batch: int) -> None:
        """Record in a table's log that the table contains a query's batch; do nothing if that is already recorded."""

    def forget(self, name: str) -> None:
        """Drop a table from the catalog without deleting its files."""

    def point(self, view: str, targets: tuple[str, ...], columns: tuple[str, ...]) -> None:
        """Make a view the union of `columns` of all target tables; create the view if it does not exist."""

    def point_together(self, pointers: Sequence[Pointer]) -> frozenset[str]:
        """Create the missing views in one request; raise EngineRefused like `create_together`.

        Return their names, and those of the views that exist exactly as they should be.
        """

    def swap(self, pointers: Sequence[Pointer], before: Callable[[str], object] = ignore_view) -> float:
        """Point all views at their target tables in one tight loop; return the duration of the loop in seconds.

        Everything that Spark could refuse is checked before the first view is changed. `before` is called with the name
        of each view immediately before that view is changed.
        """

    def existing_pointers(self, pointers: Sequence[Pointer]) -> frozenset[Pointer]:
        """Return the pointers whose view exists in the catalog with exactly their tables and columns."""

    def unpoint(self, view: str) -> None: ...
    def read(self, sql: str, limit: int) -> tuple[tuple[str, ...], tuple[tuple[object, ...], ...]]:
        """Run a batch query; return its column names and at most `limit` rows."""

    def read_files(
        self, sql: str, limit: int, views: Sequence[FileView], tag: str = ""
    ) -> tuple[tuple[str, ...], tuple[tuple[object, ...], ...]]:
        """Run a batch query like `read`, but over temporary views of files; `cancel_reads` can cancel it by its tag."""

    def cancel_reads(self, tag: str) -> None:
        """Cancel all running reads with this tag, also on the server."""


class Analysis(Protocol):
    """Spark's analysis of statements, which uses empty tables and starts no query."""

    def engine(self) -> str:
        """Return Spark's version, which is requested once per session."""

    def ask(self, question: AnalysisQuestion) -> AnalysisAnswer:
        """Return Spark's analysis of a statement.

        Raises EngineRefused if an input table cannot be created, and TryAgain if the analysis may succeed later.
        """

    def clear(self) -> None:
        """Drop all tables and views created for earlier analyses."""


class TableUpkeep(Protocol):
    """Maintenance of table files; operations may take long and can be cancelled by their tag.

    A table is given by its catalog name or by the absolute folder of its log.
    """

    def optimize(self, table: str, tag: str) -> None:
        """Compact the small files of a table; the table stays unchanged if the operation is cancelled."""

    def vacuum(self, table: str, retain_h: str, tag: str) -> None:
        """Delete the files of a table that have been unreferenced for `retain_h` hours.

        If `retain_h` is empty, the table's own retention applies.
        """

    def cancel(self, tag: str) -> None:
        """Cancel all running operations with this tag, also on the server."""
