"""The contents of an SQL text as frozen values, which can be used without a parser."""

import re
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple

from core.model.names import TableName

TAKES_CHANGES = ("readChangeFeed", "true")
"""The option with which a stream reads a table's change feed (Delta)."""


class Verb(StrEnum):
    """What a statement does with its query."""

    INSERT = "insert into"
    OVERWRITE = "insert overwrite"
    MERGE = "merge into"
    CREATE = "create table as"
    SELECT = "select"


@dataclass(frozen=True, slots=True)
class Watermark:
    """A watermark clause: `WATERMARK <expression> [AS <name>] DELAY OF INTERVAL …`."""

    column: str
    delay: str
    """The delay as normalised text, such as `1 minute`."""


@dataclass(frozen=True, slots=True)
class TableRead:
    """A reference to a table in a statement; reads are in text order."""

    table: TableName
    streaming: bool
    alias: str = ""
    options: tuple[tuple[str, str], ...] = ()
    source_name: str = ""
    """The name after IDENTIFIED BY; empty if there is none."""
    watermark: Watermark | None = None
    start: int = 0
    """Offset of the table's name in `ParsedStatement.select`; compiling replaces the text from there to `end`."""
    end: int = 0
    alias_at: int | None = None
    """Offset at which compiling adds the logical name as an alias; None unless the name qualifies a column."""
    implied: bool = False
    """Whether the table is streamed although STREAM is not written, because every table of the project is."""
    changes_implied: bool = False
    """Whether the change feed option is implied, because the table replaces rows by key."""

    @property
    def takes_changes(self) -> bool:
        """Whether the read streams the table's changes (Delta) instead of its rows."""
        wanted = tuple(part.lower() for part in TAKES_CHANGES)
        return any((name.lower(), value.lower()) == wanted for name, value in self.options)


@dataclass(frozen=True, slots=True)
class Operator:
    """A stateful operator; operators are listed from the scans upwards."""

    kind: str
    """One of `aggregate`, `window`, `session_window`, `deduplicate`, `stream_join` or `limit`."""
    keys: tuple[str, ...] = ()
    detail: str = ""
    """Canonical text of the aggregates, the window length, or the join type and condition."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column; of a query, `expression` is canonical SQL, or `*` for a star that stands for many columns."""

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
"""Columns that a change feed adds to those of its table (Delta 4.4.0)."""


RequiredColumns = tuple[tuple[tuple[TableName, ...], tuple[str, ...]], ...]
"""Sorted columns in lower case, by the tables of which at least one must have them."""


SIMPLIFIED = "; as Spark simplifies "
"""Separator in `ParsedStatement.state`, before the expressions that decide which aggregates Spark keeps."""


@dataclass(frozen=True, slots=True)
class ParsedStatement:
    """A statement with a query; in a pipeline it is `INSERT INTO <table> [(columns)] SELECT …`."""

    writes: TableName
    """The target table; empty for a statement that writes nothing."""
    select: str
    """The SELECT with its WITH, exactly as written."""
    reads: tuple[TableRead, ...]
    columns: tuple[Column, ...]
    operators: tuple[Operator, ...]
    canonical: str
    """Canonical text, equal only for queries that are provably equivalent.

    Case, whitespace, comments, aliases and the order of AND do not affect it.
    """
    state: str
    """Canonical text of the stateful operators: keys, aggregates, windows, watermarks, joins; empty if stateless."""
    pre: str
    """Canonical text of everything below the lowest stateful operator; of the whole query if stateless."""
    post: str
    """Canonical text of everything above the highest stateful operator; empty if stateless."""
    line: int = 1
    """Line of the file in which the statement starts."""
    verb: Verb = Verb.INSERT
    requires: RequiredColumns | None = field(default=None, compare=False)
    """Columns that make all names of the statement resolve if they are declared; None if unknown, as for rarer syntax.
    """

    @property
    def read_above(self) -> str:
        """The expressions that may let Spark keep fewer aggregates in its state; empty if it keeps all."""
        return self.state.partition(SIMPLIFIED)[2]

    @property
    def stateful(self) -> bool:
        """Whether Spark keeps state for this statement between batches."""
        return bool(self.operators)


@dataclass(frozen=True, slots=True)
class TableDdl:
    """A `CREATE TABLE` statement."""

    table: TableName
    columns: tuple[Column, ...]
    """Columns in order; `type` is Spark's DDL type in lower case, `expression` is empty."""
    format: str
    partitioning: tuple[str, ...] = ()
    location: str = ""
    """Location as written, relative to the environment's data folder; empty if Headgate chooses it."""
    properties: tuple[tuple[str, str], ...] = ()
    options: tuple[tuple[str, str], ...] = ()
    comment: str = ""
    line: int = 1

    def location_in(self, data: str) -> str:
        """Return the absolute location: as written if it is absolute, else below the data folder."""
        absolute = "://" in self.location or self.location.startswith(("/", "file:"))
        return self.location if absolute else f"{data}/{self.location}"


_STAR = re.compile(r"(?:\b(?:SELECT|DISTINCT|ALL)\s*|(?<!\bcount)\(\s*|,\s*|\.)\*", re.I)
"""Matches stars in canonical SQL, but neither products nor `count(*)`."""


def selects_star(parsed: ParsedStatement) -> bool:
    """Return whether a statement selects columns by a star, at any level.

    If so, columns that are added to its inputs reach its output without an edit.
    """
    return _STAR.search(parsed.canonical) is not None


def line_of(text: str, parsed: ParsedStatement, offset: int) -> int:
    """Return the line in the file, counted from 1, of an offset in `parsed.select`."""
    plain = text.removeprefix("\ufeff").replace("\r\n", "\n")
    select = parsed.select.replace("\r\n", "\n")
    within = parsed.select[:offset].count("\n")
    start_of_line = [0, *(found.end() for found in re.finditer("\n", plain))]
    begin = start_of_line[min(max(parsed.line, 1), len(start_of_line)) - 1]
    at = plain.find(select, begin)
    return (plain.count("\n", 0, at) + 1 if at >= 0 else parsed.line) + within


def with_change_feeds(parsed: ParsedStatement, tables: Collection[str]) -> ParsedStatement:
    """Return the statement with its reads of `tables` streaming change feeds, unless a read sets the option."""
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
    """The position in a table at which its stream starts; earlier rows are not read."""

    table: TableName
    option: str
    """`AT_VERSION` or `AT_TIME`, an option that Spark applies only in a first batch (Delta 4.4.0)."""
    value: str

    def __str__(self) -> str:
        return f"{self.table} WITH ('{self.option}'='{self.value}')"


def describe_log_start(text: str) -> str:
    """Describe an entry of `begins_where` to people; an entry that is a condition is returned as it is."""
    found = read_log_start(text)
    if found is None:
        return text
    if found.option == AT_VERSION:
        return f"{found.table} from version {found.value} on"
    return f"commits to {found.table} from {found.value} on"


def read_log_start(text: str) -> LogStart | None:
    """Parse an entry of `begins_where`; None if it is a condition."""
    found = _FORM.match(text)
    return LogStart(TableName(found[1]), found[2], found[3]) if found else None
