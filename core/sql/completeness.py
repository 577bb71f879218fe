"""Whether everything that the parser, or the words alone, take for a table was read: what was not is never silent.

This knows nothing of how names are resolved: it looks at the parser's tree and at the tokens in front of it.
"""

from collections.abc import Iterator
from typing import Any

from sqlglot import exp

from core.sql.lexing import Misread
from core.sql.streams import Marks


def tables_in(query: Any) -> list[tuple[int, Any]]:
    """List what the parser takes for the name of a table: its offset, and the node that is resolved later."""
    return [
        (int(table.this.meta.get("start", -1)), table)
        for table in query.find_all(exp.Table)
        if isinstance(table.this, exp.Identifier)
    ]


def unread(tables: list[tuple[int, Any]], marks: Marks) -> Iterator[Misread]:
    """Refuse each table that is neither read nor a part of WITH, once the names are resolved."""
    parsed = {start for start, _ in tables}
    left = (each for each in tables if "entry" not in each[1].meta and "cte" not in each[1].meta)
    lost = {start for start, table in left if table.find_ancestor(exp.Hint) is None}
    lost.update(start for start in (*marks.named, *marks.by_start) if start not in parsed)
    for start in sorted(lost):
        summary = "this part is not understood: a table may be read here, and is not followed"
        yield Misread(summary, "write the table in FROM or JOIN, or name this part with WITH", start)
