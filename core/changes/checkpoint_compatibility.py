"""Conditions under which a changed statement may restart from its checkpoint although the default is a rebuild.

Spark must accept the checkpoint, and the table must be stored as before. After the restart, the table contains rows of
both the old and the new SQL, so a second person must approve the plan.
"""

import re

from core.changes.classification import keeps_names, kinds_between
from core.changes.kinds import CHANGE_KINDS, ChangeKind, CheckpointRefusal
from core.changes.revision_diff import columns_into_state
from core.model.evidence import Edit, EditKind
from core.project.revision import Revision
from core.sql.statement import Operator, ParsedStatement

_LENGTH = re.compile(r"(?<!_)\bwindow\(([^,]+), '[^']+'\)")


def why_not_from_checkpoint(old: Revision, new: Revision) -> CheckpointRefusal | None:
    """Return why the statement cannot restart from its old checkpoint; None if nothing rules it out.

    A restart is ruled out if Spark might reject the checkpoint, or if the table would be stored differently.
    """
    found = kinds_between(old, new)
    named = ChangeKind.NAMED_SOURCES_CHANGED in found and keeps_names(old)
    asked = found - {ChangeKind.NAMED_SOURCES_CHANGED} if named else found
    wrong = (each.why_not_from_checkpoint for each in CHANGE_KINDS if each.kind in asked)
    if first := next(filter(None, wrong), None):
        return first
    if old.parsed is None or new.parsed is None:
        return CheckpointRefusal.STATEMENT_CAME_OR_WENT
    if not any(kind.definition.judged_by_state for kind in found):
        return None
    if columns_into_state(old, new):
        return CheckpointRefusal.STATE_LACKS_COLUMNS
    if not same_state_schema(old.parsed, new.parsed):
        return CheckpointRefusal.OTHER_STATE
    if old.parsed.aggregate_deciding_expressions != new.parsed.aggregate_deciding_expressions:
        return CheckpointRefusal.OTHER_AGGREGATES
    return None if named or _only_filters(old.parsed.pre, new.parsed.pre) else CheckpointRefusal.OTHER_INPUT


def same_state_schema(old: ParsedStatement, new: ParsedStatement) -> bool:
    """True if Spark is known to continue from the old statement's state with the new SQL (tested on Spark 4.2.0).

    It continues if the length of a tumbling window changes, if min and max are exchanged, or if an inner join replaces
    a left join (see `same_checkpoint.txt`). The result is False if a left join replaces an inner join, because Spark's
    behaviour then depends on which columns may be null.
    """
    if len(old.operators) != len(new.operators):
        return False
    return all(_takes(was, now) for was, now in zip(old.operators, new.operators, strict=True))


def _takes(was: Operator, now: Operator) -> bool:
    if was.kind != now.kind:
        return False
    before, after = (tuple(_LENGTH.sub(r"window(\1)", key) for key in each.keys) for each in (was, now))
    if was.kind == "stream_join":
        return before == after and now.detail in (was.detail, _as_inner(was.detail))
    if was.kind in ("aggregate", "window"):
        return before == after and _extremes(was.detail) == _extremes(now.detail)
    return (was.keys, was.detail) == (now.keys, now.detail)


def _as_inner(join: str) -> str:
    return re.sub("^LEFT ON", "INNER ON", join)


def _extremes(aggregates: str) -> str:
    return re.sub(r"\b(min|max)\(", "extreme(", aggregates)


def _only_filters(old: str, new: str) -> bool:
    if old == new:
        return True
    from core.sql.comparison.query_edits import query_edits

    edits = query_edits(old, new)
    return bool(edits) and all(map(_keeps_form, edits))


def _keeps_form(edit: Edit) -> bool:
    if edit.kind is EditKind.GROUP_KEY:
        return edit.before.startswith("window(") and bool(edit.after)
    if edit.kind is EditKind.JOIN_TYPE:
        return (edit.before, edit.after) == ("LEFT", "INNER")
    return edit.kind in (EditKind.FILTER, EditKind.HAVING)
