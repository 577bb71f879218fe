"""What is due after a release: replaced versions stop after their soak, and overdue migration tickets are reported.

The reconciler ends the query of a version that is wanted stopped.
"""

import logging
from collections.abc import Iterable
from contextlib import suppress
from shlex import quote

from core.model.errors import Busy
from core.model.events import EventKind
from core.model.names import query_name
from core.model.states import WantedState
from core.observed.versions import Deployment
from core.run.records import open_tickets, overdue_tickets
from pipelines.agent.context import AgentContext
from pipelines.agent.housekeeping.trash_purge import checked_now

log = logging.getLogger(__name__)


def stop_soaked(agent: AgentContext) -> None:
    """Want every version stopped whose time is over, by the checked clock, and that nothing reads.

    One whose table an open run is about waits for the end of that run.
    """
    now = checked_now(agent)
    # Those that are read by what is due in this round as well wait for the next one.
    before = agent.ledger.deployments()
    for version in (d for d in before if _is_due(d, now) and not _is_read(d, before)):
        key = (version.table, version.version)
        with suppress(Busy), agent.locks.holding(key, by="the end of a soak", wait_s=0):
            # A run may have begun to read it, or have it serve again, since it was looked for.
            every = agent.ledger.deployments()
            found = next((d for d in every if (d.table, d.version) == key), None)
            if found is not None and _is_due(found, now) and not _is_read(found, every) and not _in_a_run(agent, found):
                agent.ledger.update_deployment(*key, wanted=WantedState.STOPPED, stops_at=None)
                agent.event(EventKind.STATE, "stops: it was replaced, and its time to run on is over", about=key)
                log.info("%s was replaced and has run on for long enough", query_name(*key))


def _in_a_run(agent: AgentContext, version: Deployment) -> bool:
    return any(step.table == version.table for run in agent.ledger.open_runs() for step in run.steps)


def _is_read(deployment: Deployment, every: Iterable[Deployment]) -> bool:
    """Return whether a statement reads a version; one that serves may be stopped for a while, and goes on over it."""
    key = (deployment.table, deployment.version)
    readers = (d for d in every if not d.deleted and (d.active or d.wanted == WantedState.RUNNING))
    return any((b.parent, b.version) == key for d in readers for b in d.bindings)


def _is_due(deployment: Deployment, now: float) -> bool:
    return (
        deployment.stops_at is not None
        and deployment.stops_at <= now
        and not deployment.active
        and not deployment.deleted
        and deployment.wanted == WantedState.RUNNING
    )


def tell_overdue(agent: AgentContext) -> None:
    """Record each open ticket that is overdue by the checked clock, once."""
    unclosed = agent.ledger.unclosed_tickets()
    if not unclosed:
        return
    late = overdue_tickets(open_tickets(unclosed, agent.ledger.deployments()), checked_now(agent))
    for ticket in late:
        mark = f"{ticket.run_id} {ticket.reader} {ticket.old}"
        if not any(event.fingerprint == mark for event in agent.ledger.events_of(ticket.table, EventKind.TICKET)):
            summary = f"{ticket.reader} still reads {ticket.old}, and its time to move to {ticket.new} is over"
            closes = f"headgate release close {ticket.run_id} {quote(ticket.reader)}"
            remedy = f"headgate release show {ticket.run_id}; {closes}"
            agent.event(
                EventKind.TICKET, summary, about=(ticket.table, ticket.version), detail=remedy, fingerprint=mark
            )
