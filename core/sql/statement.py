"""Values that describe a parsed statement or DDL; they are frozen and can be used without a parser."""

import re
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple

from core.model.names import TableName

TAKES_CHANGES = ("readChangeFeed", "true")
"""The option that makes a stream read a table's change feed (Delta)."""


PYTHON = "python"
"""Kind of the stateful operator that stands for a job in Python: only Spark knows which state its code keeps."""


class Verb(StrEnum):
    """The kind of a statement, which determines what happens to the rows of its query."""

    INSERT = "insert into"
    OVERWRITE = "insert overwrite"
    MERGE = "merge into"
    CREATE = "create table as"
    SELECT = "select"


@dataclass(frozen=True, slots=True)
class Watermark:
    """The clause `WATERMARK <expression> [AS <name>] DELAY OF INTERVAL …`."""

    column: str
    delay: str
    """The normalised delay, such as `1 minute`."""


@dataclass(frozen=True, slots=True)
class TableRead:
    """A reference to a table in a statement; a statement lists its reads in text order."""

    table: TableName
    streaming: bool
    alias: str = ""
    options: tuple[tuple[str, str], ...] = ()
    source_name: str = ""
    """The name after IDENTIFIED BY; empty if there is none."""
    watermark: Watermark | None = None
    start: int = 0
    """Offset of the table's name in `ParsedStatement.select`; compiling replaces the SQL from `start` to `end`."""
    end: int = 0
    alias_at: int | None = None
    """Offset at which compiling adds the logical name as an alias; None unless the logical name qualifies a column."""
    implied: bool = False
    """Whether the table is streamed although STREAM is not written, because the project streams every table."""
    changes_implied: bool = False
    """Whether the change feed option is implied, because the table replaces rows by key."""

    @property
    def takes_changes(self) -> bool:
        """Whether the read streams a Delta table's change feed instead of its rows."""
        wanted = tuple(part.lower() for part in TAKES_CHANGES)
        return any((name.lower(), value.lower()) == wanted for name, value in self.options)


@dataclass(frozen=True, slots=True)
class Operator:
    """A stateful operator; a statement's operators are listed in data-flow order, starting at the table scans."""

    kind: str
    """One of `aggregate`, `window`, `session_window`, `deduplicate`, `stream_join` or `limit`; `python` for a job."""
    keys: tuple[str, ...] = ()
    detail: str = ""
    """Canonical SQL of the aggregates, the window length, or the join type and condition."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table or query.

    For a column of a query, `expression` is canonical SQL, or `*` for a star that stands for many columns.
    """

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
"""Columns that a change feed adds to the columns of its table (Delta 4.4.0)."""


RequiredColumns = tuple[tuple[tuple[TableName, ...], tuple[str, ...]], ...]
"""Pairs of tables and columns (sorted, in lower case): at least one of the tables must have each of the columns."""


SIMPLIFIED = "; as Spark simplifies "
"""Separator in `ParsedStatement.state`; the expressions after it determine which aggregates Spark keeps."""


@dataclass(frozen=True, slots=True)
class ParsedStatement:
    """A statement that contains a query; in a pipeline, always `INSERT INTO <table> [(columns)] SELECT …`."""

    writes: TableName
    """The target table; empty for a statement that writes nothing."""
    select: str
    """The SELECT and the WITH before it, exactly as written."""
    reads: tuple[TableRead, ...]
    columns: tuple[Column, ...]
    operators: tuple[Operator, ...]
    canonical: str
    """Canonical SQL, equal only for queries that are provably equivalent.

    It does not depend on case, whitespace, comments, aliases or the order of AND terms.
    """
    state: str
    """Canonical form of the stateful operators (keys, aggregates, windows, watermarks, joins); empty if stateless."""
    pre: str
    """Canonical SQL of everything below the lowest stateful operator; the whole query if it is stateless."""
    post: str
    """Canonical SQL of everything above the highest stateful operator; empty for a stateless query."""
    line: int = 1
    """Line of the file in which the statement starts, counted from 1."""
    verb: Verb = Verb.INSERT
    requires: RequiredColumns | None = field(default=None, compare=False)
    """Columns that suffice to resolve all names of the statement; None if the syntax is too uncommon to determine them.
    """

    @property
    def aggregate_deciding_expressions(self) -> str:
        """Expressions whose simplification may let Spark drop aggregates from its state; empty if it drops none."""
        return self.state.partition(SIMPLIFIED)[2]

    @property
    def in_python(self) -> bool:
        """Whether the statement is a job in Python, whose text is that of `core.sql.python_jobs`."""
        return bool(self.operators) and self.operators[0].kind == PYTHON

    @property
    def stateful(self) -> bool:
        """Whether Spark keeps state between the batches of this statement."""
        return bool(self.operators)


@dataclass(frozen=True, slots=True)
class TableDdl:
    """A `CREATE TABLE` statement."""

    table: TableName
    columns: tuple[Column, ...]
    """Columns in order. Each `type` is Spark's DDL type in lower case, and each `expression` is empty."""
    format: str
    partitioning: tuple[str, ...] = ()
    location: str = ""
    """Location as written, relative to the environment's data folder; empty if Headgate chooses the location."""
    properties: tuple[tuple[str, str], ...] = ()
    options: tuple[tuple[str, str], ...] = ()
    comment: str = ""
    line: int = 1

    def location_in(self, data: str) -> str:
        """Return the absolute location of the table.

        `data` is the folder against which a relative location is resolved.
        """
        return absolute_location(self.location, data)


def absolute_location(location: str, data: str) -> str:
    """Return a location as an absolute one; a relative location lies in the folder `data`."""
    return location if "://" in location or location.startswith(("/", "file:")) else f"{data}/{location}"


_STAR = re.compile(r"(?:\b(?:SELECT|DISTINCT|ALL)\s*|(?<!\bcount)\(\s*|,\s*|\.)\*", re.I)
"""Matches the stars in canonical SQL, but neither products nor `count(*)`."""


def selects_star(parsed: ParsedStatement) -> bool:
    """True if a statement contains a star such as `SELECT *`, at any level.

    A column that is added to an input may then appear in the output, although the statement was not edited.
    """
    return not parsed.in_python and _STAR.search(parsed.canonical) is not None


def line_of(text: str, parsed: ParsedStatement, offset: int) -> int:
    """Return the line of the file, counted from 1, that contains an offset in `parsed.select`."""
    plain = text.removeprefix("\ufeff").replace("\r\n", "\n")
    select = parsed.select.replace("\r\n", "\n")
    within = parsed.select[:offset].count("\n")
    start_of_line = [0, *(found.end() for found in re.finditer("\n", plain))]
    begin = start_of_line[min(max(parsed.line, 1), len(start_of_line)) - 1]
    at = plain.find(select, begin)
    return (plain.count("\n", 0, at) + 1 if at >= 0 else parsed.line) + within


def with_change_feeds(parsed: ParsedStatement, tables: Collection[str]) -> ParsedStatement:
    """Return a statement in which all streams from `tables` read the change feeds of these tables.

    A stream that already reads a change feed is unchanged.
    """
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
    """The position in a table's transaction log at which a stream starts; earlier commits are not read."""

    table: TableName
    option: str
    """`AT_VERSION` or `AT_TIME`; Spark applies either only in the first batch of a stream (Delta 4.4.0)."""
    value: str

    def __str__(self) -> str:
        return f"{self.table} WITH ('{self.option}'='{self.value}')"


def describe_log_start(text: str) -> str:
    """Describe an entry of `begins_where` in English; a condition is returned unchanged."""
    found = read_log_start(text)
    if found is None:
        return text
    if found.option == AT_VERSION:
        return f"{found.table} from version {found.value} on"
    return f"commits to {found.table} from {found.value} on"


def read_log_start(text: str) -> LogStart | None:
    """Parse an entry of `begins_where` as a position in a table's transaction log; None if it is a condition."""
    found = _FORM.match(text)
    return LogStart(TableName(found[1]), found[2], found[3]) if found else None
