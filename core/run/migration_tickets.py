"""Which migration tickets are open: who still reads what a release has replaced, and whose time is over."""

from collections.abc import Iterable, Sequence

from core.model.names import physical_name
from core.model.states import WantedState
from core.observed.versions import KnownVersion
from core.run.records import MigrationTicket


def open_tickets(tickets: Iterable[MigrationTicket], versions: Iterable[KnownVersion]) -> tuple[MigrationTicket, ...]:
    """Return the tickets of readers that still read what was replaced.

    A statement's is closed once no version of it reads the old one, another's by an operator's word, and all where the
    old version is gone or serves again.
    """
    every = [one for one in versions if not one.deleted]
    reads = {
        (str(one.table), physical_name(binding.parent, binding.version))
        for one in every
        if one.active or one.wanted == WantedState.RUNNING
        for binding in one.bindings
    }
    there = {physical_name(one.table, one.version) for one in every if not one.active}
    return tuple(
        ticket
        for ticket in tickets
        if ticket.closed_at is None
        and ticket.old in there
        and (not ticket.is_statement or (ticket.reader, ticket.old) in reads)
    )


def overdue_tickets(tickets: Sequence[MigrationTicket], now: float) -> tuple[MigrationTicket, ...]:
    """Return those of open tickets whose time is over, the longest overdue first."""
    return tuple(sorted((one for one in tickets if one.deadline < now), key=lambda one: (one.deadline, one.reader)))
