"""Results of comparing two versions: checks with their verdicts, counts and examples."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from core.sql.comparison.row_effects import RowEffect, RowSide
from core.text.secret_masking import mask_secrets
from core.text.sentence import Sentence
from core.text.wording import counted
from core.validation.comparison_queries import ComparedRows, is_float, summed
from core.validation.expected_differences import ExpectedDifferences

Row = Mapping[str, Any]

EXAMPLE_CHARACTERS = 2_000
"""Maximum number of characters of an example row; a longer row is truncated and no longer valid JSON."""
_MOST_WORDS = 20
"""Maximum number of columns that a single check lists by name."""
_SHORT = 200
"""Maximum number of characters for one check in the note of a step."""
_MORE = 0.01
"""Maximum relative increase of duplicates that is expected if rows cannot be paired."""
_TWICE = 2
"""Factor by which new rows may multiply the number of duplicates, even if the table has not grown."""
_NEARLY = 1e-9
"""Maximum relative difference of floating-point sums that count as equal."""


class CheckVerdict(StrEnum):
    """The verdict of a check; `unexpected` and `failed` block a release."""

    OK = "ok"
    EXPECTED = "expected"
    UNEXPECTED = "unexpected"
    FAILED = "failed"
    SKIPPED = "skipped"


class OverlayCheck(StrEnum):
    """Names of the checks that only a comparison of an overlay with its base has."""

    CHANGE = "change"
    """The kind of the branch's change, with its edits."""
    POSITION = "position"
    """The batches after which both versions had read the same input."""
    BASE = "base"
    """Skipped: the base reads another version of an input, so that its rows cannot be compared."""
    PRESENCE = "presence"
    """Skipped: only one of the environments has the table."""


class ColumnLeftOut(StrEnum):
    """Why the values of a column that both versions have were not compared."""

    CHANGED = "changed"
    """An edit of the statement or of one of its inputs changes its values."""
    NOT_DETERMINISTIC = "not deterministic"
    """Its values differ from run to run, as those of `uuid()` do."""


class RowsLeftOut(StrEnum):
    """Why the rows of a table that both environments have were not compared."""

    TOPIC = "topic"
    """The table writes a topic."""
    CHANGES = "changes"
    """The table, or one upstream of it, reads a stream of changes, which differs between any two versions."""
    BASE = "base"
    """The base reads another version of an input."""
    NOT_SERVING = "not serving"
    """The overlay still builds the table."""
    DELETED = "deleted"
    """One version was deleted during the comparison."""
    POSITION = "position"
    """There is no position that both have read."""
    FAILED = "failed"
    """The rows could not be read."""


NEVER_COMPARED = frozenset({RowsLeftOut.TOPIC, RowsLeftOut.CHANGES})
"""Reasons that hold for every comparison of the table, whatever the state of both environments."""

BLOCKING = frozenset({CheckVerdict.UNEXPECTED, CheckVerdict.FAILED})


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of one check on a table."""

    check: str
    verdict: CheckVerdict
    summary: str
    counts: Mapping[str, object] = field(default_factory=dict)
    """Numbers by name. A skipped check of an overlay has `left_out`, a RowsLeftOut.

    The check `differences` also has `columns_left_out`, which maps each column that was not compared to its `kind`, a
    ColumnLeftOut, and `because`, the edit or the call in words; `from_start`, the number of rows that may differ
    because one version begins later; and `unpaired`, if rows could not be paired. Each is absent if there is none.
    """
    examples: tuple[Mapping[str, object], ...] = ()
    """Example rows: `old` and `new`, each a row or None, and `why`, empty if the difference is unexplained."""


def schema_result(
    old: Iterable[tuple[str, str]], new: Iterable[tuple[str, str]], expected: ExpectedDifferences
) -> CheckResult:
    """Compare the columns (name, type) of both versions; all differences are expected."""
    before, after = ({name.lower(): kind for name, kind in columns} for columns in (old, new))
    words = [f"+ {name}" for name in after if name not in before]
    words += [f"- {name}" for name in before if name not in after]
    words += [f"{n}: {before[n]} → {kind}" for n, kind in after.items() if n in before and before[n] != kind]
    if not words:
        return CheckResult("schema", CheckVerdict.OK, counted(len(after), "column"))
    return CheckResult("schema", CheckVerdict.EXPECTED, "; ".join(words))


def profile_results(
    rows: ComparedRows,
    sides: Iterable[Row],
    expected: ExpectedDifferences,
    differences: CheckResult,
    *,
    doubled: bool = False,
    empties: bool = False,
) -> tuple[CheckResult, ...]:
    """Evaluate row counts, NULLs, sums and column profiles; `differences` is the result of the row comparison.

    If rows cannot be paired and there are unexpected duplicates (`doubled`), the differences count as unexplained. An
    empty new version is unexpected unless there is a known reason for all rows to be missing (`empties`).
    """
    by_side = {side["side"]: side for side in sides}
    old, new = by_side.get(RowSide.OLD, {}), by_side.get(RowSide.NEW, {})
    few = differences.verdict in (CheckVerdict.OK, CheckVerdict.EXPECTED)
    unpaired = expected.unpairable_because or expected.multiplicity_change
    explained = bool(unpaired or expected.rows) and few and not (unpaired and doubled)
    counts = {"old": _number(old.get("rows")), "new": _number(new.get("rows"))}
    same = counts["old"] == counts["new"]
    empty = not counts["new"] and not same and empties is False
    verdict = CheckVerdict.OK if same else CheckVerdict.EXPECTED
    verdict = CheckVerdict.UNEXPECTED if not same and (empty or not explained) else verdict
    words = f"{counts['old']:,} → {counts['new']:,}{', the new version is empty' if empty else ''}"
    found = [CheckResult("rows", verdict, words, counts)]
    only_new = _number(differences.counts.get("only_new"))
    found.append(_nulls(rows, old, new, expected, only_new=only_new, explained=explained))
    found.append(_sums(rows, old, new, expected, explained=explained))
    found.append(_profile(rows, old, new, expected, explained=explained))
    return tuple(found)


def duplicates_result(
    rows: ComparedRows, sides: Iterable[Row], expected: ExpectedDifferences, declared: bool, grown: float = 1.0
) -> CheckResult:
    """Evaluate duplicate rows; more duplicates of a declared key are always unexpected.

    Without a declared key, whole rows are compared. An increase is then expected if distinct rows may have become
    equal, if only rows with duplicates are repeated, or if the new version's additional rows are enough to explain it
    (it has `grown` times as many rows). If rows cannot be paired, a clear increase is unexpected nevertheless.
    """
    by_side = {side["side"]: side for side in sides}
    old, new = (_number(by_side.get(side, {}).get("excess")) for side in (RowSide.OLD, RowSide.NEW))
    apart = ", of the old version by those that are compared" if rows.own else ""
    by = ", ".join(rows.key) if rows.key else f"all columns{apart}"
    summary = f"{old:,} → {new:,} duplicate rows by {by}"
    keys = [_number(by_side.get(side, {}).get("keys")) for side in (RowSide.OLD, RowSide.NEW)]
    cause = None if declared else _why_alike(expected, old, new, max(_TWICE, grown))
    # Exploding rows that already had duplicates makes more duplicates.
    cause = (
        Sentence(expected.multiplicity_change)
        if not declared and expected.multiplicity_change and keys[1] <= keys[0]
        else cause
    )
    why = "" if cause is None else str(cause)
    if new <= old:
        verdict, why = CheckVerdict.OK, "the old version has as many"
    else:
        verdict = CheckVerdict.EXPECTED if why else CheckVerdict.UNEXPECTED
        summary += f": {why}" if why else ""
    examples = [by_side.get(RowSide.NEW, {}).get(name) for name in ("least", "most")] if new else []
    shown = tuple({"why": why, "old": None, "new": _row(text)} for text in dict.fromkeys(examples) if text)
    return CheckResult("duplicates", verdict, summary, {"old": old, "new": new}, shown)


def _why_alike(expected: ExpectedDifferences, old: int, new: int, times: float) -> Sentence | None:
    """Return why a version may have more duplicates of whole rows than before; None if there is no explanation.

    New rows that cannot equal existing rows explain an increase to at most `times` the old number.
    """
    if expected.merged_by:
        return Sentence(expected.merged_by)
    if why := expected.unpairable_because or expected.multiplicity_change:
        return Sentence(why) if new <= old * (1 + _MORE) else None
    added = [row for row in expected.rows if row.side is RowSide.NEW]
    return next((Sentence(row.why) for row in added if row.may_equal_others or new <= old * times), None)


def row_count_lead(results: Iterable[CheckResult]) -> str:
    """Return the row counts of both versions as the beginning of a summary; empty if they are equal."""
    rows = next((result for result in results if result.check == "rows"), None)
    return f"rows {rows.summary}; " if rows is not None and rows.verdict is not CheckVerdict.OK else ""


def differences_result(
    rows: ComparedRows, groups: Iterable[Row], effects: Sequence[RowEffect], expected: ExpectedDifferences
) -> CheckResult:
    """Evaluate the row-by-row differences.

    A difference is expected if an effect explains all of its rows, or if no effect applies and rows cannot be paired.
    `effects` must be the list to which the indexes from `differences_query` refer.
    """
    unexpected: list[str] = []
    explained: list[str] = []
    counts: dict[str, object] = {"expected": 0, "unexpected": 0, "only_new": 0}
    examples: list[Mapping[str, object]] = []
    for group in sorted(groups, key=lambda one: (str(one["side"]), int(one["effect"]))):
        effect = effects[int(group["effect"])] if int(group["effect"]) >= 0 else None
        old, new = _number(group["old_rows"]), _number(group["new_rows"])
        beyond = effect is not None and effect.most is not None and max(old, new) > effect.most
        why = "" if beyond else effect.why if effect is not None else expected.unpairable_because
        words = _difference_words(str(group["side"]), old, new)
        may = " (may be explained)" if why and (effect is None or not effect.predicate) else ""
        if beyond and effect is not None:
            words += f", of which {effect.why} explains {effect.most:,} at most"
        (explained if why else unexpected).append(f"{words}: {why}{may}" if why else words)
        kind = "expected" if why else "unexpected"
        counts[kind] = _number(counts[kind]) + max(old, new)
        counts["only_new"] = _number(counts["only_new"]) + (new if group["side"] == RowSide.NEW else 0)
        if why and effect is not None and effect.from_start:
            counts["from_start"] = _number(counts.get("from_start")) + max(old, new)
        examples += _examples(group, why)
    if left_out := _columns_left_out(rows, expected):
        counts["columns_left_out"] = left_out
    if expected.multiplicity_change:
        explained.append(f"how often a row stands is not compared: {expected.multiplicity_change}")
    explained += [f"not compared: {expected.changed[name]}" for name in sorted(expected.volatile & {*expected.changed})]
    changed = [name for name, column in left_out.items() if column["kind"] == ColumnLeftOut.CHANGED]
    end = f"; not compared: {_listed(changed)}" if changed else ""
    end += f"; one key in {rows.one_in} was compared" if rows.one_in > 1 else ""
    if unexpected:
        summary, verdict = f"{'; '.join(unexpected)}, unexpected", CheckVerdict.UNEXPECTED
        summary += f"; {'; '.join(explained)}" if explained else ""
    else:
        nothing = "no row differs in the compared columns" if changed else "no row differs"
        summary, verdict = "; ".join(explained) or nothing, CheckVerdict.EXPECTED if explained else CheckVerdict.OK
    return CheckResult("differences", verdict, f"{summary}{end}", counts, tuple(examples))


def _columns_left_out(rows: ComparedRows, expected: ExpectedDifferences) -> dict[str, dict[str, str]]:
    found = {}
    for name, _ in rows.columns:
        volatile = name.lower() in expected.volatile
        if name.lower() in expected.changed and (volatile or name.lower() not in rows.equal):
            kind = ColumnLeftOut.NOT_DETERMINISTIC if volatile else ColumnLeftOut.CHANGED
            found[name] = {"kind": kind.value, "because": mask_secrets(expected.changed[name.lower()])}
    return found


def kept_rows_result(found: Iterable[Row], why: str) -> CheckResult:
    """Evaluate how many of the old rows the new version still has; a loss of more than half is unexpected.

    `why` is the reason why rows cannot be paired.
    """
    row = next(iter(found), {})
    gone, rows = _number(row.get("gone")), _number(row.get("rows"))
    if not gone:
        return CheckResult("kept rows", CheckVerdict.OK, "the new version has every row of the old one")
    summary = f"the new version lacks {gone:,} of {counted(rows, 'row')} of the old one"
    if gone * 2 > rows:
        return CheckResult("kept rows", CheckVerdict.UNEXPECTED, f"{summary}, unexpected")
    return CheckResult("kept rows", CheckVerdict.EXPECTED, f"{summary}: {why} (may be explained)")


def project_check_result(name: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> CheckResult:
    """Evaluate a check that the project declares; the check fails if its query returns any row."""
    if not rows:
        return CheckResult(f"check {name}", CheckVerdict.OK, "no row")
    found = mask_secrets(json.dumps(dict(zip(columns, rows[0], strict=False)), default=str, ensure_ascii=False))
    example = {"why": "", "old": None, "new": _row(found)}
    return CheckResult(f"check {name}", CheckVerdict.FAILED, f"it gives rows, such as {found[:200]}", {}, (example,))


def blocking_words(results: Sequence[CheckResult]) -> str:
    """Return the findings that block a release, on one line with one example; empty if no finding blocks it."""
    found = [result for result in results if result.verdict in BLOCKING]
    if not found:
        return ""
    words = "; ".join(f"{result.check}: {_cut(result.summary)}" for result in found if result.check != "rows")
    words = f"{row_count_lead(results)}{words}".removesuffix("; ")
    example = next((one for result in found for one in result.examples if not one["why"]), None)
    return f"{words}; for example {_example_words(example)}" if example is not None else words


def _example_words(example: Mapping[str, object]) -> str:
    old, new = example["old"], example["new"]
    if isinstance(old, dict) and isinstance(new, dict):
        apart = [f"{name} {old[name]!r} → {new.get(name)!r}" for name in old if old[name] != new.get(name)]
        return ", ".join(apart)[:200]
    side = "only in the old version: " if new is None else "in the new version: "
    return side + json.dumps(old if new is None else new, ensure_ascii=False, default=str)[:200]


def _difference_words(side: str, old: int, new: int) -> str:
    match side:
        case RowSide.OLD:
            return f"{counted(old, 'row')} only in the old version"
        case RowSide.NEW:
            return f"{counted(new, 'row')} only in the new version"
        case _:
            return f"{counted(max(old, new), 'row')} with other values"


def _examples(group: Row, why: str) -> list[Mapping[str, object]]:
    found: dict[str, Mapping[str, object]] = {}
    for n in (1, 2, 3):
        old, new = group.get(f"old_{n}"), group.get(f"new_{n}")
        if old is not None or new is not None:
            found.setdefault(f"{old} {new}", {"why": why, "old": _row(old), "new": _row(new)})
    return list(found.values())


def _row(text: object) -> object:
    if text is None:
        return None
    masked = mask_secrets(str(text))
    if len(masked) > EXAMPLE_CHARACTERS:
        return f"{masked[:EXAMPLE_CHARACTERS]}…"
    try:
        return json.loads(masked)
    except ValueError:
        return masked


def _nulls(
    rows: ComparedRows, old: Row, new: Row, expected: ExpectedDifferences, *, only_new: int, explained: bool
) -> CheckResult:
    """Evaluate the number of NULLs in each column.

    An increase is unexpected unless the column may become NULL, rows cannot be paired, or the increase comes from rows
    that exist only in the new version. In a column whose values must be equal, any change is unexpected unless the
    row-by-row differences are `explained`.
    """
    worse: list[str] = []
    other: list[str] = []
    for i, (name, _) in enumerate(rows.columns):
        before, after = (_number(side.get("rows")) - _number(side.get(f"filled_{i}")) for side in (old, new))
        if before == after:
            continue
        words = f"{name}: {before:,} → {after:,}"
        more = (
            after > before + only_new
            and name.lower() not in expected.nulls
            and not expected.unpairable_because
            and not expected.multiplicity_change
        )
        (worse if more or (name.lower() in rows.equal and not explained) else other).append(words)
    if worse:
        return CheckResult("nulls", CheckVerdict.UNEXPECTED, f"NULLs of {_some(worse)}")
    if other:
        return CheckResult("nulls", CheckVerdict.EXPECTED, f"NULLs of {_some(other)}")
    return CheckResult("nulls", CheckVerdict.OK, "as many NULLs in each column")


def _sums(rows: ComparedRows, old: Row, new: Row, expected: ExpectedDifferences, *, explained: bool) -> CheckResult:
    worse: list[str] = []
    other: list[str] = []
    for i, (name, kind) in enumerate(rows.columns):
        before, after = old.get(f"sum_{i}"), new.get(f"sum_{i}")
        if not summed(kind) or before == after or (is_float(kind) and _nearly(before, after)):
            continue
        told = explained or name.lower() in expected.changed
        (other if told else worse).append(f"{name}: {_short(before)} → {_short(after)}")
    if worse:
        return CheckResult("sums", CheckVerdict.UNEXPECTED, f"sums of {_some(worse)}")
    if other:
        return CheckResult("sums", CheckVerdict.EXPECTED, f"sums of {_some(other)}")
    return CheckResult("sums", CheckVerdict.OK, "the sums of numbers are equal")


def _profile(rows: ComparedRows, old: Row, new: Row, expected: ExpectedDifferences, *, explained: bool) -> CheckResult:
    words = []
    for i, (name, _) in enumerate(rows.columns):
        # Spark estimates how many values there are, to a few percent.
        for what, key in (("distinct values ≈", "distinct"), ("least ", "least"), ("most ", "most")):
            before, after = (mask_secrets(str(row.get(f"{key}_{i}"))) for row in (old, new))
            if old.get(f"{key}_{i}") != new.get(f"{key}_{i}"):
                words.append(f"{name}: {what}{before} → {'≈' * (key == 'distinct')}{after}")
    told = explained or bool(expected.changed)
    verdict = CheckVerdict.EXPECTED if told else CheckVerdict.UNEXPECTED
    return CheckResult("profile", verdict if words else CheckVerdict.OK, _some(words) or "equal")


def _some(words: Sequence[str]) -> str:
    more = f"; and {len(words) - _MOST_WORDS} more" if len(words) > _MOST_WORDS else ""
    return f"{'; '.join(words[:_MOST_WORDS])}{more}"


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_WORDS} more" if len(names) > _MOST_WORDS else ""
    return f"{', '.join(names[:_MOST_WORDS])}{more}"


def _cut(text: str) -> str:
    return text if len(text) <= _SHORT else f"{text[: _SHORT - 1]}…"


def _nearly(before: Any, after: Any) -> bool:
    try:
        one, other = float(before), float(after)
    except (TypeError, ValueError):
        return False
    return abs(one - other) <= _NEARLY * max(abs(one), abs(other))


def _short(text: Any) -> str:
    if text is None:
        return "none"
    return text.rstrip("0").rstrip(".") if isinstance(text, str) and "." in text and "e" not in text.lower() else text


def _number(value: Any) -> int:
    return int(value or 0)
