"""Sample rows made up from the declaration of a source, for a source that has no rows yet."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import date, timedelta

from core.bench.replayed_load import SourceSample
from core.model.names import TableName
from core.statement_tests.case_writer import BEGIN, ROWS, Literals, made_up_row, named_alike
from core.statement_tests.typed_values import json_value

MADE_UP = 200
"""Number of rows that are made up for a source."""
VALUES = 20
"""Number of different values of a column that is not a key."""

_KEY = re.compile(r"(.*_)?(id|key|no|number|uuid|code|sequence|lsn|xid)\Z", re.IGNORECASE)
_FIXED = {"_op": "c", "_corrupt": None}
"""Values of columns about messages and changes: each change is an insert, and each message can be read."""


SPACED = timedelta(seconds=10)
"""How long an interval of a stream lasts, and the time between two rows of a static side that are within intervals."""
EVER = timedelta(days=36_500)
"""How long an interval of a static side lasts."""


@dataclass(frozen=True, slots=True)
class ComparedInSource:
    """Which columns of a source statements compare with those of other sources."""

    names: Mapping[str, str] = field(default_factory=dict)
    """The name that each joined column shares with those that it is joined with."""
    ends: Collection[str] = ()
    """Columns that end an interval."""
    static: bool = False
    """Whether the source is a static side, in which a joined column has different values."""
    spaced: bool = False
    """Whether times have to be within intervals of a stream, so that every row has another one."""


def made_up_sample(
    table: TableName,
    columns: tuple[tuple[str, str], ...],
    literals: Literals,
    *,
    event_column: str,
    compared: ComparedInSource | None = None,
) -> SourceSample:
    """Make up a sample. Rows of the same number have the same keys in every source, so that joins find matches.

    `literals` are the texts with which statements compare columns (`literals_in`).
    """
    of = compared or ComparedInSource()
    named = named_alike(columns, of.names, literals)
    unique_names = of.names if of.static else {}
    lasts = EVER if of.static else SPACED
    rows = []
    for number in range(MADE_UP):
        moment = BEGIN + number * SPACED if of.spaced else None
        unique = made_up_row(named, ROWS + 1 + number, literals, moment)
        repeated = made_up_row(named, ROWS + 1 + number % VALUES, literals, moment)
        row = {
            name: json_value(one if _KEY.match(name) or name in unique_names else other, kind)
            for (name, kind), one, other in zip(columns, unique, repeated, strict=True)
        }
        row |= {name: value + lasts for name in of.ends if isinstance(value := row[name], date)}
        rows.append(row | {name: value for name, value in _FIXED.items() if name in row})
    return SourceSample(table, columns, tuple(rows), event_column, made_up=True)
