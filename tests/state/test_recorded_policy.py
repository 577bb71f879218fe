"""The recorded policy: a policy in force, a pending one, and the protection that the policy in force determines."""

import pytest
from ledger_rows import policy_row

from core.model.errors import Refused
from core.model.names import TableName
from core.policy.roles_and_rules import Policy
from state.ledger import Ledger, LedgerReader
from state.registry import IN_FORCE, WAITING
from state.row_types import PolicyRow

OPEN = Policy(max_statements=4)
SHUT = Policy(protected=True, protected_tables=(TableName("a"),), roles=(("approve", ("ana", "@sre")),))


def row(policy: Policy, status: str, actor: str = "ana", at: float = 1.0) -> PolicyRow:
    return policy_row(policy, at=at, actor=actor, actor_uid=7, status=status)


def test_nothing_is_recorded_at_first(ledger: Ledger) -> None:
    assert (ledger.recorded_policy(), ledger.policy_in_force(), ledger.policy_awaiting_approval()) == (None, None, None)


def test_the_policy_in_force_is_read_back_completely_with_its_protections(ledger: Ledger) -> None:
    ledger.put_policy(row(SHUT, IN_FORCE))
    with LedgerReader(ledger.path) as reader:
        assert reader.recorded_policy() == SHUT
        assert reader.facts().protected
    ledger.put_policy(row(OPEN, IN_FORCE, at=2.0))
    assert ledger.recorded_policy() == OPEN and not ledger.facts().protected


def test_a_pending_policy_changes_nothing_and_is_replaced_by_the_next(ledger: Ledger) -> None:
    ledger.put_policy(row(SHUT, IN_FORCE))
    ledger.put_policy(row(OPEN, WAITING))
    later = Policy(max_statements=9)
    ledger.put_policy(row(later, WAITING, "bob"))
    assert ledger.recorded_policy() == SHUT and ledger.facts().protected
    waiting = ledger.policy_awaiting_approval()
    assert waiting is not None and (waiting.digest, waiting.actor) == (later.digest, "bob")
    with pytest.raises(Refused, match=f"no policy {OPEN.digest} is waiting"):
        ledger.approve_policy(OPEN.digest, seen=waiting.id, approver="eve", at=3.0)
    assert ledger.recorded_policy() == SHUT


def test_an_approved_policy_is_in_force_with_its_approver(ledger: Ledger) -> None:
    ledger.put_policy(row(SHUT, IN_FORCE))
    ledger.put_policy(row(OPEN, WAITING))
    waiting = ledger.policy_awaiting_approval()
    assert waiting is not None
    approved = ledger.approve_policy(OPEN.digest, seen=waiting.id, approver="bob", at=3.0)
    assert approved == ledger.policy_in_force()
    found = ledger.policy_in_force()
    assert found is not None and (found.actor, found.approver, found.in_force_at) == ("ana", "bob", 3.0)
    assert ledger.recorded_policy() == OPEN and not ledger.facts().protected
    assert ledger.policy_awaiting_approval() is None
    with pytest.raises(Refused):
        ledger.approve_policy(OPEN.digest, seen=waiting.id, approver="bob", at=4.0)


def test_only_the_pending_policy_whose_author_was_checked_is_approved(ledger: Ledger) -> None:
    ledger.put_policy(row(OPEN, WAITING))
    seen = ledger.policy_awaiting_approval()
    assert seen is not None
    ledger.put_policy(row(OPEN, WAITING, "bob"))
    with pytest.raises(Refused, match=f"no policy {OPEN.digest} is waiting"):
        ledger.approve_policy(OPEN.digest, seen=seen.id, approver="bob", at=3.0)
    assert ledger.policy_in_force() is None


def test_a_policy_that_takes_effect_ends_the_waiting(ledger: Ledger) -> None:
    ledger.put_policy(row(OPEN, WAITING))
    ledger.put_policy(row(SHUT, IN_FORCE))
    assert ledger.policy_awaiting_approval() is None
