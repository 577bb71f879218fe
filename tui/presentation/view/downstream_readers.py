"""What else an act on statements meets: who reads them, who keeps them from being deleted, who has staged them."""

from collections.abc import Sequence

from core.lineage.table_graph import distances
from core.model.names import TableName
from core.model.states import stays_at_rest
from tui.presentation.view.ledger_view import LedgerView

NAMED = 3
"""Readers that a refusal names; the others are counted."""


def downstream_of(view: LedgerView, targets: Sequence[str]) -> tuple[str, ...]:
    """List everything that reads from the targets, directly or not, without the targets, nearest first."""
    below = distances(
        map(TableName, targets), lambda name: view.statements[name].readers if view.statement(name) else ()
    )
    return tuple(name for name in below if name not in targets)


def why_not_deletable(view: LedgerView, targets: Sequence[str], user: str) -> str:
    """Return who keeps the targets from being deleted, by the planner's own rule; empty when nobody does.

    A reader that goes with them, or that this person has staged for a delete, does not count; nor does one at rest.
    """
    going = {*targets, *(mark.table for mark in view.snapshot.staged if (mark.actor, mark.verb) == (user, "delete"))}
    for name in targets:
        statement = view.statement(name)
        if statement is None:
            return f"{name} is not deployed; there is nothing to delete"
        live = [reader for reader in statement.readers if reader not in going and _goes_on(view, reader)]
        if live:
            more = f" and {len(live) - NAMED} more" if len(live) > NAMED else ""
            return f"{name} is read by {', '.join(live[:NAMED])}{more}: stage their delete first, or mark them all"
    return ""


def staged_by_user(view: LedgerView, user: str, tables: Sequence[str]) -> tuple[str, ...]:
    """Return those of the tables that a person has staged, sorted."""
    asked = frozenset(tables)
    marks = view.snapshot.staged
    return tuple(sorted({str(mark.table) for mark in marks if mark.actor == user and mark.table in asked}))


def _goes_on(view: LedgerView, reader: TableName) -> bool:
    found = view.statements[reader]
    return not stays_at_rest(found.state, found.line.wanted)
