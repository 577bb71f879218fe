"""All differences between table formats, and the column types that can be widened in place.

A query that writes a table of a file format lists the table's files in a log (`_spark_metadata`), and a stream with a
new checkpoint starts with all existing files. A table with a transaction log (`_delta_log`) has an id, versions, and a
record of the batches that each query wrote.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum

from core.model.names import whole_number


class RowCounting(Enum):
    """How the rows of a file can be counted without Spark."""

    FOOTERS = "exact, from the footer of each file"
    LOG = "exact, from the table's log"
    LINES = "estimated from bytes, one row a line"
    NONE = "not known"


@dataclass(frozen=True, slots=True)
class TableFormat:
    """The properties of a table format; `name` is the name used in a `USING` clause."""

    name: str
    external_input: bool = False
    """Whether a stream may read tables of this format that other systems write."""
    written: bool = False
    """Whether statements may write tables of this format."""
    row_counting: RowCounting = RowCounting.NONE
    keeps_read_files: bool = False
    """Whether the files of an external table must stay in place after they were read.

    If so, a folder that lacks such files counts as a different table.
    """

    connector: str = ""
    """The connector that a pool needs to read or write the format; empty if Spark alone is enough."""
    transaction_log: bool = False
    """Whether tables have a transaction log with a table id, instead of Spark's log of files."""
    added_column_stops_readers: bool = False
    """Whether Spark ends every query that streams a table when a column is added to it (Delta 4.4.0)."""
    widening_property: str = ""
    """The table property that allows widening a column in place; empty if unsupported.

    Widening stops readers in the same way as an added column.
    """
    columns_are_fixed: bool = False
    """Whether a write fails if its batch has a column that the table lacks."""
    repeated_by_new_checkpoint: bool = False
    """What happens if a statement with rows in its table gets a new checkpoint: it writes the rows again (True), or new
    rows are lost (False)."""

    read_before_first_batch: bool = True
    """Whether even a stateful reader can mark existing rows as read before its first batch, to read only new rows."""
    starts_at_versions: bool = False
    """Whether a stream can start at a table version or at a commit time."""
    clones: bool = False
    """Whether a version can start as a clone, which references files of another version that must then be kept."""
    keyed: bool = False
    """Whether statements can upsert rows by key."""
    keyed_properties: tuple[tuple[str, str], ...] = ()
    """Properties that an upserted table needs from its creation on, so that its readers see every change."""
    subfolder: str = ""
    """Subfolder of a version's folder that holds the table itself, because Delta creates no table beside other files
    (Delta 4.4.0).
    """

    retention_property: str = ""
    """The table property that sets how long unreferenced files are kept; empty if the format has no such files."""
    retention_h: float = 0.0
    """The default retention of unreferenced files, in hours."""
    log_retention_property: str = ""
    """The table property that sets how long commits are kept in the log; empty if the format has no log."""
    log_retention_h: float = 0.0
    """The default retention of commits, in hours."""

    data_files: str = ""
    """The format of the data files if it differs from the table format; otherwise empty.

    Statement tests and Spark's analysis use it for tables whose format does not store rows in plain files.
    """
    conversions_known: bool = False
    """Whether it was measured what a reader gets from files with another type of a column (Spark 4.2.0)."""
    topics: bool = False
    """Whether the rows are messages in a broker's topics instead of files; such a table can only be streamed."""
    database: bool = False
    """Whether the rows are in a database instead of files; such a table can only be read as a static side."""

    changes: bool = False
    """Whether the rows are changes in the log of a database; such a table can only be streamed."""

    @property
    def has_files(self) -> bool:
        """Whether the rows are in files, not in another system that the pool reads through a view."""
        return not (self.topics or self.database or self.changes)

    def place_in(self, folder: str) -> str:
        """Return the folder of the table itself, given the folder of its version."""
        return f"{folder}/{self.subfolder}" if self.subfolder else folder

    def kept_h(self, properties: Mapping[str, str]) -> float | None:
        """Return how many hours a table keeps unreferenced files; None if its retention property cannot be parsed."""
        said = properties.get(self.retention_property)
        return self.retention_h if said is None else _hours(said)

    def log_kept_h(self, properties: Mapping[str, str]) -> float | None:
        """Return how many hours a table keeps commits; None if its retention property cannot be parsed."""
        said = properties.get(self.log_retention_property)
        return self.log_retention_h if said is None else _hours(said)

    @property
    def counts_rows_exactly(self) -> bool:
        """Whether the row counts of this format are exact rather than estimated."""
        return self.row_counting in (RowCounting.FOOTERS, RowCounting.LOG)


_HOURS_BY_UNIT = {"week": 168.0, "day": 24.0, "hour": 1.0, "minute": 1 / 60, "second": 1 / 3600}


def _hours(interval: str) -> float | None:
    """Parse `interval 7 days` or `7 days` into hours; None for any other notation."""
    words = interval.lower().removeprefix("interval").split()
    found = 0.0
    for word, unit in zip(words[::2], words[1::2], strict=False):
        number = whole_number(word)
        if number is None or unit.removesuffix("s") not in _HOURS_BY_UNIT:
            return None
        found += number * _HOURS_BY_UNIT[unit.removesuffix("s")]
    return found if words and len(words) % 2 == 0 else None


_FORMATS = (
    TableFormat(
        "parquet", True, written=True, row_counting=RowCounting.FOOTERS, keeps_read_files=True, conversions_known=True
    ),
    TableFormat("json", True, row_counting=RowCounting.LINES),
    TableFormat("csv", True, row_counting=RowCounting.LINES),
    TableFormat("orc", True),
    TableFormat("text", True, row_counting=RowCounting.LINES),
    TableFormat("kafka", True, written=True, connector="kafka", topics=True, data_files="json"),
    TableFormat("jdbc", True, connector="postgres", database=True, data_files="json"),
    TableFormat("postgres_changes", True, connector="postgres", changes=True, data_files="json"),
    TableFormat(
        "delta", True, written=True, row_counting=RowCounting.LOG, connector="delta", transaction_log=True,
        added_column_stops_readers=True, widening_property="delta.enableTypeWidening", columns_are_fixed=True,
        repeated_by_new_checkpoint=True, read_before_first_batch=False, starts_at_versions=True,
        clones=True, keyed=True,
        keyed_properties=(("delta.enableChangeDataFeed", "true"),), subfolder="delta",
        data_files="parquet", retention_property="delta.deletedFileRetentionDuration", retention_h=168.0,
        log_retention_property="delta.logRetentionDuration", log_retention_h=720.0,
    ),
)  # fmt: skip
TABLE_FORMATS = {format.name: format for format in _FORMATS}
EXTERNAL_INPUTS = tuple(format.name for format in _FORMATS if format.external_input)
OVER_TOPICS = tuple(format.name for format in _FORMATS if format.topics)
WITHOUT_FILES = tuple(format.name for format in _FORMATS if not format.has_files)
WRITTEN = tuple(format.name for format in _FORMATS if format.written and format.has_files)


_OF_OTHERS = " of others"
"""Suffix of a format name for tables that other systems write, whose log is in the table's folder, not a subfolder."""
TABLE_FORMATS_OF_OTHERS = {
    f"{format.name}{_OF_OTHERS}": replace(format, subfolder="", written=False, clones=False, keyed=False)
    for format in _FORMATS
    if format.transaction_log
}


def table_format(name: str) -> TableFormat:
    """Return a format by name; an unknown name gives a format that Headgate can neither read, write nor count."""
    return TABLE_FORMATS.get(name) or TABLE_FORMATS_OF_OTHERS.get(name) or TableFormat(name)


def format_of_others(name: str) -> str:
    """Return the name of a format's variant for tables that other systems write, for use with `table_format`.

    A format without a transaction log has no such variant: its own name is returned.
    """
    return f"{name}{_OF_OTHERS}" if table_format(name).transaction_log else name


_WHOLE_NUMBERS = ("tinyint", "smallint", "int", "bigint")
_DECIMAL = re.compile(r"decimal\(([0-9]{1,9}),([0-9]{1,9})\)")


def is_wider(kind: str, than: str) -> bool:
    """True if a column of type `than` can be widened in place to type `kind` (Delta 4.4.0).

    Both types are spelled as `read_type` returns them. Delta can also widen whole numbers to decimals or doubles, which
    makes readers compute differently, and dates to timestamps, which needs another table feature. Headgate requires a
    rebuild for both.
    """
    if than in _WHOLE_NUMBERS and kind in _WHOLE_NUMBERS:
        return _WHOLE_NUMBERS.index(kind) > _WHOLE_NUMBERS.index(than)
    if (than, kind) == ("float", "double"):
        return True
    new, old = _DECIMAL.fullmatch(kind), _DECIMAL.fullmatch(than)
    if new is None or old is None:
        return False
    digits, scale = (int(new[n]) - int(old[n]) for n in (1, 2))
    return digits >= scale >= 0 and digits > 0


def rounds(kind: str, into: str) -> bool:
    """True if a stream that writes type `kind` into the narrower type `into` rounds silently (Delta 4.4.0).

    Values that are too large raise an error; surplus decimal digits are rounded.
    """
    if into == "float":
        return True
    wide, narrow = _DECIMAL.fullmatch(kind), _DECIMAL.fullmatch(into)
    return wide is not None and narrow is not None and int(wide[2]) > int(narrow[2])
