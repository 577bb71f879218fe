"""The table formats, and all in which they differ: what asks for the name of a format asks this table instead.

All of them are file sources of Spark: a table that a query writes names its files in a log beside them
(`_spark_metadata`), and a new checkpoint begins with every file that is there.
"""

from dataclasses import dataclass
from enum import Enum


class RowCounting(Enum):
    """How the rows of a file are known without Spark."""

    FOOTERS = "exact, from the footer of each file"
    LINES = "estimated from bytes, one row a line"
    NONE = "not known"


@dataclass(frozen=True, slots=True)
class TableFormat:
    """What holds for one format; its name is the one in `USING`."""

    name: str
    external_input: bool = False
    """Whether streams may follow files of it that come from outside."""
    written: bool = False
    """Whether statements may write it."""
    row_counting: RowCounting = RowCounting.NONE
    keeps_read_files: bool = False
    """Whether files from outside stay after they were read, so that a folder without them is another table's."""

    @property
    def counts_rows_exactly(self) -> bool:
        """Return whether its rows are counted, not estimated."""
        return self.row_counting is RowCounting.FOOTERS


_FORMATS = (
    TableFormat("parquet", True, written=True, row_counting=RowCounting.FOOTERS, keeps_read_files=True),
    TableFormat("json", True, row_counting=RowCounting.LINES),
    TableFormat("csv", True, row_counting=RowCounting.LINES),
    TableFormat("orc", True),
    TableFormat("text", True, row_counting=RowCounting.LINES),
)
TABLE_FORMATS = {format.name: format for format in _FORMATS}
EXTERNAL_INPUTS = tuple(format.name for format in _FORMATS if format.external_input)
WRITTEN = tuple(format.name for format in _FORMATS if format.written)


def table_format(name: str) -> TableFormat:
    """Return the row of a format; one that is not in the table is neither read nor written, and is not counted."""
    return TABLE_FORMATS.get(name) or TableFormat(name)
