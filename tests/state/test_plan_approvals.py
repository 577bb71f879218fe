"""Approvals of a plan: one per login, only for an open plan; the first author is kept."""

from dataclasses import replace

import pytest
from ledger_rows import run_row

from core.model.errors import Refused
from state.ledger import Ledger, LedgerReader
from state.plans import approvals_of_others
from state.row_types import ApprovalRow, PlanRow

PLAN = PlanRow(
    hash="abcd1234", body="{}", author="lee", created_at=1.0, expires_at=100.0, status="open", author_uid=1001
)
BOB = ApprovalRow(PLAN.hash, 1002, "bob", 10.0)


def test_a_login_approves_once_and_is_listed_in_order(ledger: Ledger) -> None:
    ledger.put_plan(PLAN)
    ledger.approve(replace(BOB, uid=1003, login="eve", at=5.0))
    for at in (10.0, 20.0):
        ledger.approve(replace(BOB, at=at))
    with LedgerReader(ledger.path) as reader:
        assert [(one.login, one.at) for one in reader.approvals(PLAN.hash)] == [("eve", 5.0), ("bob", 10.0)]
        assert reader.approvals("other") == ()


def test_approvals_count_once_for_whoever_shares_a_uid_and_not_for_the_author() -> None:
    plan = replace(PLAN, author_uid=1001, author_process_uid=0)
    given = [(1001, 1001), (1004, 0), (1002, 900), (1002, 1002), (1003, 900), (1003, 1003)]
    rows = tuple(ApprovalRow(plan.hash, uid, str(uid), 1.0, process) for uid, process in given)
    assert [one.uid for one in approvals_of_others(plan, rows)] == [1002, 1003]
    older = tuple(replace(one, process_uid=None) for one in rows)
    assert [one.uid for one in approvals_of_others(replace(plan, author_process_uid=None), older)] == [1004, 1002, 1003]


@pytest.mark.parametrize(
    "plan, at, says",
    [
        (PLAN, 100.0, "has expired"),
        (replace(PLAN, status="refused"), 10.0, "is refused"),
        (replace(PLAN, hash="other"), 10.0, "is unknown"),
        (replace(PLAN, status="applied", run_id="r0"), 10.0, "already applied by run r0"),
    ],
)
def test_a_plan_that_can_no_longer_be_applied_cannot_be_approved(
    ledger: Ledger, plan: PlanRow, at: float, says: str
) -> None:
    ledger.put_plan(plan)
    with pytest.raises(Refused, match=says):
        ledger.approve(replace(BOB, at=at))
    assert ledger.approvals(PLAN.hash) == ()


def test_a_plan_that_is_handed_over_again_stays_its_first_authors(ledger: Ledger) -> None:
    ledger.put_plan(PLAN)
    ledger.approve(BOB)
    ledger.put_plan(replace(PLAN, author="bob", author_uid=1002, created_at=50.0, expires_at=150.0))
    assert ledger.plan(PLAN.hash) == PLAN
    assert ledger.approvals(PLAN.hash) == (BOB,)


def test_an_open_plan_that_is_submitted_again_has_its_newest_costs_and_confirmations(ledger: Ledger) -> None:
    ledger.put_plan(PLAN)
    ledger.approve(BOB)
    again = replace(PLAN, author="bob", author_uid=1002, created_at=50.0, body='{"confirmed": true}')
    ledger.put_plan(again)
    assert ledger.plan(PLAN.hash) == replace(PLAN, body=again.body)
    assert ledger.approvals(PLAN.hash) == (BOB,)
    ledger.put_plan(PLAN, saved=True)
    assert ledger.plan(PLAN.hash) == replace(PLAN, body=again.body)


def test_an_expired_plan_that_is_handed_over_again_is_a_new_one_without_approvals(ledger: Ledger) -> None:
    ledger.put_plan(PLAN)
    ledger.approve(BOB)
    again = replace(PLAN, author="bob", author_uid=1002, created_at=100.0, expires_at=200.0)
    ledger.put_plan(again)
    assert ledger.plan(PLAN.hash) == again
    assert ledger.approvals(PLAN.hash) == ()


def test_a_run_takes_a_plan_with_its_approvals(ledger: Ledger) -> None:
    ledger.put_plan(PLAN)
    ledger.approve(BOB)
    ledger.apply_plan(PLAN.hash, run_row(PLAN.hash, id="r1"), now=20.0)
    assert ledger.approvals(PLAN.hash) == (BOB,)
