"""The verdict of an upgrade test, and its comparison with the plan.

An upgrade test runs the new SQL from the checkpoint of the old SQL.
"""

from collections.abc import Mapping
from dataclasses import replace

from core.changes.classification import Change, classify
from core.changes.kinds import ChangeKind
from core.model.actions import Action
from core.model.evidence import Edit, EditKind
from core.model.names import TableName
from core.project.model import Table
from core.project.revision import Revision
from core.sql.python_jobs import code_hash
from core.statement_tests.case import Row, StatementCase, TypedColumns
from core.statement_tests.comparison import RowDifference, compare_rows
from core.statement_tests.request import CaseOutcome, CaseResult, UpgradeVerdict

_GOES_ON = (Action.KEEP, Action.RECORD, Action.START, Action.RESUME, Action.RESTART)

_SHOWN: Mapping[str, str] = {
    UpgradeVerdict.SAFE: "the upgrade writes the same rows as the new text alone",
    UpgradeVerdict.SEAM: "rows written before the upgrade keep the old meaning, and those written after it are right",
    UpgradeVerdict.MIXED: "state that the old text left behind makes rows wrong",
    UpgradeVerdict.REFUSED: "the new text cannot continue from it",
}

_LEADS: Mapping[str, str] = {
    UpgradeVerdict.SAFE: "safe in this case",
    UpgradeVerdict.SEAM: "the table gets rows of both texts",
}

_STATE_FITS: Mapping[str, str] = {
    UpgradeVerdict.SAFE: "these rows show no difference, which does not prove that there is none",
    UpgradeVerdict.SEAM: "the rows written after the upgrade are right",
}
"""What an upgrade test shows if the new code of a job continues the state of the old code."""

_OF_CODE: Mapping[EditKind, str] = {
    EditKind.CODE_STATE_UNKNOWN: "Headgate cannot see what code keeps as state, so new code starts with none",
    EditKind.CODE_CONTINUES: "state_compatible in its yml declares that the new code continues this state",
}


def verdict_of(
    case: StatementCase,
    columns: TypedColumns,
    *,
    alone: tuple[tuple[Row, ...], tuple[Row, ...]],
    upgraded: tuple[tuple[Row, ...], tuple[Row, ...]],
) -> tuple[UpgradeVerdict, RowDifference]:
    """Compare the rows of an upgraded statement with those of the new SQL alone; return the verdict and the difference.

    `alone` and `upgraded` each contain the rows written before the upgrade, then all rows at the end.
    """
    whole = compare_rows(columns, alone[1], upgraded[1], key=case.key, tolerance=case.tolerance)
    if not whole:
        return UpgradeVerdict.SAFE, whole
    wanted, found = (compare_rows(columns, *rows, tolerance=0.0).unexpected for rows in (alone, upgraded))
    after = compare_rows(columns, wanted, found, key=case.key, tolerance=case.tolerance)
    return (UpgradeVerdict.MIXED, after) if after else (UpgradeVerdict.SEAM, whole)


def planned_change(old: Revision, new: Revision, tables: Mapping[TableName, Table]) -> Change:
    """Classify the change from `old` to `new` as a plan would, with the current declarations of the input columns."""
    return classify(_with_parents(old, tables), _with_parents(new, tables))


def shown_unsafe(result: CaseResult, change: Change) -> str:
    """Explain how a case contradicts a plan that continues from the checkpoint; empty if it does not."""
    if result.outcome is CaseOutcome.SKIPPED or result.verdict in ("", UpgradeVerdict.SAFE):
        return ""
    unsafe = change.action in _GOES_ON and not _announced(result.verdict, change.kind)
    return f"case {result.name}: {_SHOWN[result.verdict]}" if unsafe else ""


def compatible_code(old: Revision, new: Revision, tables: Mapping[TableName, Table]) -> str:
    """Return the value of `state_compatible` with which a plan would restart a changed job in Python instead.

    It is empty if a plan continues from the checkpoint anyway, or rebuilds for other reasons too.
    """
    if old.parsed is None or not old.parsed.in_python:
        return ""
    before = code_hash(old.parsed)
    declared = replace(new, settings=replace(new.settings, state_compatible=before))
    planned, instead = (planned_change(old, each, tables).action for each in (new, declared))
    return before if planned not in _GOES_ON and instead in _GOES_ON else ""


def upgrade_words(result: CaseResult, change: Change, compatible: str = "") -> tuple[str, ...]:
    """Return sentences on the result of the test, on the action in a plan, and on any contradiction between the two.

    `compatible` is the result of `compatible_code`.
    """
    definition = change.kind.definition
    planned = [f"a plan would {_action(change.action)}: {definition.label} ({definition.code})", _why(change)]
    if result.outcome is CaseOutcome.SKIPPED or not result.verdict:
        return tuple(planned)
    words = [f"{_LEADS.get(result.verdict, 'not safe on the same checkpoint')}: {_SHOWN[result.verdict]}", *planned]
    goes_on = change.action in _GOES_ON
    if compatible and result.verdict in _STATE_FITS:
        rows = _STATE_FITS[result.verdict]
        words.append(f"with state_compatible: {compatible} in its yml, a plan would restart it instead: {rows}")
    elif result.verdict == UpgradeVerdict.SAFE and not goes_on:
        words.append("these rows show no difference, which does not prove that there is none: the plan stays cautious")
    elif goes_on and _announced(result.verdict, change.kind):
        words.append(f"the plan announces it: {definition.leaves or definition.loses}")
    elif shown_unsafe(result, change):
        words.append(
            "PLAN AND TEST DISAGREE: the plan continues from the checkpoint, but this case shows that it must not"
        )
    return tuple(words)


def _announced(verdict: str, kind: ChangeKind) -> bool:
    late = kind is ChangeKind.WATERMARK_DELAY and verdict == UpgradeVerdict.MIXED
    told = (kind.definition.loses, kind.definition.leaves) != (None, None)
    return late or (verdict == UpgradeVerdict.SEAM and told)


def _why(change: Change) -> str:
    """Explain a change, for a job in Python without what is only true of SQL."""
    kinds = (each.kind for each in change.evidence if isinstance(each, Edit))
    return next((_OF_CODE[kind] for kind in kinds if kind in _OF_CODE), change.kind.definition.why)


def _action(action: Action) -> str:
    instead = {Action.RECORD: "only record the new text", Action.KEEP: "keep what runs"}
    return instead.get(action, f"{action} the statement")


def _with_parents(revision: Revision, tables: Mapping[TableName, Table]) -> Revision:
    reads = {read.table for read in revision.parsed.reads} if revision.parsed else set()
    columns = {
        name: tuple(column.name.lower() for column in tables[name].parsed_ddl.columns)
        for name in reads
        if name in tables
    }
    return replace(revision, parents=columns)
