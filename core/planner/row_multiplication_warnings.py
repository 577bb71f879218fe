"""Warnings of edits after which the same input may give more rows, unless a declared key shows that it cannot."""

import re
from collections.abc import Iterator

from core.model.names import TableName
from core.planner.decisions import DeployWalk
from core.project.model import Table

_NO_DUPLICATES = re.compile(
    r"\s*select\b.+?\bfrom\s+`?(?P<table>\w+)`?\s+group\s+by\s+(?P<keys>[\w`,\s]+?)\s+"
    r"having\s+count\s*\(\s*(?:\*|1)\s*\)\s*(?:>\s*1|>=\s*2|<>\s*1)\s*;?\s*",
    re.IGNORECASE | re.DOTALL,
)
"""A check that returns a row for each key that stands more than once."""


def warn_of_multiplied_rows(walk: DeployWalk, table: TableName) -> None:
    """Warn of each edit of a statement that may write more rows for a row of its input than the deployed one does."""
    compared = walk.context.changes.compared(table)
    if compared is None or compared[0].parsed is None or compared[1].parsed is None:
        return
    old, new = (revision.parsed for revision in compared)
    assert old is not None and new is not None
    if old.canonical == new.canonical:
        return
    # The parser is loaded only where a statement was edited.
    from core.sql.comparison.row_multiplication import row_multipliers

    for found in row_multipliers(old, new, compared[1].parents):
        does = "adds rows" if found.certain else "may multiply rows"
        words = f"{does}: {found.edit}" + (f": {found.detail}" if found.detail else "")
        joined = walk.context.declared.tables.get(TableName(found.table))
        keys = tuple(_declared_keys(joined)) if joined is not None else ()
        if not any(key <= found.equated for key in keys):
            outcome = _what_decides(found.table, found.equated, keys) or found.outcome
            walk.found.warn(table, f"{words}; {outcome}", multiplies_rows=True)


def _what_decides(table: str, equated: frozenset[str], keys: tuple[frozenset[str], ...]) -> str:
    """Describe how many rows a join with a table makes of one; empty where it is not a table that is joined."""
    if not table:
        return ""
    if keys:
        return f"it does not equate the key of {table}, {' or '.join(', '.join(sorted(key)) for key in keys)}"
    if not equated:
        return f"each row of {table} that meets it makes a row"
    by = ", ".join(sorted(equated))
    return f"as many as {table} has rows for each {by}, and no key of {table} is declared"


def _declared_keys(table: Table) -> Iterator[frozenset[str]]:
    """Return the sets of columns, in lower case, of whose values the table has each once by its yml."""
    if table.settings.key:
        yield frozenset(name.lower() for name in table.settings.key)
    for _, sql in table.settings.checks:
        found = _NO_DUPLICATES.fullmatch(sql)
        if found is not None and found["table"].lower() == table.name:
            yield frozenset(name.strip(" `\n\t").lower() for name in found["keys"].split(","))
