"""Checks a change against Spark's analysis and upgrade tests; the result is never milder than the change."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from core.changes.classification import Change
from core.changes.kinds import ChangeKind
from core.changes.spark_questions_and_answers import (
    AnalysedColumn,
    AnalysedRevision,
    AnalysedStatement,
    AnalysisAnswer,
    AnalysisQuestion,
    AnalysisRefusal,
)
from core.model.actions import Action
from core.model.evidence import Notice
from core.model.names import TableName
from core.project.revision import Revision, RevisionTexts
from core.sql.registered_functions import RegisteredFunction, is_registered
from core.sql.statement import Column, ParsedStatement, line_of
from core.text.sentence import Fact

KIND_IN_SPARK = {"window": "aggregate", "deduplicate": "aggregate"}
"""Operator kinds that Spark names differently: windows and DISTINCT are aggregates (tested on Spark 4.2.0)."""

_PLACE = re.compile(r",? \(?line (\d+),? pos \d+\)?")
"""Matches the position in a Spark error message, whose line numbers start at the query, not at the file."""

_LONGEST = 200
"""Maximum number of characters of a Spark message that a plan quotes."""


def disagreements(parsed: ParsedStatement, analysed: AnalysedStatement, text: str) -> tuple[Fact[Notice], ...]:
    """Return a notice for each difference between Spark's and Headgate's analysis of a statement.

    `text` is the content of the statement's file, to which the line numbers in the notices refer.
    """
    return tuple(_disagreements(parsed, analysed, text))


def _disagreements(parsed: ParsedStatement, analysed: AnalysedStatement, text: str) -> Iterator[Fact[Notice]]:
    if analysed.refused is not None:
        yield _rejection(analysed.refused, parsed, text)
        return
    ours = Counter((str(read.table), read.streaming) for read in parsed.reads)
    theirs = Counter((source.table, source.streaming) for source in analysed.sources)
    if ours != theirs:
        yield Notice.SPARK_READS.of(theirs=_sources(theirs), ours=_sources(ours))
    yield from _column_disagreements(parsed.columns, analysed.columns)
    kinds = Counter(KIND_IN_SPARK.get(operator.kind, operator.kind) for operator in parsed.operators)
    kept = Counter(operator.kind for operator in analysed.operators)
    if kinds != kept:
        yield Notice.SPARK_KEEPS.of(theirs=_kinds(kept), ours=_kinds(kinds))


def _rejection(refused: AnalysisRefusal, parsed: ParsedStatement, text: str) -> Fact[Notice]:
    message, place = _short(_PLACE.sub("", refused.message)), _PLACE.search(refused.message)
    error_class = refused.error_class
    if place is None:
        named = Notice.SPARK_REJECTS_AS.of(error_class=error_class, message=message)
        return named if error_class else Notice.SPARK_REJECTS.of(message=message)
    line = line_of(text, parsed, 0) + int(place[1]) - 1
    named = Notice.SPARK_REJECTS_LINE_AS.of(line=line, error_class=error_class, message=message)
    return named if error_class else Notice.SPARK_REJECTS_LINE.of(line=line, message=message)


def _column_disagreements(ours: tuple[Column, ...], theirs: tuple[AnalysedColumn, ...]) -> Iterator[Fact[Notice]]:
    """Yield a notice for each difference in the number or names of output columns, compared by position.

    Nothing is compared if the query contains a star. Unnamed expressions are skipped, because Spark and Headgate name
    them differently.
    """
    if not ours or any(column.name == "*" for column in ours):
        return
    if len(ours) != len(theirs):
        yield Notice.SPARK_RETURNS.of(theirs=len(theirs), ours=len(ours))
        return
    for column, output in zip(ours, theirs, strict=True):
        unnamed = column.name == column.expression.lower() and not column.name.isidentifier()
        if not unnamed and column.name.lower() != output.name.lower():
            yield Notice.SPARK_NAMES.of(theirs=output.name, ours=column.name)


def _sources(found: Counter[tuple[str, bool]]) -> tuple[str, ...]:
    named = tuple(f"{'STREAM ' if streaming else ''}{table}" for table, streaming in sorted(found.elements()))
    return named or ("no table",)


def _kinds(found: Counter[str]) -> tuple[str, ...]:
    return tuple(sorted(found.elements())) or ("nothing",)


def _short(message: str) -> str:
    return message if len(message) <= _LONGEST else f"{message[: _LONGEST - 1]}…"


DdlOf = Callable[[TableName], str]
"""Function that returns a table's CREATE TABLE statement; empty if unknown."""

_NOT_PLAIN = re.compile(r"<|char\(|\bcollate\b")
"""Matches declared types that Spark writes differently, such as struct<…> and varchar(10)."""


def question_of(new: Revision, old: Revision | None, *, declared: DdlOf, deployed: DdlOf) -> AnalysisQuestion | None:
    """Return the request to analyse a changed statement, or a new one if `old` is None.

    Returns None if no analysis is needed or possible.
    """
    if new.parsed is None or new.parsed.in_python:
        # Only its code knows the query of a job, and no plan executes it.
        return None
    if old is not None and (old.texts.dml, old.texts.ddl) == (new.texts.dml, new.texts.ddl):
        return None
    after = _side(new.parsed, declared, new.texts)
    before = _side(old.parsed, deployed, old.texts) if old is not None and old.parsed is not None else None
    return AnalysisQuestion(after, before) if after is not None else None


def cross_checked(change: Change, answer: AnalysisAnswer | None, *, new: Revision, old: Revision | None) -> Change:
    """Return the change, confirmed by Spark's answer, or STATE_CHANGED if the answer contradicts Headgate's analysis.

    An answer never makes a change milder: if Spark finds both statements equal, the change stays COMMENT_OR_FORMAT.
    """
    if answer is None or new.parsed is None:
        return change
    found = [Notice.SPARK_DISAGREES.of(reading=each) for each in disagreements(new.parsed, answer.new, new.texts.dml)]
    if old is not None and old.parsed is not None and answer.old is not None:
        deployed = disagreements(old.parsed, answer.old, old.texts.dml)
        found += [Notice.SPARK_DISAGREES_ON_DEPLOYED.of(reading=each) for each in deployed]
        found += [
            Notice.SPARK_DISAGREES.of(reading=each) for each in _written_type_changes(old, new, answer.old, answer.new)
        ]
    if found:
        action = change.action if change.action is Action.START else Action.REBUILD
        return Change(ChangeKind.STATE_CHANGED, action, (*found, *change.evidence), classified=False, confirmed=False)
    evidence = (*change.evidence, *_mistyped(new, answer.new))
    reworded = change.kind is ChangeKind.COMMENT_OR_FORMAT
    if not change.classified or (reworded and not answer.same):
        # Spark cannot confirm an unknown change, and statements that it calls different may have the same meaning.
        return replace(change, evidence=evidence)
    same = (Notice.CONFIRMED.of(),) if reworded else ()
    return replace(change, evidence=(*evidence, *same), confirmed=True)


def _written_type_changes(
    old: Revision, new: Revision, before: AnalysedStatement, after: AnalysedStatement
) -> Iterator[Fact[Notice]]:
    """Yield a notice for each column whose written type changes although its declared type does not.

    Spark does not check this: a stream would write files of the new type next to the old ones, and the table would
    become unreadable.
    """
    declared, deployed = _declared_types(new), _declared_types(old)
    types = {column.name.lower(): column.type for column in before.columns}
    for column in after.columns:
        name = column.name.lower()
        if types.get(name, column.type) != column.type and declared.get(name) == deployed.get(name):
            yield Notice.SPARK_RETYPES.of(column=name, before=types[name], after=column.type)


def _mistyped(new: Revision, analysed: AnalysedStatement) -> Iterator[Fact[Notice]]:
    declared = _declared_types(new)
    for column in analysed.columns:
        said = declared.get(column.name.lower(), "")
        if said and not _NOT_PLAIN.search(said) and said != column.type:
            yield Notice.SPARK_WRITES.of(column=column.name.lower(), written=column.type, declared=said)


def _declared_types(revision: Revision) -> dict[str, str]:
    return {column.name.lower(): column.type for column in revision.ddl.columns}


def _side(parsed: ParsedStatement, ddl_of: DdlOf, texts: RevisionTexts) -> AnalysedRevision | None:
    """Return a statement in the form that is sent to Spark, with logical names; None if it cannot be sent.

    It cannot be sent if the DDL of a table that it reads is unknown, or if it streams a table's changes, because the
    temporary tables of the analysis have no change feed. Functions are sent without their code.
    """
    if parsed.in_python or any(read.takes_changes for read in parsed.reads):
        return None
    tables = tuple((name, ddl_of(name)) for name in sorted({read.table for read in parsed.reads}))
    if not all(ddl for _, ddl in tables):
        return None
    return AnalysedRevision(_written(parsed), tables, _without_code(parsed, texts))


def _without_code(parsed: ParsedStatement, texts: RevisionTexts) -> tuple[RegisteredFunction, ...]:
    if not any(is_registered(text) for _, text in texts.functions):
        return ()
    from core.sql.python_declarations import registered_functions

    return tuple(replace(each, code="", java=None) for each in registered_functions(parsed.select, texts.functions))


def _written(parsed: ParsedStatement) -> str:
    """Return the query with an explicit STREAM before each streamed table, without loading the SQL parser."""
    text = parsed.select
    for read in sorted((read for read in parsed.reads if read.implied), key=lambda read: -read.start):
        text = f"{text[: read.start]}STREAM {text[read.start :]}"
    return text


def proof_key(old: str, new: str) -> str:
    """Combine the hashes of two revisions into the ledger's key for the result of their upgrade test."""
    return f"upgrade {old} {new}"


def with_upgrade_proof(change: Change, known: Mapping[str, str], *, old: Revision | None, new: Revision) -> Change:
    """Return the change, or STATE_CHANGED if an upgrade test showed that a restart produces wrong rows."""
    if old is None or change.action in (Action.START, Action.REBUILD):
        return change
    shown = known.get(proof_key(old.hash, new.hash), "")
    if not shown:
        return change
    evidence = (Notice.UPGRADE_TEST.of(shown=shown), *change.evidence)
    return Change(ChangeKind.STATE_CHANGED, Action.REBUILD, evidence, classified=False)
