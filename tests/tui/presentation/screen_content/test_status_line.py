"""Without a message, the status line shows the result of the last command."""

from dataclasses import replace

import pytest

from tests.terminal.in_memory_backend import FakeBackend
from tests.terminal.pizzeria_values import NOW
from tui.presentation.screen_content.screen_frame import COMMAND_S, standing_message
from tui.presentation.view.ledger_view import freshness, make_ledger_view


def standing(now: float = NOW, **fields: object) -> str:
    snapshot = FakeBackend().current
    snapshot = replace(snapshot, commands=(replace(snapshot.commands[0], **fields),))
    return standing_message(make_ledger_view(snapshot), freshness(snapshot, NOW), now)[0]


def test_a_submitted_plan_is_reported_as_submitted_and_not_as_done() -> None:
    assert standing(op="submit_plan", subject="7f3a").startswith("plan 7f3a: submitted in 0.2 s, by alice")


@pytest.mark.parametrize(("state", "pending"), [("starting", True), ("running", False), ("failed", False)])
def test_a_first_batch_is_pending_only_while_the_statement_starts(state: str, pending: bool) -> None:
    snapshot = FakeBackend().current
    rows = tuple(one._replace(state=state) if one.table == "till" else one for one in snapshot.statements)
    command = replace(snapshot.commands[0], op="start", subject="till", outcome="accepted")
    snapshot = replace(snapshot, statements=rows, commands=(command,))
    found = standing_message(make_ledger_view(snapshot), freshness(snapshot, NOW), NOW)[0]
    assert ("first batch pending" in found) is pending


def test_a_failure_message_disappears_after_a_minute() -> None:
    assert "stop orders: failed" in standing(subject="orders", outcome="failed")
    assert standing(NOW + COMMAND_S, subject="orders", outcome="failed") == ""
