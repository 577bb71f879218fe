"""Results of test cases, as lines and as data."""

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from core.statement_tests.request import CaseOutcome, CaseResult
from core.text.wording import counted

WIDTH = 100
"""Characters of a line of words; rows stay on one line."""

_MARKS = {CaseOutcome.PASSED: "ok", CaseOutcome.FAILED: "FAIL", CaseOutcome.ERROR: "ERROR", CaseOutcome.SKIPPED: "skip"}


def result_lines(result: CaseResult, words: Sequence[str] = ()) -> list[str]:
    """Write one case: how it ended, what a change means where one was tried, and the rows that differ."""
    told = f": {result.summary}" if result.summary else ""
    lines = [f"{_MARKS[result.outcome]:<6}{result.table}/{result.name}{told}  ({result.took_s:.1f} s)"]
    if result.outcome in (CaseOutcome.FAILED, CaseOutcome.ERROR):
        lines.append(f"      {result.path}")
    for each in words:
        lines += textwrap.wrap(each, WIDTH, initial_indent=" " * 6, subsequent_indent=" " * 8)
    if result.difference:
        lines += [f"      {line}" for line in _difference_lines(result.difference)]
    return lines


def result_json(result: CaseResult, words: Sequence[str], change: str) -> dict[str, Any]:
    """Return one case as data."""
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


def summary_line(results: Sequence[CaseResult], took_s: float) -> str:
    """Count how the cases ended."""
    counts = {outcome: count for outcome in CaseOutcome if (count := sum(each.outcome is outcome for each in results))}
    told = ", ".join(f"{count} {_COUNTED[outcome]}" for outcome, count in counts.items())
    return f"{counted(len(results), 'case')}: {told or 'nothing to run'} in {took_s:.1f} s"


_COUNTED = {
    CaseOutcome.PASSED: "passed",
    CaseOutcome.FAILED: "failed",
    CaseOutcome.ERROR: "with an error",
    CaseOutcome.SKIPPED: "skipped",
}


def _difference_lines(difference: Mapping[str, Any]) -> Iterator[str]:
    for kind in ("missing", "unexpected"):
        for row in difference[f"{kind}_rows"]:
            yield f"{kind:<11}{_row(row)}"
        yield from _rest(difference[kind], len(difference[f"{kind}_rows"]), kind)
    for each in difference["differing_rows"]:
        same = {name: value for name, value in each["row"].items() if name not in each["columns"]}
        told = ", ".join(f"{name} {found}, expected {wanted}" for name, (wanted, found) in each["columns"].items())
        yield f"{'different':<11}{_row(same)}: {told}"
    yield from _rest(difference["differing"], len(difference["differing_rows"]), "different")


def _row(row: Mapping[str, str]) -> str:
    return "{" + ", ".join(f"{name}: {value}" for name, value in row.items() if value != "null") + "}"


def _rest(count: int, shown: int, kind: str) -> Iterator[str]:
    if count > shown:
        yield f"{'':<11}… and {count - shown} more {kind}"
