"""Plans as they are named on the command line: by the start of a hash, or by the file that holds one."""

import os
import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from core.model.errors import LedgerUnavailable, Refused
from core.plan.model import Plan
from tui.agent_client.agent_commands import equivalent_command
from tui.command_line.context import CommandContext
from tui.presentation.styling.value_formatting import moment
from tui.services import plan_files
from tui.services.plan_submission import find_plan_row, plan_of_row, with_edits

if TYPE_CHECKING:
    from core.plan.file import SavedPlan
    from core.plan.rendering import PlanStanding
    from state.row_types import ApprovalRow, PlanRow

_HASH = re.compile(r"[0-9a-f]*\Z")
"""What is a hash is never looked for as a file: `./7f3a` names one that is called so."""


@dataclass(frozen=True, slots=True)
class NamedPlan:
    """A plan with what is known of it beside itself."""

    plan: Plan
    row: "PlanRow | None"
    """None while no agent has it."""
    saved: "SavedPlan | None"
    approvals: tuple["ApprovalRow", ...] = ()

    @property
    def author(self) -> str:
        """Who handed it over first; before that, who planned it."""
        return self.row.author if self.row else self.saved.author if self.saved else ""

    @property
    def approved(self) -> int:
        """How many others than its author approved it."""
        from state.plans import approvals_of_others

        return len(approvals_of_others(self.row, self.approvals)) if self.row else 0

    @property
    def status(self) -> str:
        """open, applied, superseded, expired or refused; `not submitted` while no agent has it."""
        if self.row is None:
            return "expired" if self.saved and self.saved.expires_at < time.time() else "not submitted"
        return plan_status(self.row, time.time())


def find_plan(context: CommandContext, word: str) -> NamedPlan:
    """Find a plan by hash or file; raises UsageError, Refused for a file of another project or environment."""
    if _HASH.match(word):
        reader = context.operations.reader
        row = with_edits(find_plan_row(reader, word), context.place)
        return NamedPlan(plan_of_row(row), row, None, reader.approvals(row.hash))
    saved = plan_files.read(os.path.join(context.cwd, word), context.place)
    there = _row(context, saved.plan.hash)
    approvals = context.operations.reader.approvals(there.hash) if there else ()
    return NamedPlan(saved.plan, there, saved, approvals)


def submit_saved_plan(context: CommandContext, proposal: NamedPlan) -> "PlanRow":
    """Hand a saved plan to the agent, which refuses it unless it plans the same; one that it has is what it is."""
    if proposal.saved is not None:
        place = context.place
        line = equivalent_command(place, "apply", proposal.plan.hash[:12])
        plan_files.hand_over(place, context.operations.client, proposal.saved, line=line)
    return with_edits(find_plan_row(context.operations.reader, proposal.plan.hash), context.place)


def submitted_plan_row(proposal: NamedPlan) -> "PlanRow":
    """Return the row of a plan that the agent has; raises Refused."""
    if proposal.row is None:
        raise Refused(
            f"plan {proposal.plan.hash[:12]} has not been submitted to the agent yet",
            remedy="its author submits it, and executes it once it is approved: headgate apply FILE",
        )
    return proposal.row


def plan_status_as_json(proposal: NamedPlan) -> dict[str, Any]:
    """Return what is known of a plan beside itself as a JSON object; null is not known yet."""
    row, saved = proposal.row, proposal.saved
    return {
        "author": proposal.author,
        "created_at": row.created_at if row else saved.created_at if saved else None,
        "expires_at": row.expires_at if row else saved.expires_at if saved else None,
        "status": proposal.status,
        "run": row.run_id or None if row else None,
        "superseded_by": row.superseded_by or None if row else None,
        "approvals": [{"login": one.login, "at": one.at} for one in proposal.approvals],
    }


def plan_status_words(proposal: NamedPlan) -> "PlanStanding":
    """Return what is known of a plan beside itself as it stands above its rows."""
    from core.plan.rendering import PlanStanding

    row, now = proposal.row, time.time()
    if row is None:
        ends = proposal.saved.expires_at if proposal.saved else now
        return PlanStanding(proposal.author, moment(ends, now), closed="expired" if ends < now else "not submitted")
    state = plan_status(row, now)
    words = {"open": "", "applied": f"already applied, run {row.run_id}", "superseded": superseded_words(row, now)}
    closed = words.get(state, state)
    return PlanStanding(row.author, moment(row.expires_at, now), proposal.approved, closed)


def superseded_words(row: "PlanRow", now: float) -> str:
    """Describe what superseded a plan, and when; empty where nothing did."""
    if not row.superseded_by:
        return ""
    return f"superseded by {row.superseded_by}, {moment(row.superseded_at or row.created_at, now)}"


def plan_status(row: "PlanRow", now: float) -> str:
    """Return whether a plan is open, applied, superseded, expired or refused."""
    return "expired" if row.status == "open" and row.expires_at < now else row.status


def _row(context: CommandContext, plan_hash: str) -> "PlanRow | None":
    try:
        return context.operations.reader.plan(plan_hash)
    except LedgerUnavailable:
        return None
