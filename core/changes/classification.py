"""Classifies changes between deployed and declared revisions; unless proved harmless, a change requires a rebuild."""

from collections.abc import Mapping
from dataclasses import dataclass

from core.changes.kinds import ChangeKind
from core.changes.revision_diff import RevisionDifference, revision_differences
from core.model.actions import Action
from core.model.evidence import Edit, EditKind, Evidence, Notice, in_statement, reading_order
from core.model.names import TableName
from core.project.revision import Revision
from core.text.sentence import Fact


@dataclass(frozen=True, slots=True)
class Change:
    """A classified change: its kind, the action that it requires, and the evidence."""

    kind: ChangeKind
    action: Action
    evidence: tuple[Evidence, ...] = ()
    classified: bool = True
    """False if the deployed SQL is unknown or unreadable, or Spark disagrees; such a change is STATE_CHANGED."""
    confirmed: bool | None = None
    """True if Spark's analysis confirms the change, False if it contradicts it; None if it does neither."""


def unproven_change(why: Fact[Notice]) -> Change:
    """Return the change to assume if two revisions cannot be compared; its action is a rebuild."""
    return Change(ChangeKind.STATE_CHANGED, Action.REBUILD, (why,), classified=False)


def classify(old: Revision, new: Revision) -> Change:
    """Return the most severe change between two revisions, with the evidence of all changes."""
    found = tuple(revision_differences(old, new))
    if any(edit.kind is not EditKind.COMMENTS for _, edit in found):
        found = tuple(finding for finding in found if finding[1].kind is not EditKind.COMMENTS)
    if not found:
        return Change(ChangeKind.NONE, Action.KEEP)
    by_severity = sorted(found, key=_severity, reverse=True)
    kind = by_severity[0][0]
    action = kind.definition.action
    goes_on = kind is ChangeKind.NAMED_SOURCES_CHANGED and keeps_names(old)
    # The restart for other sources does not alter the table.
    grows = any(each is ChangeKind.COLUMN_ADDED for each, _ in found)
    if goes_on and not grows and new.parsed is not None and not new.parsed.stateful:
        action = Action.RESTART
    # Edits that may change the number of rows come first.
    edits = (edit for _, edit in sorted(by_severity, key=lambda finding: reading_order(finding[1]) > 0))
    evidence: list[Evidence] = [*edits]
    if kind.definition.note is not None and not goes_on:
        evidence.append(kind.definition.note.of())
    return Change(kind, action, tuple(dict.fromkeys(evidence)))


def _severity(finding: RevisionDifference) -> int:
    return finding[0].definition.severity


def kinds_between(old: Revision, new: Revision) -> frozenset[ChangeKind]:
    """Return the kinds of all differences between two revisions."""
    return frozenset(kind for kind, _ in revision_differences(old, new))


def keeps_names(revision: Revision) -> bool:
    """True if a revision's checkpoint has stored offsets by source name since its first start (spark.md §2)."""
    conf = dict(revision.pool.conf) if revision.pool is not None else {}
    return (conf.get(_EVOLUTION, "").lower(), conf.get(_OFFSET_LOG)) == ("true", "2")


_EVOLUTION = "spark.sql.streaming.queryEvolution.enableSourceEvolution"
_OFFSET_LOG = "spark.sql.streaming.offsetLog.formatVersion"


def classify_set(old: Mapping[TableName, Revision], new: Mapping[TableName, Revision]) -> dict[TableName, Change]:
    """Return the changes between two multi-statement files, by the table that each statement writes.

    If each file has only one statement, the two statements are compared even if they write different tables.
    """
    if len(old) == len(new) == 1:
        (before,) = old.values()
        return {table: classify(before, after) for table, after in new.items()}
    return {table: _change_of_one(old.get(table), new.get(table)) for table in sorted({*old, *new})}


def most_severe(changes: Mapping[TableName, Change]) -> Change:
    """Return the most severe change of statements that are deployed together, with the evidence of all changes."""
    if len(changes) == 1:
        return next(iter(changes.values()))
    by_severity = sorted(changes.items(), key=lambda item: -item[1].kind.definition.severity)
    if by_severity and by_severity[0][1].kind is not ChangeKind.COMMENT_OR_FORMAT:
        # An edit of one statement changes the text of every statement in the file.
        by_severity = [
            (table, change) for table, change in by_severity if change.kind is not ChangeKind.COMMENT_OR_FORMAT
        ]
    evidence = tuple(in_statement(table, seen) for table, change in by_severity for seen in change.evidence)
    worst = by_severity[0][1] if by_severity else Change(ChangeKind.NONE, Action.KEEP)
    confirmed = [change.confirmed for change in changes.values()]
    return Change(
        worst.kind,
        worst.action,
        evidence,
        all(change.classified for change in changes.values()),
        False if False in confirmed else None if None in confirmed or not confirmed else True,
    )


def _change_of_one(old: Revision | None, new: Revision | None) -> Change:
    if old is not None and new is not None:
        return classify(old, new)
    return Change(
        ChangeKind.STATE_CHANGED,
        Action.REBUILD,
        (Edit(EditKind.STATEMENT_ADDED if old is None else EditKind.STATEMENT_REMOVED),),
    )
