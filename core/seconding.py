"""A change as Spark sees it too: what it is asked, and what its answer makes of ours."""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace

from core.changes import Change
from core.names import TableName
from core.opinions import Answer, Opinion, Question, Side, disagreements
from core.plan import Action
from core.revision import Revision
from core.sql.values import Parsed

DdlOf = Callable[[TableName], str]
"""The CREATE TABLE text of a table that a statement reads; empty where it is not known."""

_NOT_PLAIN = re.compile(r"<|char\(|\bcollate\b")
"""In a declared type: what Spark writes in another way, as struct<…> and varchar(10)."""


def question_of(new: Revision, old: Revision | None, *, declared: DdlOf, deployed: DdlOf) -> Question | None:
    """Ask about a statement that is new (without `old`) or whose SQL changed; None where there is nothing to ask."""
    if new.parsed is None:
        return None
    if old is not None and (old.texts.dml, old.texts.ddl) == (new.texts.dml, new.texts.ddl):
        return None
    after = _side(new.parsed, declared)
    before = _side(old.parsed, deployed) if old is not None and old.parsed is not None else None
    return Question(after, before) if after is not None else None


def seconded(change: Change, answer: Answer | None, *, new: Revision, old: Revision | None) -> Change:
    """Give the change with Spark's answer; where the two disagree it is treated as the worst, row 6a.

    Spark is never taken to make a change milder: that it sees no difference only confirms row 1.
    """
    if answer is None or new.parsed is None:
        return change
    found = [f"Spark disagrees: {words}" for words in disagreements(new.parsed, answer.new)]
    if old is not None and old.parsed is not None and answer.old is not None:
        found += [f"Spark disagrees on the deployed text: {words}" for words in disagreements(old.parsed, answer.old)]
        found += [f"Spark disagrees: {words}" for words in _retyped(old, new, answer.old, answer.new)]
    if found:
        action = change.action if change.action is Action.START else Action.REBUILD
        return Change("6a", action, (*found, *change.evidence), classified=False, confirmed=False)
    evidence = (*change.evidence, *_mistyped(new, answer.new))
    if not change.classified or (change.row == "1" and not answer.same):
        # What we do not know Spark cannot confirm, and what it calls different may be the same all the same.
        return replace(change, evidence=evidence)
    same = ("same meaning, confirmed by Spark",) if change.row == "1" else ()
    return replace(change, evidence=(*evidence, *same), confirmed=True)


def _retyped(old: Revision, new: Revision, before: Opinion, after: Opinion) -> Iterator[str]:
    """Name the columns that would come in another type into a table whose declaration did not change.

    Nothing checks it: a stream writes such files beside the others, and the table cannot be read (planning.md §1).
    """
    declared, deployed = _declared_types(new), _declared_types(old)
    types = {column.name.lower(): column.type for column in before.columns}
    for column in after.columns:
        name = column.name.lower()
        if types.get(name, column.type) != column.type and declared.get(name) == deployed.get(name):
            yield f"column {name} is {column.type} now and was {types[name]}, in the same table"


def _mistyped(new: Revision, opinion: Opinion) -> Iterator[str]:
    """Name the columns of plain types that Spark writes otherwise than the table declares them."""
    declared = _declared_types(new)
    for column in opinion.columns:
        said = declared.get(column.name.lower(), "")
        if said and not _NOT_PLAIN.search(said) and said != column.type:
            yield f"column {column.name.lower()} is {column.type} to Spark and {said} in its table"


def _declared_types(revision: Revision) -> dict[str, str]:
    return {column.name.lower(): column.type for column in revision.ddl.columns}


def _side(parsed: Parsed, ddl_of: DdlOf) -> Side | None:
    """Show Spark a statement under its logical names; None where a table's declaration is not known."""
    tables = tuple((name, ddl_of(name)) for name in sorted({read.table for read in parsed.reads}))
    return Side(_written(parsed), tables) if all(ddl for _, ddl in tables) else None


def _written(parsed: Parsed) -> str:
    """Give the query with STREAM before each table that streams without it; compiling would load the parser."""
    text = parsed.select
    for read in sorted((read for read in parsed.reads if read.implied), key=lambda read: -read.start):
        text = f"{text[: read.start]}STREAM {text[read.start :]}"
    return text
