"""Results of integration tests as documents: JUnit XML for CI, and Markdown for a pull request."""

from collections.abc import Iterable, Mapping, Sequence
from xml.sax.saxutils import escape, quoteattr

from core.integration_tests.results import TestResult
from core.statement_tests.comparison import difference_lines
from core.statement_tests.request import CaseOutcome
from core.text.escaping import escape_control_characters
from core.text.wording import counted

MARKS: Mapping[CaseOutcome, str] = {
    CaseOutcome.PASSED: "ok",
    CaseOutcome.FAILED: "FAIL",
    CaseOutcome.ERROR: "ERROR",
    CaseOutcome.SKIPPED: "skip",
}


def junit_xml(results: Sequence[TestResult], *, project: str, environment: str) -> str:
    """Return results as JUnit XML: one suite, one case for each result, with the rows that differ as its text."""
    failed, errors, skipped = (
        sum(each.outcome is outcome for each in results)
        for outcome in (CaseOutcome.FAILED, CaseOutcome.ERROR, CaseOutcome.SKIPPED)
    )
    counts = {"tests": len(results), "failures": failed, "errors": errors, "skipped": skipped}
    total = f"{sum(each.took_s for each in results):.3f}"
    lines = ['<?xml version="1.0" encoding="utf-8"?>']
    head = {"name": f"{project} {environment}", **counts, "time": total}
    lines.append(f"<testsuites{_attributes(head)}><testsuite{_attributes(head)}>")
    for each in results:
        case = {"classname": project, "name": each.name, "time": f"{each.took_s:.3f}"}
        case |= {"file": each.path} if each.path else {}
        lines.append(f"<testcase{_attributes(case)}>{_outcome(each)}</testcase>")
    return "\n".join([*lines, "</testsuite></testsuites>", ""])


def markdown(results: Sequence[TestResult], *, project: str, environment: str) -> str:
    """Return results as Markdown: a verdict, a table of all results, and the rows that differ."""
    bad = [each for each in results if not each.passed]
    every = counted(len(results), "test")
    verdict = f"{len(bad)} of {every} failed" if bad else f"{every} passed"
    lines = [f"**Integration tests of {project} ({environment}): {verdict}**", ""]
    lines += ["| | test | result | s |", "|---|---|---|---:|"]
    for each in results:
        lines.append(f"| {MARKS[each.outcome]} | `{each.name}` | {_cell(str(each.fact))} | {each.took_s:.1f} |")
    for each in bad:
        if each.difference is not None:
            lines += ["", f"`{each.name}`, table `{each.table}`:", "", "```", *difference_lines(each.difference), "```"]
    return "\n".join([*lines, ""])


def _outcome(result: TestResult) -> str:
    message = {"message": str(result.fact)}
    rows = _text(difference_lines(result.difference)) if result.difference is not None else ""
    match result.outcome:
        case CaseOutcome.FAILED:
            return f"<failure{_attributes(message)}>{rows}</failure>"
        case CaseOutcome.ERROR:
            return f"<error{_attributes(message)}>{rows}</error>"
        case CaseOutcome.SKIPPED:
            return f"<skipped{_attributes(message)}/>"
    return ""


def _attributes(values: Mapping[str, object]) -> str:
    return "".join(f" {name}={quoteattr(escape_control_characters(str(value)))}" for name, value in values.items())


def _text(lines: Iterable[str]) -> str:
    return escape("\n".join(map(escape_control_characters, lines)))


def _cell(text: str) -> str:
    return escape_control_characters(text).replace("|", "\\|")
