"""Ready scenarios, which need no case: input is disturbed, and rows are compared with those of an undisturbed run."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from core.integration_tests.repeatability import Repeatability
from core.integration_tests.results import CheckedTable, TestResult, first_difference
from core.model.errors import UsageError
from core.model.names import TableName
from core.statement_tests.case import Part, Row
from core.statement_tests.request import CaseOutcome
from core.text.sentence import Fact, FactKind
from core.text.wording import did_you_mean


class Disturbance(StrEnum):
    """A disturbance of running pipelines."""

    RESTART = "restart"
    """The server is killed while a part is read."""
    REPLAY = "replay"
    """Versions that are rebuilt read the same input again, all at once."""
    LATE = "late"
    """Rows arrive late, within what watermarks allow, and in no order."""
    SCHEMA = "schema"
    """Sources get a column, first in their rows and then in their declaration, and statements are restarted."""
    UPGRADE = "upgrade"
    """Old statements read the first part, and the present ones continue by a plan."""
    RECOVERY = "recovery"
    """Older checkpoints are put back, with which statements must not start."""


ALL = "all"


class Shown(FactKind):
    """What a scenario has shown."""

    SAME = "{tables:table} with {rows:row} are the same {disturbed}"
    DIFFERENT = "{table} differs {disturbed}: {missing} missing, {unexpected} unexpected, {differing} with other values"
    NOT_VALID = "{table} differs in a version that has read the same input again: {why}"
    REFUSED = "an older checkpoint was refused for {statements:statement}"
    STARTED = "{table} started with an older checkpoint, so it would write rows twice or lose them"
    UNREPEATABLE = "nothing was compared: {table} need not have the same rows in two runs: {why}"
    TABLE_LEFT_OUT = "{table} is not compared: {why}"
    COLUMNS_LEFT_OUT = "columns of {table} are not compared: {columns}"
    EMPTY = "no row reaches {table}, so nothing is shown about it"
    INPUT = "input: {parts:part} {origin}"
    NOT_TAKEN = "statements do not go on when {sources} get a column: {error}"
    DRIFTED = "{table} gets the column of its sources in {columns}, which it does not declare"
    NO_SOURCE = "no source can get a column"
    NO_LATER_ROW = "no source that can get a column has a row after part {part}"
    NO_MIDDLE = "part {part} is disturbed, and the input has only {parts:part}"
    NOT_LATE = "nothing was disturbed: no row can be late, and no part has rows that can be in another order"
    NONE_LATE = "no row was late: no two rows of a stream in part {part} are at most {late_s} s apart"
    HALF_DELAY = "rows are late by at most half of the longest delay of a watermark; --lateness gives another bound"
    SHORT_DELAY = "the watermark of {table} has a delay of {delay_s} s only"
    NO_CHANGE = "none of these statements differs from {since}"
    NOT_WRITTEN = "{tables:and} had written no row before the upgrade"
    ANNOUNCED = "{table} differs from the new statements alone, as the plan announces: {why}"
    NOTHING_OLDER = "no statement has a checkpoint that is older"


@dataclass(frozen=True, slots=True)
class ScenarioInput:
    """The rows that a scenario writes to the sources."""

    parts: tuple[Part, ...]
    origin: str
    """Where they come from: `generated`, or the path of a case."""
    middle: int
    """Number of the part, from 1, that is disturbed."""


Rows = Mapping[TableName, tuple[Row, ...]]


def parse_scenarios(text: str) -> tuple[Disturbance, ...]:
    """Parse names separated by commas, or `all`. Raises UsageError for an unknown name."""
    words = [word.strip().lower() for word in text.split(",") if word.strip()]
    if words == [ALL]:
        return tuple(Disturbance)
    for word in words or [""]:
        if word not in tuple(Disturbance):
            remedy = did_you_mean(word, Disturbance) or f"one or more of {', '.join(Disturbance)}, or {ALL}"
            raise UsageError(f"there is no scenario {word!r}", remedy=remedy)
    return tuple(dict.fromkeys(map(Disturbance, words)))


def compared_runs(
    name: str, undisturbed: Rows, disturbed: Rows, repeatable: Mapping[TableName, Repeatability], *, after: str
) -> TestResult:
    """Compare the rows of two runs over the same input, table by table; upstream tables come first in `undisturbed`.

    `after` describes the disturbance, as in `after a restart`.
    """
    notes: list[Fact[FactKind]] = []
    tables = []
    for table, expected in undisturbed.items():
        of = repeatable[table]
        if of.unrepeatable:
            notes.append(Shown.TABLE_LEFT_OUT.of(table=table, why=of.unrepeatable))
            continue
        if of.left_out:
            notes.append(Shown.COLUMNS_LEFT_OUT.of(table=table, columns=tuple(sorted(of.left_out.values()))))
        if not expected:
            notes.append(Shown.EMPTY.of(table=table))
        tables.append(CheckedTable(table, of.columns, of.projected(expected), of.projected(disturbed[table])))
    if not tables:
        table = next(iter(undisturbed))
        fact: Fact[FactKind] = Shown.UNREPEATABLE.of(table=table, why=repeatable[table].unrepeatable)
        return TestResult(name, "", CaseOutcome.SKIPPED, fact)
    first = first_difference(tables, tolerance=1e-9)
    if first is None:
        rows = sum(len(each.expected) for each in tables)
        fact = Shown.SAME.of(tables=len(tables), rows=rows, disturbed=after)
        return TestResult(name, "", CaseOutcome.PASSED, fact, notes=tuple(notes))
    at, found = first
    fact = Shown.DIFFERENT.of(
        table=at.table, disturbed=after,
        missing=len(found.missing), unexpected=len(found.unexpected), differing=len(found.differing),
    )  # fmt: skip
    return TestResult(
        name, "", CaseOutcome.FAILED, fact, table=at.table, difference=found.as_json(), notes=tuple(notes)
    )  # fmt: skip


def judged_starts(name: str, refused: Iterable[TableName], started: Iterable[TableName]) -> TestResult:
    """Return the result of starts with older checkpoints, all of which must have been refused."""
    statements, wrong = len(tuple(refused)), next(iter(started), None)
    if wrong is not None:
        return TestResult(name, "", CaseOutcome.FAILED, Shown.STARTED.of(table=wrong), table=wrong)
    if not statements:
        return TestResult(name, "", CaseOutcome.SKIPPED, Shown.NOTHING_OLDER.of())
    return TestResult(name, "", CaseOutcome.PASSED, Shown.REFUSED.of(statements=statements))
