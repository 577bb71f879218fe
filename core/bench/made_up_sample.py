"""Sample rows made up from the declaration of a source, for a source that has no rows yet."""

import re

from core.bench.replayed_load import SourceSample
from core.model.names import TableName
from core.statement_tests.case_writer import ROWS, Literals, made_up_row
from core.statement_tests.typed_values import json_value

MADE_UP = 200
"""Number of rows that are made up for a source."""
VALUES = 20
"""Number of different values of a column that is not a key."""

_KEY = re.compile(r"(.*_)?(id|key|no|number|uuid|code|sequence|lsn|xid)\Z", re.IGNORECASE)
_FIXED = {"_op": "c", "_corrupt": None}
"""Values of columns about messages and changes: each change is an insert, and each message can be read."""


def made_up_sample(
    table: TableName, columns: tuple[tuple[str, str], ...], literals: Literals, *, event_column: str
) -> SourceSample:
    """Make up a sample. Rows of the same number have the same keys in every source, so that joins find matches.

    `literals` are the texts with which statements compare columns (`literals_in`).
    """
    rows = []
    for number in range(MADE_UP):
        unique = made_up_row(columns, ROWS + 1 + number, literals)
        repeated = made_up_row(columns, ROWS + 1 + number % VALUES, literals)
        row = {
            name: json_value(one if _KEY.match(name) else other, kind)
            for (name, kind), one, other in zip(columns, unique, repeated, strict=True)
        }
        rows.append(row | {name: value for name, value in _FIXED.items() if name in row})
    return SourceSample(table, columns, tuple(rows), event_column, made_up=True)
