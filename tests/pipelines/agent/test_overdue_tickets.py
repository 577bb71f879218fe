"""An overdue ticket causes a single event, however long its reader keeps reading the replaced version."""

from dataclasses import replace

from ledger_rows import deployment_row

from core.model.names import TableName as T
from core.run.records import MigrationTicket
from pipelines.agent.context import AgentContext
from pipelines.agent.housekeeping import record_overdue_tickets


def told(agent: AgentContext) -> list[str]:
    record_overdue_tickets(agent)
    return [event.summary for event in agent.ledger.events_of(T("a"), "ticket")]


def test_an_overdue_ticket_is_reported_once_and_a_closed_one_never(agent: AgentContext) -> None:
    now = agent.clock()
    one = MigrationTicket("7f3a-1", T("a"), "BI", "", "ana", False, "a__v1", "a__v2", None, now - 100, now + 3600)
    late = replace(one, run_id="7f3a-2", reader="CRM team", deadline=now - 50)
    agent.ledger.open_tickets([one, late, replace(late, reader="gone", closed_at=now)])
    assert told(agent) == [], "nothing is left of what they read"
    for version in (1, 2):
        agent.ledger.put_deployment(deployment_row("a", version=version, active=version == 2))
    said = ["CRM team still reads a__v1, and its deadline to move to a__v2 is over"]
    assert told(agent) == said
    assert told(agent) == said
    (event,) = agent.ledger.events_of(T("a"), "ticket")
    assert event.detail == "headgate release show 7f3a-2; headgate release close 7f3a-2 'CRM team'"
    assert event.version == 1
