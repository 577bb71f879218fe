"""Compares two versions that group rows differently, by totals for each value of their common keys."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from core.sql.comparison.row_effects import CommonTotal, CommonTotals, RowSide
from core.text.escaping import quoted_name, quoted_string_literal
from core.text.wording import counted
from core.validation.comparison_queries import ComparedRows, is_float, summed
from core.validation.expected_differences import ExpectedDifferences
from core.validation.verdicts import CheckResult, CheckVerdict

Row = Mapping[str, Any]


def totals_query(rows: ComparedRows, totals: CommonTotals) -> str:
    """Return a query that compares the totals of both versions group by group, and returns a single row.

    Its columns are `groups`, the number of groups; `only_old` and `only_new`, the numbers of groups in one version
    only; `apart_i`, the number of groups in which total i differs; and `example`, the key of a differing group with its
    old and new totals as JSON.
    """
    types = {name.lower(): kind for name, kind in rows.columns}
    key = ", ".join(quoted_name(name) for name in totals.keys)
    k = f"to_json(struct({key}), map('ignoreNullFields', 'false'))" if key else "'{}'"
    apart = [f"NOT (o.t{i} <=> n.t{i})" for i in range(len(totals.totals))]
    any_apart = " OR ".join(("o.k IS NULL", "n.k IS NULL", *apart))
    words = [quoted_string_literal(total.words) for total in totals.totals]
    return f"""WITH o AS ({_side(rows.old, k, totals, types, RowSide.OLD)}),
n AS ({_side(rows.new, k, totals, types, RowSide.NEW)})
SELECT count(*) AS groups, count_if(n.k IS NULL) AS only_old, count_if(o.k IS NULL) AS only_new,
{"".join(f"count_if(o.k IS NOT NULL AND n.k IS NOT NULL AND {one}) AS apart_{i}, " for i, one in enumerate(apart))}
min(struct(coalesce(o.k, n.k) AS k, {_example("o", words)} AS o, {_example("n", words)} AS n))
FILTER (WHERE {any_apart}) AS example FROM o FULL OUTER JOIN n ON o.k = n.k"""


def totals_result(
    totals: CommonTotals, found: Iterable[Row], expected: ExpectedDifferences, columns: Sequence[str]
) -> CheckResult:
    """Evaluate the result of `totals_query`; regrouping alone does not make a difference expected.

    `columns` are the columns that both versions have, in lower case.
    """
    row = next(iter(found), {})
    why = str(totals.unless or next((effect.why for effect in expected.rows), ""))
    per = f" for each {', '.join(totals.keys)}" if totals.keys else ""
    seen = {name for total in totals.totals for name in total.columns} | {*totals.keys}
    left = [name for name in columns if name not in seen]
    last = f"; not compared: {', '.join(left)}" if left else ""
    groups = _number(row.get("groups"))
    parts = [
        f"{total.words} differs in {_number(row.get(f'apart_{i}')):,} of {groups:,}"
        for i, total in enumerate(totals.totals)
        if _number(row.get(f"apart_{i}"))
    ]
    keys = ", ".join(totals.keys)
    for side in (RowSide.OLD, RowSide.NEW):
        if count := _number(row.get(f"only_{side}")):
            parts.append(f"{counted(count, 'value')} of {keys or 'nothing'} only in the {side} version")
    if not parts:
        names = ", ".join(total.words for total in totals.totals) or f"the values of {keys}"
        return CheckResult("totals", CheckVerdict.EXPECTED, f"{names} equal{per}{last}")
    summary = f"{'; '.join(parts)}{f': {why} (may be explained)' if why else ', unexpected'}{last}"
    verdict = CheckVerdict.EXPECTED if why else CheckVerdict.UNEXPECTED
    return CheckResult("totals", verdict, summary, {}, _examples(row, why))


def _side(view: str, key: str, totals: CommonTotals, types: Mapping[str, str], side: RowSide) -> str:
    figures = "".join(f", {_figure(total, side, types)} AS t{i}" for i, total in enumerate(totals.totals))
    return f"SELECT {key} AS k{figures} FROM {view} GROUP BY {key}"


def _figure(total: CommonTotal, side: RowSide, types: Mapping[str, str]) -> str:
    """Return an SQL expression for a total as a string; equal numbers have equal strings, whatever their types."""
    sql = total.old if side is RowSide.OLD else total.new
    kinds = [types[name] for name in total.columns if name in types]
    if any(map(is_float, kinds)):
        return f"format_string('%.9e', {sql} + 0D)"
    if not kinds or any(map(summed, kinds)):
        return f"CAST(try_cast({sql} AS DECIMAL(38, 9)) AS STRING)"
    return f"CAST({sql} AS STRING)"


def _example(side: str, words: Sequence[str]) -> str:
    fields = ", ".join(f"{word}, {side}.t{i}" for i, word in enumerate(words))
    return f"IF({side}.k IS NULL, NULL, to_json(map({fields})))" if fields else f"IF({side}.k IS NULL, NULL, '{{}}')"


def _examples(row: Row, why: str) -> tuple[Mapping[str, object], ...]:
    found = row.get("example")
    if not found:
        return ()
    key = json.loads(found["k"])
    old, new = (None if found[side] is None else key | json.loads(found[side]) for side in ("o", "n"))
    return ({"why": why, "old": old, "new": new},)


def _number(value: Any) -> int:
    return int(value or 0)
