"""The table formats with everything in which they differ, and the column types that can be widened in place.

File tables are file sources of Spark: a table that a query writes names its files in a log beside them
(`_spark_metadata`), and a new checkpoint begins with every file that is there. A table with a transaction log
(`_delta_log`) has an id, versions and a record of what each query has written.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum

from core.model.names import whole_number


class RowCounting(Enum):
    """How the rows of a file are known without Spark."""

    FOOTERS = "exact, from the footer of each file"
    LOG = "exact, from the table's log"
    LINES = "estimated from bytes, one row a line"
    NONE = "not known"


@dataclass(frozen=True, slots=True)
class TableFormat:
    """What holds for one format; its name is the one in `USING`."""

    name: str
    external_input: bool = False
    """Whether streams may follow what others write in it."""
    written: bool = False
    """Whether statements may write it."""
    row_counting: RowCounting = RowCounting.NONE
    keeps_read_files: bool = False
    """Whether files from outside stay after they were read, so that a folder without them is another table's."""

    connector: str = ""
    """What a pool needs beside Spark to read or write it; empty where Spark alone is enough."""
    transaction_log: bool = False
    """Whether it has a log of versions with an id of its own, in place of a log of files."""
    added_column_stops_readers: bool = False
    """Whether Spark ends each query that streams it as soon as a column is added (Delta 4.4.0)."""
    widening_property: str = ""
    """With which a column takes a wider type in place (`core.model.table_formats`), and stops readers as an added one
    does; empty where none does."""
    columns_are_fixed: bool = False
    """Whether a batch with a column that the table lacks is refused."""
    repeated_by_new_checkpoint: bool = False
    """What a new checkpoint on a table does that holds rows: True writes them once more, False loses new ones."""

    read_before_first_batch: bool = True
    """Whether what it holds can count as read before a first batch; else a batch has read it, and has kept no state."""
    starts_at_versions: bool = False
    """Whether a stream can begin at a version of it, or with what was committed from a time on."""
    clones: bool = False
    """Whether a version begins with the rows of another one by naming its files, which then have to stay."""
    keyed: bool = False
    """Whether the rows of a statement can replace others by their key."""
    keyed_properties: tuple[tuple[str, str], ...] = ()
    """Of a table whose rows do so, from its creation: what was not recorded then is never told to readers."""
    subfolder: str = ""
    """Where a version's table lies within its folder: Delta creates none beside our own files (4.4.0)."""

    retention_property: str = ""
    """How long files stay that the newest version does not hold, as a property of a table; empty where none do."""
    retention_h: float = 0.0
    """How long that is where a table does not say it, in hours."""

    data_files: str = ""
    """The format of the files that hold its rows; empty where it is its own."""

    def place_in(self, folder: str) -> str:
        """Return where the table of a version's folder lies."""
        return f"{folder}/{self.subfolder}" if self.subfolder else folder

    def kept_h(self, properties: Mapping[str, str]) -> float | None:
        """Return for how many hours a table keeps files that its newest version does not hold; None if unreadable."""
        said = properties.get(self.retention_property)
        return self.retention_h if said is None else _hours(said)

    @property
    def counts_rows_exactly(self) -> bool:
        """Return whether its rows are counted, not estimated."""
        return self.row_counting in (RowCounting.FOOTERS, RowCounting.LOG)


_HOURS_BY_UNIT = {"week": 168.0, "day": 24.0, "hour": 1.0, "minute": 1 / 60, "second": 1 / 3600}


def _hours(interval: str) -> float | None:
    """Read `interval 7 days`, also without its first word; None for what is written in another way."""
    words = interval.lower().removeprefix("interval").split()
    found = 0.0
    for word, unit in zip(words[::2], words[1::2], strict=False):
        number = whole_number(word)
        if number is None or unit.removesuffix("s") not in _HOURS_BY_UNIT:
            return None
        found += number * _HOURS_BY_UNIT[unit.removesuffix("s")]
    return found if words and len(words) % 2 == 0 else None


_FORMATS = (
    TableFormat("parquet", True, written=True, row_counting=RowCounting.FOOTERS, keeps_read_files=True),
    TableFormat("json", True, row_counting=RowCounting.LINES),
    TableFormat("csv", True, row_counting=RowCounting.LINES),
    TableFormat("orc", True),
    TableFormat("text", True, row_counting=RowCounting.LINES),
    TableFormat(
        "delta", True, written=True, row_counting=RowCounting.LOG, connector="delta", transaction_log=True,
        added_column_stops_readers=True, widening_property="delta.enableTypeWidening", columns_are_fixed=True,
        repeated_by_new_checkpoint=True, read_before_first_batch=False, starts_at_versions=True,
        clones=True, keyed=True,
        keyed_properties=(("delta.enableChangeDataFeed", "true"),), subfolder="delta",
        data_files="parquet", retention_property="delta.deletedFileRetentionDuration", retention_h=168.0,
    ),
)  # fmt: skip
TABLE_FORMATS = {format.name: format for format in _FORMATS}
EXTERNAL_INPUTS = tuple(format.name for format in _FORMATS if format.external_input)
WRITTEN = tuple(format.name for format in _FORMATS if format.written)


_OF_OTHERS = " of others"
"""Behind the name of a format with a log: a table that lies in its own folder, and that others write."""
TABLE_FORMATS_OF_OTHERS = {
    f"{format.name}{_OF_OTHERS}": replace(format, subfolder="", written=False, clones=False, keyed=False)
    for format in _FORMATS
    if format.transaction_log
}


def table_format(name: str) -> TableFormat:
    """Return the row of a format; one that is not in the table is neither read nor written, and is not counted."""
    return TABLE_FORMATS.get(name) or TABLE_FORMATS_OF_OTHERS.get(name) or TableFormat(name)


def format_of_others(name: str) -> str:
    """Return the name by which `table_format` knows a table that others write: its log is in its own folder."""
    return f"{name}{_OF_OTHERS}" if table_format(name).transaction_log else name


_WHOLE_NUMBERS = ("tinyint", "smallint", "int", "bigint")
_DECIMAL = re.compile(r"decimal\(([0-9]{1,9}),([0-9]{1,9})\)")


def is_wider(kind: str, than: str) -> bool:
    """True if a column can be widened in place from `than` to `kind`; both as `read_type` writes them (Delta 4.4.0).

    Delta could also widen whole numbers to decimals or doubles, but readers would then compute differently, and dates
    to timestamps, which needs another table feature: both stay rebuilds.
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
    """True if a stream that writes `kind` into the narrower type `into` rounds silently (Delta 4.4.0).

    Values that are too large raise an error; surplus decimal digits are rounded.
    """
    if into == "float":
        return True
    wide, narrow = _DECIMAL.fullmatch(kind), _DECIMAL.fullmatch(into)
    return wide is not None and narrow is not None and int(wide[2]) > int(narrow[2])
