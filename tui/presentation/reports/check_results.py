"""Results of test cases, and of the checks that compare two versions of a table, as lines and as JSON."""

import json
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from core.model.names import physical_name, query_name
from core.reports.base_comparison import BaseComparison
from core.run.records import CheckResultRow
from core.statement_tests.comparison import difference_lines
from core.statement_tests.request import CaseOutcome, CaseResult
from core.text.wording import counted
from core.validation.verdicts import BLOCKING
from tui.presentation.styling.value_formatting import moment

WIDTH = 100
"""Width at which text is wrapped. Rows of data are never wrapped."""


_MOST_NAMES = 10
"""Maximum number of tables that only one environment has and that are listed by name; JSON has all of them."""


def blocks(result: CheckResultRow) -> bool:
    """True if the verdict of a comparison blocks the release."""
    return result.verdict in BLOCKING


def result_lines(results: Iterable[CheckResultRow]) -> tuple[str, ...]:
    """Format comparison results under one heading per table. `results` must be sorted by table."""
    lines: list[str] = []
    for _, found in groupby(results, key=lambda result: result.table):
        of_table = list(found)
        lines.append(_head(of_table[0]))
        for result in of_table:
            lines += _result(result)
    return tuple(lines)


def base_comparison_lines(found: BaseComparison, now: float) -> tuple[str, ...]:
    """Format the comparison of an overlay with its base: verdict, each table with its results, what is elsewhere."""
    here, base = found.environment, found.base
    lines = [f"{here} compared with {base} at {moment(found.at, now)}: {found.verdict}"]
    for table in (*found.unexpected, *(each for each in found.compared if not each.unexpected), *found.skipped):
        old, new = query_name(table.table, table.in_base), query_name(table.table, table.in_overlay)
        lines += ["", f"{new} of {here} compared with {old} of {base}"]
        for result in table.results:
            lines += _result(result)
    for name, tables in ((here, found.only_in_overlay()), (base, found.only_in_base())):
        if tables:
            names = ", ".join(table.table for table in tables[:_MOST_NAMES])
            more = f" and {len(tables) - _MOST_NAMES} more" if len(tables) > _MOST_NAMES else ""
            lines += ["", f"only in {name}: {names}{more}"]
    return tuple(lines)


def base_comparison_as_json(found: BaseComparison) -> dict[str, Any]:
    """Return the comparison of an overlay with its base as JSON; the old side of each result is the base."""
    return {
        "base": found.base,
        "at": found.at,
        "since": found.since,
        "verdict": str(found.verdict),
        "unexpected": [table.table for table in found.unexpected],
        "not_compared": {table.table: str(table.not_compared) for table in found.skipped},
        "failed": [table.table for table in found.failed],
        "columns_not_compared": {
            table.table: {column.name: {"kind": column.kind, "because": column.because} for column in columns}
            for table in found.tables
            if (columns := table.columns_left_out)
        },
        "only_here": [table.table for table in found.only_in_overlay()],
        "only_in_base": [table.table for table in found.only_in_base()],
        "results": [result_as_json(result) for table in found.tables for result in table.results],
    }


def _result(result: CheckResultRow) -> Iterator[str]:
    verdict = result.verdict.upper() if blocks(result) else result.verdict
    lead = f"  {verdict:<12}{result.check:<13} "
    yield from textwrap.wrap(
        result.summary, WIDTH, initial_indent=lead, subsequent_indent=" " * len(lead), break_long_words=False
    )
    yield from _examples(result)


def result_as_json(result: CheckResultRow) -> dict[str, Any]:
    """Return a comparison result as a JSON object."""
    return {
        "table": result.table,
        "old": {"version": result.old_version, "batch": result.old_batch},
        "new": {"version": result.new_version, "batch": result.new_batch},
        "check": result.check,
        "verdict": result.verdict,
        "summary": result.summary,
        "counts": result.counts,
        "examples": list(result.examples),
    }


def _head(result: CheckResultRow) -> str:
    old, new = physical_name(result.table, result.old_version), physical_name(result.table, result.new_version)
    if result.new_batch is None or result.new_batch < 0:
        return f"{new} compared with {old}"
    return (
        f"{new} as of batch {result.new_batch} compared with {old} as of batch {result.old_batch}, after the same input"
    )


def _examples(result: CheckResultRow) -> Iterator[str]:
    indent = " " * 28
    for example in sorted(result.examples, key=lambda one: bool(one["why"])):
        yield f"{indent}{example['why'] or ('not expected' if blocks(result) else result.verdict)}"
        old, new = example["old"], example["new"]
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            apart = (
                f"{name} {_value(old[name])} → {_value(new.get(name))}" for name in old if old[name] != new.get(name)
            )
            yield f"{indent}  changed {', '.join(apart)} of {_row(old)}"
        else:
            yield f"{indent}  {'old' if new is None else 'new'} {_row(old if new is None else new)}"


def _row(row: object) -> str:
    if not isinstance(row, Mapping):
        return str(row)
    return "{" + ", ".join(f"{name}: {_value(value)}" for name, value in row.items()) + "}"


def _value(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


_MARKS = {CaseOutcome.PASSED: "ok", CaseOutcome.FAILED: "FAIL", CaseOutcome.ERROR: "ERROR", CaseOutcome.SKIPPED: "skip"}


def case_lines(result: CaseResult, words: Sequence[str] = ()) -> list[str]:
    """Format a test case's result: its outcome, the notes in `words` about an upgrade, and the rows that differ."""
    told = f": {result.summary}" if result.summary else ""
    lines = [f"{_MARKS[result.outcome]:<6}{result.table}/{result.name}{told}  ({result.took_s:.1f} s)"]
    if result.outcome in (CaseOutcome.FAILED, CaseOutcome.ERROR):
        lines.append(f"      {result.path}")
    for each in words:
        lines += textwrap.wrap(each, WIDTH, initial_indent=" " * 6, subsequent_indent=" " * 8)
    if result.difference:
        lines += [f"      {line}" for line in difference_lines(result.difference)]
    return lines


def case_as_json(result: CaseResult, words: Sequence[str], change: str) -> dict[str, Any]:
    """Return a test case's result as JSON.

    If `change` is empty, the fields `verdict`, `change` and `words` are omitted.
    """
    body: dict[str, Any] = {
        "table": result.table,
        "case": result.name,
        "file": result.path,
        "outcome": str(result.outcome),
        "summary": result.summary,
        "took_s": result.took_s,
        "difference": result.difference,
    }
    if change:
        body |= {"verdict": result.verdict or None, "change": change, "words": list(words)}
    return body


def cases_summary(results: Sequence[CaseResult], took_s: float) -> str:
    """Return the number of test cases, in total and by outcome, and their total duration."""
    counts = {outcome: count for outcome in CaseOutcome if (count := sum(each.outcome is outcome for each in results))}
    told = ", ".join(f"{count} {_COUNTED[outcome]}" for outcome, count in counts.items())
    return f"{counted(len(results), 'case')}: {told or 'nothing to run'} in {took_s:.1f} s"


_COUNTED = {
    CaseOutcome.PASSED: "passed",
    CaseOutcome.FAILED: "failed",
    CaseOutcome.ERROR: "with an error",
    CaseOutcome.SKIPPED: "skipped",
}
