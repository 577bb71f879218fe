"""What a SQL text says, as frozen values that need no parser to read."""

import re
from collections.abc import Collection
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from core.model.names import TableName

TAKES_CHANGES = ("readChangeFeed", "true")
"""The option of a stream that takes the changes of a table (Delta)."""


class Verb(StrEnum):
    """What a statement does with its query."""

    INSERT = "insert into"
    OVERWRITE = "insert overwrite"
    MERGE = "merge into"
    CREATE = "create table as"
    SELECT = "select"


@dataclass(frozen=True, slots=True)
class Watermark:
    """`WATERMARK <expression> [AS <name>] DELAY OF INTERVAL …`."""

    column: str
    delay: str
    """As normalised text: `1 minute`."""


@dataclass(frozen=True, slots=True)
class TableRead:
    """One reference to a table in a statement, in text order."""

    table: TableName
    streaming: bool
    alias: str = ""
    options: tuple[tuple[str, str], ...] = ()
    source_name: str = ""
    """IDENTIFIED BY, empty when unnamed."""
    watermark: Watermark | None = None
    start: int = 0
    """Character span of the table's name inside `ParsedStatement.select` (what compiling replaces)."""
    end: int = 0
    alias_at: int | None = None
    """Where compiling writes the logical name as alias, because it qualifies a column; None where nothing is needed."""
    implied: bool = False
    """Whether it streams without STREAM being written, because every table of the project does."""
    changes_implied: bool = False
    """Whether its option for changes is not written, because its table replaces rows by key."""

    @property
    def takes_changes(self) -> bool:
        """Return whether it streams the changes of its table (Delta), not its rows."""
        wanted = tuple(part.lower() for part in TAKES_CHANGES)
        return any((name.lower(), value.lower()) == wanted for name, value in self.options)


@dataclass(frozen=True, slots=True)
class Operator:
    """A stateful operator, lowest first."""

    kind: str
    """aggregate, window, session_window, deduplicate, stream_join or limit."""
    keys: tuple[str, ...] = ()
    detail: str = ""
    """Canonical text of aggregates, window length or join type and condition."""


@dataclass(frozen=True, slots=True)
class Column:
    """An output column; `expression` is canonical SQL, `*` when a star stands for many."""

    name: str
    expression: str
    type: str = ""
    nullable: bool = True
    comment: str = ""


CHANGE_COLUMNS = (
    Column("_change_type", "", "string"),
    Column("_commit_version", "", "bigint"),
    Column("_commit_timestamp", "", "timestamp"),
)
"""What a stream of changes has beside the columns of its table (Delta 4.4.0)."""


SIMPLIFIED = "; as Spark simplifies "
"""Stands in `ParsedStatement.state` before what reads the aggregates, where it may change which of them are kept."""


@dataclass(frozen=True, slots=True)
class ParsedStatement:
    """One statement with a query: in a pipeline `INSERT INTO <table> [(columns)] SELECT …`."""

    writes: TableName
    """Empty where nothing is written."""
    select: str
    """The SELECT (with its WITH) exactly as written."""
    reads: tuple[TableRead, ...]
    columns: tuple[Column, ...]
    operators: tuple[Operator, ...]
    canonical: str
    """Equal for equal meaning as far as we can prove: case, whitespace, comments, aliases, order of AND terms."""
    state: str
    """Canonical text of the stateful operators: keys, aggregates, windows, watermarks, joins; empty when stateless."""
    pre: str
    """Canonical text of what lies below the lowest stateful operator; the whole query when stateless."""
    post: str
    """Canonical text of what lies above the highest stateful operator; empty when stateless."""
    line: int = 1
    """Line in the file where the statement starts."""
    verb: Verb = Verb.INSERT

    @property
    def read_above(self) -> str:
        """Return what reads the aggregates, where Spark may simplify it and keep fewer; empty where it keeps all."""
        return self.state.partition(SIMPLIFIED)[2]

    @property
    def stateful(self) -> bool:
        """Return whether Spark keeps state for this statement between batches."""
        return bool(self.operators)


@dataclass(frozen=True, slots=True)
class TableDdl:
    """One `CREATE TABLE`."""

    table: TableName
    columns: tuple[Column, ...]
    """In order; `type` is Spark's DDL type in lower case; `expression` is empty."""
    format: str
    partitioning: tuple[str, ...] = ()
    location: str = ""
    """As written; relative to the environment's data folder; empty for tables that we place."""
    properties: tuple[tuple[str, str], ...] = ()
    options: tuple[tuple[str, str], ...] = ()
    comment: str = ""
    line: int = 1

    def location_in(self, data: str) -> str:
        """Return where it lies: as written where that is absolute, else below the data folder."""
        absolute = "://" in self.location or self.location.startswith(("/", "file:"))
        return self.location if absolute else f"{data}/{self.location}"


_STAR = re.compile(r"(?:\b(?:SELECT|DISTINCT|ALL)\s*|(?<!\bcount)\(\s*|,\s*|\.)\*", re.I)
"""In canonical SQL: no product, and no `count(*)`."""


def selects_star(parsed: ParsedStatement) -> bool:
    """Return whether a statement takes columns that it does not name, at any level.

    What a table that is read gets comes through such a star without a word in the text.
    """
    return _STAR.search(parsed.canonical) is not None


def line_of(text: str, parsed: ParsedStatement, offset: int) -> int:
    """Return the line in the file, from 1, of an offset in `parsed.select`."""
    plain = text.removeprefix("\ufeff").replace("\r\n", "\n")
    select = parsed.select.replace("\r\n", "\n")
    within = parsed.select[:offset].count("\n")
    start_of_line = [0, *(found.end() for found in re.finditer("\n", plain))]
    begin = start_of_line[min(max(parsed.line, 1), len(start_of_line)) - 1]
    at = plain.find(select, begin)
    return (plain.count("\n", 0, at) + 1 if at >= 0 else parsed.line) + within


def with_change_feeds(parsed: ParsedStatement, tables: Collection[str]) -> ParsedStatement:
    """Return a statement that streams the changes of some tables where it does not say what it takes of them."""
    if not any(read.table in tables for read in parsed.reads):
        return parsed
    return replace(parsed, reads=tuple(_taking(read) if read.table in tables else read for read in parsed.reads))


def _taking(read: TableRead) -> TableRead:
    if not read.streaming or read.takes_changes:
        return read
    return replace(read, options=(TAKES_CHANGES, *read.options), changes_implied=True)


AT_VERSION, AT_TIME = "startingVersion", "startingTimestamp"
_FORM = re.compile(rf"(\w+) WITH \('({AT_VERSION}|{AT_TIME})'='([^']+)'\)\Z")


class LogStart(NamedTuple):
    """Where a stream of one table begins: what the table got before is not read."""

    table: TableName
    option: str
    """`AT_VERSION` or `AT_TIME`: Spark heeds it in a first batch alone (Delta 4.4.0)."""
    value: str

    def __str__(self) -> str:
        """Write it as it stands in SQL."""
        return f"{self.table} WITH ('{self.option}'='{self.value}')"


def describe_log_start(text: str) -> str:
    """Return in words what an entry of `begins_where` leaves of a stream; a condition says it itself."""
    found = read_log_start(text)
    if found is None:
        return text
    if found.option == AT_VERSION:
        return f"{found.table} from version {found.value} on"
    return f"what was committed to {found.table} from {found.value} on"


def read_log_start(text: str) -> LogStart | None:
    """Read one of the entries of `begins_where`; None where that is a condition."""
    found = _FORM.match(text)
    return LogStart(TableName(found[1]), found[2], found[3]) if found else None
