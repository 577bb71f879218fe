"""What the comparison of a release has found: a line for each check, then examples, the unexpected ones first."""

import json
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any

from core.model.names import physical_name
from core.run.records import CheckResultRow
from core.validation.verdicts import BLOCKING

WIDTH = 100
"""Characters of a line of words; a row stays on one line."""


def blocks(result: CheckResultRow) -> bool:
    """Return whether a release cannot go on with this result."""
    return result.verdict in BLOCKING


def result_lines(results: Iterable[CheckResultRow]) -> tuple[str, ...]:
    """Write the results, table by table."""
    lines: list[str] = []
    for _, found in groupby(results, key=lambda result: result.table):
        of_table = list(found)
        lines.append(_head(of_table[0]))
        for result in of_table:
            verdict = result.verdict.upper() if blocks(result) else result.verdict
            lead = f"  {verdict:<12}{result.check:<13} "
            lines += textwrap.wrap(
                result.summary, WIDTH, initial_indent=lead, subsequent_indent=" " * len(lead), break_long_words=False
            )
            lines += _examples(result)
    return tuple(lines)


def result_as_json(result: CheckResultRow) -> dict[str, Any]:
    """Return a result as an object."""
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
        return f"{new} beside {old}"
    return f"{new} as of batch {result.new_batch} beside {old} as of batch {result.old_batch}, which had read the same"


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
