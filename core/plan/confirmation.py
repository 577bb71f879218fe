"""The text that an operator types to confirm an action, the same in console, command line and agent.

This module does not import the planner, so that a stop can be confirmed without delay.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from core.model.names import TableName
from core.plan.model import Plan

LARGEST_SET = 20
"""Largest number of statements that can be confirmed by typing their number."""

FREE = frozenset(("look", "mark", "stage", "unstage"))
"""Operator actions that need no confirmation, because they only view something or change the user's own list."""

OF_A_RUN = frozenset(("cancel", "skip"))
"""Operator actions on a run, confirmed by typing the start of its id."""

OF_A_PLAN = "approve"
"""The operator action on a plan, confirmed by typing the start of the plan's hash."""

SHORT = 4
"""Number of characters of a run id or plan hash that must be typed."""


@dataclass(frozen=True, slots=True)
class Confirmation:
    """How an operator action is confirmed; `text` must be typed exactly, and is empty at level C0."""

    level: str
    text: str


def confirmation_for_act(act: str, tables: Sequence[str], protected: bool, *, environment: str = "") -> Confirmation:
    """Return the confirmation required for an operator action on tables, such as a stop, start or restart.

    For an action on a run or a plan, `tables` contains the run's id or the plan's hash instead.
    """
    if act in FREE:
        return Confirmation("C0", "")
    names = sorted(set(tables))
    if (act in OF_A_RUN or act == OF_A_PLAN) and names:
        return Confirmation("C2", names[0][:SHORT])
    if len(names) > LARGEST_SET:
        mark = hashlib.sha256("\n".join((act, *names)).encode()).hexdigest()[:4]
        return Confirmation("C3", f"{environment} {mark}".strip())
    if len(names) > 1:
        return Confirmation("C2", str(len(names)))
    if protected:
        return Confirmation("C2", names[0] if names else environment or act)
    return Confirmation("C1", "yes")


def confirmation_for_swap(run_id: str, *, environment: str) -> Confirmation:
    """Return the confirmation required to release the swap of a run that is on hold."""
    return Confirmation("C3", f"{environment} {run_id[:SHORT]}")


def confirmation_for_policy(act: str, digest: str, protected: bool, *, environment: str) -> Confirmation:
    """Return the confirmation required to record (`apply`) or approve (`approve`) a policy."""
    if act == "approve":
        return Confirmation("C3", f"{environment} {digest[:SHORT]}")
    return Confirmation("C2", environment) if protected else Confirmation("C1", "yes")


def confirmation_for_adoption(environment: str) -> Confirmation:
    """Return the confirmation required to adopt an environment whose identity is in doubt."""
    return Confirmation("C3", f"{environment} adopt")


def confirmation_for_plan(plan: Plan) -> Confirmation:
    """Return the confirmation required to apply a plan; external tables do not count as statements.

    For a lost pool, that is a statement about it (C3, or C4 if it needs an approval). Otherwise,
    the plan's hash must be typed if the plan is destructive, must be acknowledged or acts on more than `LARGEST_SET`
    statements (C3), or if it needs an approval (C4).
    """
    if plan.request.lost:
        return Confirmation("C4" if plan.approvals else "C3", f"nothing runs in {plan.request.drains}")
    if plan.approvals:
        return Confirmation("C4", f"{plan.environment} {plan.hash[:SHORT]}")
    acted = sorted({table for table in plan.order if not _is_external(plan, table)})
    if plan.destructive or plan.acknowledges or len(acted) > LARGEST_SET:
        return Confirmation("C3", f"{plan.environment} {plan.hash[:SHORT]}")
    if len(acted) > 1:
        return Confirmation("C2", str(len(acted)))
    if plan.protected and acted:
        return Confirmation("C2", acted[0])
    return Confirmation("C1", "yes")


def _is_external(plan: Plan, table: TableName) -> bool:
    return any(node.table == table and node.version == 0 for node in plan.nodes)
