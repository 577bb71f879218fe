"""Declared against deployed → kind of change with evidence; what cannot be proved harmless is a rebuild."""

from collections.abc import Mapping
from dataclasses import dataclass

from core.changes.kinds import ACTION_BY_ROW, NOTE_BY_ROW, ROWS_BY_SEVERITY
from core.changes.revision_diff import revision_differences
from core.model.actions import Action
from core.model.names import TableName
from core.project.revision import Revision


@dataclass(frozen=True, slots=True)
class Change:
    """What a change is: its row, what it asks for, and what was seen."""

    row: str
    action: Action
    evidence: tuple[str, ...] = ()
    classified: bool = True
    """False when the deployed texts are not known or not readable, or Spark disagrees: treated as row 6a."""
    confirmed: bool | None = None
    """Whether Spark's answer agrees with this reading; None when it was not asked, or could not say."""


def unproven_change(why: str) -> Change:
    """Return the change of which nothing is known but that there is one."""
    return Change("6a", Action.REBUILD, (why,), classified=False)


def classify(old: Revision, new: Revision) -> Change:
    """Find every kind of change between two revisions and answer with the most severe; evidence names them all."""
    found = tuple(revision_differences(old, new))
    if any(row != "1" for row, _ in found):
        found = tuple(finding for finding in found if finding[0] != "1")
    if not found:
        return Change("0", Action.KEEP)
    row = max((row for row, _ in found), key=ROWS_BY_SEVERITY.index)
    action = ACTION_BY_ROW.get(row, Action.REBUILD)
    goes_on = row == "7b" and keeps_names(old)
    if goes_on and new.parsed is not None and not new.parsed.stateful:
        action = Action.RESTART
    by_severity = sorted(found, key=lambda finding: -ROWS_BY_SEVERITY.index(finding[0]))
    evidence = [words for _, words in by_severity]
    if row in NOTE_BY_ROW and not goes_on:
        evidence.append(NOTE_BY_ROW[row])
    return Change(row, action, tuple(dict.fromkeys(evidence)))


def rows_between(old: Revision, new: Revision) -> frozenset[str]:
    """Return the row of every difference between two revisions, not of the most severe one alone."""
    return frozenset(row for row, _ in revision_differences(old, new))


def keeps_names(revision: Revision) -> bool:
    """Return whether its checkpoint has kept offsets by the names of its sources since the first start (spark.md
    §2).
    """
    conf = dict(revision.pool.conf) if revision.pool is not None else {}
    return (conf.get(_EVOLUTION, "").lower(), conf.get(_OFFSET_LOG)) == ("true", "2")


_EVOLUTION = "spark.sql.streaming.queryEvolution.enableSourceEvolution"
_OFFSET_LOG = "spark.sql.streaming.offsetLog.formatVersion"


def classify_set(old: Mapping[TableName, Revision], new: Mapping[TableName, Revision]) -> dict[TableName, Change]:
    """Compare the statements of two texts by the tables that they write; two alone are compared whatever they write."""
    if len(old) == len(new) == 1:
        (before,) = old.values()
        return {table: classify(before, after) for table, after in new.items()}
    return {table: _change_of_one(old.get(table), new.get(table)) for table in sorted({*old, *new})}


def most_severe(changes: Mapping[TableName, Change]) -> Change:
    """Return the change of statements that are deployed together: the worst of them, with the evidence of all."""
    if len(changes) == 1:
        return next(iter(changes.values()))
    by_severity = sorted(changes.items(), key=lambda item: -ROWS_BY_SEVERITY.index(item[1].row))
    if by_severity and by_severity[0][1].row != "1":
        # The texts of all statements of a file change with one of them.
        by_severity = [(table, change) for table, change in by_severity if change.row != "1"]
    evidence = tuple(f"{table}: {words}" for table, change in by_severity for words in change.evidence)
    worst = by_severity[0][1] if by_severity else Change("0", Action.KEEP)
    confirmed = [change.confirmed for change in changes.values()]
    return Change(
        worst.row,
        worst.action,
        evidence,
        all(change.classified for change in changes.values()),
        False if False in confirmed else None if None in confirmed or not confirmed else True,
    )


def _change_of_one(old: Revision | None, new: Revision | None) -> Change:
    if old is not None and new is not None:
        return classify(old, new)
    return Change("6a", Action.REBUILD, ("a statement was added" if old is None else "its statement was removed",))
