"""Column lineage of the declared project: what a person means by `table.column`, and what it stands on or feeds."""

import difflib
from collections.abc import Iterable
from typing import TYPE_CHECKING

from core.errors import UsageError
from core.names import TableName
from core.sql.inputs import Origin

if TYPE_CHECKING:
    from core.lineage import Lineage, Tracer
    from core.project import Project


def tracer_of(project: "Project") -> "Tracer":
    """Bind a tracer to a project; keep it, it reads each statement once."""
    from core.lineage import Tracer

    return Tracer(project)


def trace(tracer: "Tracer", words: str, direction: str) -> "Lineage":
    """Follow `table` or `table.column` up or down; raises UsageError for what the project does not declare."""
    return tracer.trace(origin_of(tracer, words), direction)


def origin_of(tracer: "Tracer", words: str) -> Origin:
    """Find what `table` or `table.column` names, in any case, with or without back-ticks."""
    table, _, column = (part.strip().strip("`") for part in words.partition("."))
    name = TableName(table.lower())
    if name not in tracer.tables():
        raise _unknown(f"{table or 'a table without a name'} is not declared in this project", name, tracer.tables())
    if not column and "." not in words:
        return Origin(name)
    found = tracer.column(name, column)
    if found is None:
        known = [each.name for each in tracer.columns(name)]
        raise _unknown(f"{name} has no column {column or 'without a name'}", column, known)
    return found


def _unknown(summary: str, word: str, known: Iterable[str]) -> UsageError:
    names = list(known)
    near = difflib.get_close_matches(word.lower(), [name.lower() for name in names], n=1)
    spelled = next((name for name in names if near and name.lower() == near[0]), "")
    listed = f"there are {', '.join(names[:12])}{' …' if len(names) > 12 else ''}"
    return UsageError(summary, remedy=f"did you mean {spelled}?" if spelled else listed)
