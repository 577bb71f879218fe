"""Sample rows made up from the declaration of a source, for a source that has no rows yet."""

import base64
import re
from datetime import date, datetime
from decimal import Decimal

from core.bench.replayed_load import SourceSample, is_time
from core.model.names import TableName
from core.sql.tokens.data_types import element_type, fields_of
from core.statement_tests.case_writer import ROWS, Literals, made_up_row

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
            name: plain_value(one if _KEY.match(name) else other, kind)
            for (name, kind), one, other in zip(columns, unique, repeated, strict=True)
        }
        rows.append(row | {name: value for name, value in _FIXED.items() if name in row})
    return SourceSample(table, columns, tuple(rows), event_column, made_up=True)


def plain_value(value: object, kind: str) -> object:
    """Convert a value in the form of `core.statement_tests.typed_values` to one as JSON has it, except for times."""
    if value is None or is_time(kind) or isinstance(value, datetime | date):
        return value
    if kind.startswith("array<") and isinstance(value, tuple):
        return [plain_value(each, element_type(kind)) for each in value]
    if kind.startswith("map<") and isinstance(value, tuple):
        return {str(key): plain_value(each, element_type(kind)) for key, each in value}
    if kind.startswith("struct<") and isinstance(value, tuple):
        return {name: plain_value(each, of) for each, (name, of) in zip(value, fields_of(kind), strict=True)}
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    return float(value) if isinstance(value, Decimal) else value
