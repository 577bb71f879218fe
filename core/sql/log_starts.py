"""The option with which a stream begins at a place in the log of its table, as plans and the registry write it."""

import re
from typing import NamedTuple

from core.model.names import TableName

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


def words_of(text: str) -> str:
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
