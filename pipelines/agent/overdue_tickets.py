"""An event for each migration ticket whose time is over: its reader still reads what a release has replaced."""

from shlex import quote

from core.run.open_tickets import open_tickets, overdue_tickets
from pipelines.agent.context import AgentContext
from pipelines.agent.trash_purge import checked_now

KIND = "ticket"


def tell_overdue(world: AgentContext) -> None:
    """Record each open ticket that is overdue by the checked clock, once."""
    unclosed = world.ledger.unclosed_tickets()
    if not unclosed:
        return
    late = overdue_tickets(open_tickets(unclosed, world.ledger.deployments()), checked_now(world))
    for ticket in late:
        mark = f"{ticket.run_id} {ticket.reader} {ticket.old}"
        if not any(event.fingerprint == mark for event in world.ledger.events_of(ticket.table, KIND)):
            summary = f"{ticket.reader} still reads {ticket.old}, and its time to move to {ticket.new} is over"
            closes = f"headgate release close {ticket.run_id} {quote(ticket.reader)}"
            remedy = f"headgate release show {ticket.run_id}; {closes}"
            world.event(KIND, summary, about=(ticket.table, ticket.version), detail=remedy, fingerprint=mark)
