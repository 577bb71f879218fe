"""Commands on releases at the agent: swaps and closed tickets are accepted, recorded and forwarded."""

from dataclasses import replace
from typing import Any

import pytest
from ledger_rows import plan_row, run_row
from submission_desk import BOB, LEE, NOW, REBUILD_A, Desk

from core.model.errors import ConfirmationNeeded, LedgerUnavailable, Refused, UsageError
from core.model.names import TableName as T
from core.plan.model import Plan
from core.plan.request import PlanRequest
from core.run.model import OperatorControl
from core.run.records import MigrationTicket, StepRow

HELD_A = replace(REBUILD_A, hold=True)


@pytest.fixture
def told(desk: Desk) -> list[tuple[str, OperatorControl]]:
    found: list[tuple[str, OperatorControl]] = []
    desk.runs.submit_command = lambda run, word: found.append((run, word))  # type: ignore[attr-defined]  # Of a run lane.
    return found


def held(desk: Desk, state: str = "gate", **author: Any) -> Plan:
    """Make the run 7f3a-1 wait for confirmation."""
    made = desk.plan(HELD_A)
    desk.agent.ledger.put_plan(plan_row(made, author_uid=LEE.person, **author))
    steps = tuple(
        StepRow(step.n, step.do, step.table, step.version, state if step.do == "hold" else "done")
        for step in made.steps
    )
    desk.agent.ledger.apply_plan(made.hash, run_row(made.hash, id="7f3a-1", steps=steps), now=NOW)
    return made


def ask(desk: Desk, caller: Any = LEE, confirm: str = "dev 7f3a", **args: Any) -> dict[str, Any]:
    request = {"op": "run", "args": {"id": "7f3a-1", "act": "swap", **args}, "confirm": confirm}
    return desk.commands.handle(caller, request)


def test_a_command_is_forwarded_with_its_author_and_recorded(desk: Desk, told: list[Any]) -> None:
    held(desk)
    with pytest.raises(ConfirmationNeeded, match="dev 7f3a"):
        ask(desk, confirm="yes")
    assert told == []
    assert ask(desk, BOB) == {"run": "7f3a-1", "act": "swap"}
    assert told == [("7f3a-1", OperatorControl("swap", 0, BOB.name))]
    done, refused = desk.agent.ledger.commands()
    assert (done.op, done.subject, done.outcome, refused.outcome) == ("swap", "7f3a-1", "accepted", "refused")


def test_sudo_does_not_let_an_author_swap_a_plan_that_needed_an_approval(desk: Desk, told: list[Any]) -> None:
    desk.rule(approve=("rebuild",))
    made = held(desk, author_process_uid=0)
    assert made.approvals
    for caller in (LEE, replace(LEE, uid=0, login_uid=LEE.uid), replace(LEE, uid=0, login_uid=BOB.uid)):
        with pytest.raises(Refused, match="was planned by ana, and its plan needed an approval"):
            ask(desk, caller)
    assert ask(desk, BOB)["act"] == "swap" and len(told) == 1


def test_a_run_that_is_not_held_and_one_that_is_unknown_are_refused(desk: Desk, told: list[Any]) -> None:
    held(desk, state="done")
    with pytest.raises(Refused, match="is not waiting for a swap command"):
        ask(desk)
    with pytest.raises(UsageError, match="there is no run"):
        ask(desk, id="9999-1")
    assert told == []


def test_without_the_role_operate_nobody_confirms_a_swap_or_closes_a_ticket(desk: Desk, told: list[Any]) -> None:
    held(desk)
    desk.rule(roles=(("operate", (BOB.name,)),))
    desk.commands = type(desk.commands)(desk.agent, *desk.parts)
    with pytest.raises(Refused, match="may not continue a run, retry, skip or let it swap"):
        ask(desk)
    with pytest.raises(Refused, match="may not close tickets"):
        desk.commands.handle(LEE, {"op": "close_ticket", "args": {"id": "7f3a-1", "reader": "BI"}})
    ask(desk, BOB)
    assert len(told) == 1


def test_a_ticket_is_closed_once_by_whom_it_says(desk: Desk) -> None:
    ticket = MigrationTicket("7f3a-1", T("a"), "BI", "", "", False, "a__v1", "a__v2", None, 1.0, 2.0)
    desk.agent.ledger.open_tickets([ticket])
    asked = {"op": "close_ticket", "args": {"id": "7f3a-1", "reader": "BI"}}
    assert desk.commands.handle(BOB, asked)["closed"] == 1
    (event,) = desk.agent.ledger.events_of(T("a"), "ticket")
    assert event.summary.startswith("BI has moved from a__v1: its ticket was closed by ")
    (closed,) = desk.agent.ledger.tickets("7f3a-1")
    assert (closed.closed_by, closed.closed_at) == (BOB.name, NOW)
    with pytest.raises(Refused, match="no open ticket of BI"):
        desk.commands.handle(BOB, asked)


def test_a_closed_ticket_is_not_reported_as_open_because_of_its_event(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def locked(*_: Any) -> None:
        raise LedgerUnavailable("the ledger is locked by another program")

    ticket = MigrationTicket("7f3a-1", T("a"), "BI", "", "", False, "a__v1", "a__v2", None, 1.0, 2.0)
    desk.agent.ledger.open_tickets([ticket])
    monkeypatch.setattr(desk.agent.ledger, "add_event", locked)
    asked = {"op": "close_ticket", "args": {"id": "7f3a-1", "reader": "BI"}}
    assert desk.commands.handle(BOB, asked)["closed"] == 1


def test_console_and_agent_plan_the_same_retirement_with_an_open_ticket(desk: Desk) -> None:
    ledger = desk.agent.ledger
    for name in "abc":
        row = ledger.deployment(T(name), 1)
        assert row is not None
        bound = tuple(replace(one, version=2 if one.version else 0) for one in row.bindings)
        ledger.put_deployment(replace(row, version=2, active=False, bindings=bound))
    ledger.activate({T(name): 2 for name in "abc"}, by="7f3a-1", at=NOW)
    retire = PlanRequest(verb="retire", tables=(T("a"), T("b"), T("c")), nonce="n")
    made = desk.plan(retire)
    ledger.open_tickets([MigrationTicket("7f3a-1", T("a"), "BI", "", "", False, "a__v1", "a__v2", None, 1.0, 2.0)])
    with pytest.raises(Refused, match="BI has an open ticket on a__v1"):
        desk.hand_over(desk.plan(retire, tickets=ledger.tickets()))
    ledger.close_ticket("7f3a-1", "BI", by="lee", at=NOW)
    assert desk.hand_over(made)["level"] == "C3"
