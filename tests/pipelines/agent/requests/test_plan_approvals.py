"""Approvals at the agent: by a login other than the author's, for one plan, and audited."""

import pytest
from submission_desk import BOB, LEE, Desk, move

from core.model.errors import ConfirmationNeeded, Refused, Stale
from pipelines.agent.requests.socket_server import Caller


@pytest.fixture
def guarded(desk: Desk) -> Desk:
    """A policy that requires an approval for every rebuild."""
    desk.rule(approve=("rebuild",))
    return desk


def test_a_plan_waits_for_the_approval_of_another_login(guarded: Desk) -> None:
    plan = guarded.plan()
    assert plan.approvals == 1
    assert guarded.hand_over(plan)["approvals"] == 1
    with pytest.raises(Refused, match="approvals 0 of 1") as refused:
        guarded.apply(plan)
    assert refused.value.remedy == f"headgate approve {plan.hash[:12]} as another login"
    with pytest.raises(Refused, match="by 70001; its author cannot approve it"):
        guarded.approve(plan, LEE)
    for _ in range(2):
        assert guarded.approve(plan) == {"hash": plan.hash, "approved": 1, "approvals": 1}
    assert guarded.apply(plan) in guarded.runs.driven


ROOT, SERVICE = 0, 70001
"""Users as whom `sudo` runs processes, which keep the login uid of its caller."""


@pytest.mark.parametrize(
    "again",
    [
        Caller(pid=2, uid=500, login_uid=None),
        Caller(pid=2, uid=SERVICE, login_uid=500),
        Caller(pid=2, uid=ROOT, login_uid=501),
        Caller(pid=2, uid=ROOT, login_uid=None),
    ],
    ids=["without sudo", "as another user", "with another login", "without a login"],
)
def test_sudo_does_not_make_another_person(guarded: Desk, again: Caller) -> None:
    plan = guarded.plan()
    guarded.hand_over(plan, Caller(pid=1, uid=ROOT, login_uid=500))
    with pytest.raises(Refused, match="its author cannot approve it"):
        guarded.approve(plan, again)
    assert guarded.approve(plan, Caller(pid=3, uid=SERVICE, login_uid=501))["approved"] == 1


def test_resubmitting_a_plan_does_not_change_its_author(guarded: Desk) -> None:
    plan = guarded.plan()
    guarded.hand_over_file(plan, LEE)
    guarded.hand_over_file(plan, BOB)
    with pytest.raises(Refused, match="its author cannot approve it"):
        guarded.approve(plan, LEE)
    assert guarded.approve(plan, BOB)["approved"] == 1


def test_plans_without_need_of_approval_and_closed_plans_cannot_be_approved(desk: Desk) -> None:
    plan = desk.plan()
    desk.hand_over(plan)
    with pytest.raises(Refused, match="needs no approval"):
        desk.approve(plan)
    desk.rule(approve=("rebuild",))
    plan = desk.plan()
    desk.hand_over(plan)
    move(desk, "a", checkpoint_id="new")
    with pytest.raises(Stale, match="checkpoint_id was a, now new"):
        desk.approve(plan)
    desk.now += 86400.0
    with pytest.raises(Refused, match="has expired"):
        desk.approve(plan)


def test_an_approval_names_the_plan_and_is_in_the_audit(guarded: Desk) -> None:
    plan = guarded.plan()
    guarded.hand_over(plan)
    with pytest.raises(ConfirmationNeeded, match=f"'{plan.hash[:4]}'"):
        guarded.commands.handle(BOB, {"op": "approve", "args": {"hash": plan.hash}, "confirm": "yes"})
    guarded.approve(plan)
    found = [(row.actor, row.action, row.plan_hash, row.outcome) for row in guarded.agent.ledger.audits()]
    assert found[:2] == [
        ("70002", "approve", plan.hash, "done"),
        ("70002", "approve", plan.hash, "refused"),
    ]


def test_an_approved_plan_is_shown_as_approved_when_submitted_again(guarded: Desk) -> None:
    plan = guarded.plan()
    guarded.hand_over_file(plan)
    guarded.approve(plan)
    assert guarded.hand_over_file(plan)["approved"] == 1
