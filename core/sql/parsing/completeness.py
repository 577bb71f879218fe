"""Whether everything that the parser, or the words alone, take for a table was read: what was not is never silent.

This does not depend on how names are resolved: it looks at the parser's tree and at the tokens in front of it.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from sqlglot import exp

from core.sql.parsing.stream_clauses import ExtractedClauses
from core.sql.parsing.table_names import TableNames
from core.sql.tokens.lexer import SqlDiagnostic


def unread_tables(sources: Iterable[Any], names: TableNames, marks: ExtractedClauses) -> Iterator[SqlDiagnostic]:
    """Refuse each table that is neither read nor a part of WITH; `sources` are those of the tree, names resolved."""
    named = {*marks.named, *marks.by_start}
    # What the words do not show is SQL of another engine: `WHERE a = b, c` joins c for sqlglot.
    lost = named ^ names.placed
    for source in sources:
        if isinstance(source, exp.Table) and isinstance(source.this, exp.Identifier) and not _is_read(source):
            lost.add(int(source.this.meta.get("start", -1)))
    for start in sorted(lost):
        summary = "this part is not understood: it may read a table that Headgate does not see"
        yield SqlDiagnostic(summary, "write the table in FROM or JOIN, or move this part to WITH", start)


def _is_read(table: Any) -> bool:
    return "entry" in table.meta or "cte" in table.meta or table.find_ancestor(exp.Hint) is not None
