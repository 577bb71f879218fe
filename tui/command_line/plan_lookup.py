"""Finds plans by hash prefix or plan file, and writes plan files."""

import getpass
import os
import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from core.model.errors import LedgerUnavailable, Refused, UsageError
from core.plan.model import Plan
from tui.agent_client.agent_commands import equivalent_command
from tui.agent_client.socket_client import AgentClient
from tui.command_line.context import CommandContext
from tui.presentation.styling.value_formatting import moment
from tui.project_folder.environment_selection import SelectedEnvironment
from tui.project_folder.user_named_files import write_whole
from tui.services.plan_submission import SubmittedPlan, find_plan_row, plan_of_row, submitted_from, with_edits

if TYPE_CHECKING:
    from core.plan.file import SavedPlan
    from core.plan.rendering import PlanStanding
    from state.row_types import ApprovalRow, PlanRow
    from tui.project_folder.project_folder_reader import ProjectDeclaration

_HASH = re.compile(r"[0-9a-f]*\Z")
"""Matches a plan's hash prefix.

Every hexadecimal word counts as a prefix, so a file called `7f3a` must be given as `./7f3a`.
"""


@dataclass(frozen=True, slots=True)
class NamedPlan:
    """A plan that the user named by hash or file, with its row in the ledger, its file and its approvals."""

    plan: Plan
    row: "PlanRow | None"
    """The plan's row in the ledger; None until it is submitted."""
    saved: "SavedPlan | None"
    approvals: tuple["ApprovalRow", ...] = ()

    @property
    def author(self) -> str:
        """Login of the user who first submitted the plan; before the first submission, of the user who saved it."""
        return self.row.author if self.row else self.saved.author if self.saved else ""

    @property
    def approved(self) -> int:
        """Number of approvals by users other than the author."""
        from state.plans import approvals_of_others

        return len(approvals_of_others(self.row, self.approvals)) if self.row else 0

    @property
    def status(self) -> str:
        """Status as in `plan_status`. Without a row in the ledger: `not submitted` or `expired`."""
        if self.row is None:
            return "expired" if self.saved and self.saved.expires_at < time.time() else "not submitted"
        return plan_status(self.row, time.time())


def find_plan(context: CommandContext, word: str) -> NamedPlan:
    """Find a plan by the start of its hash, or read it from a plan file.

    Raises UsageError if there is no such plan, and Refused if the file is for another project or environment.
    """
    if _HASH.match(word):
        reader = context.operations.reader
        row = with_edits(find_plan_row(reader, word), context.place)
        return NamedPlan(plan_of_row(row), row, None, reader.approvals(row.hash))
    saved = _read(os.path.join(context.cwd, word), context.place)
    there = _row(context, saved.plan.hash)
    approvals = context.operations.reader.approvals(there.hash) if there else ()
    return NamedPlan(saved.plan, there, saved, approvals)


def submit_saved_plan(context: CommandContext, proposal: NamedPlan) -> "PlanRow":
    """Submit a plan that was read from a file, and return the plan's row in the ledger.

    A plan given by its hash is not submitted again. The agent refuses a plan that it does not compute in the same way.
    """
    if proposal.saved is not None:
        place = context.place
        line = equivalent_command(place, "apply", proposal.plan.hash[:12])
        _hand_over(place, context.operations.client, proposal.saved, line=line)
    return with_edits(find_plan_row(context.operations.reader, proposal.plan.hash), context.place)


def submitted_plan_row(proposal: NamedPlan) -> "PlanRow":
    """Return a plan's row in the ledger. Raises Refused if the plan has not been submitted."""
    if proposal.row is None:
        raise Refused(
            f"plan {proposal.plan.hash[:12]} has not been submitted to the agent yet",
            remedy="its author submits it, and executes it once it is approved: headgate apply FILE",
        )
    return proposal.row


def plan_status_as_json(proposal: NamedPlan) -> dict[str, Any]:
    """Return a plan's author, dates, status and approvals as JSON. Unknown values are null."""
    from core.plan.rendering import frozen_now

    row, saved = proposal.row, proposal.saved
    return {
        "author": proposal.author,
        "created_at": row.created_at if row else saved.created_at if saved else None,
        "expires_at": row.expires_at if row else saved.expires_at if saved else None,
        "status": proposal.status,
        "run": row.run_id or None if row else None,
        "superseded_by": row.superseded_by or None if row else None,
        "approvals": [{"login": one.login, "at": one.at} for one in proposal.approvals],
        "frozen": frozen_now(proposal.plan, time.time()),
    }


def plan_status_words(proposal: NamedPlan) -> "PlanStanding":
    """Return a plan's author, expiry, approvals and status for the header of the printed plan."""
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
    """Return a phrase that states what superseded a plan, and when. Empty if it is not superseded."""
    if not row.superseded_by:
        return ""
    return f"superseded by {row.superseded_by}, {moment(row.superseded_at or row.created_at, now)}"


def plan_status(row: "PlanRow", now: float) -> str:
    """Return a plan's status: open, applied, superseded, expired or refused."""
    return "expired" if row.status == "open" and row.expires_at < now else row.status


def _row(context: CommandContext, plan_hash: str) -> "PlanRow | None":
    try:
        return context.operations.reader.plan(plan_hash)
    except LedgerUnavailable:
        return None


def save(path: str, plan: Plan, declared: "ProjectDeclaration") -> None:
    """Write a plan and the project's files to a plan file, atomically. Raises Refused if they contain a secret."""
    from core.plan.file import SavedPlan, refuse_secrets, saved_as_text

    refuse_secrets(declared.texts)
    for node in plan.nodes:
        for texts in (node.texts, node.old):
            # Deployed texts may hold secrets that the files no longer do.
            named = {"ddl.sql": texts.ddl, "dml.sql": texts.dml, "yml": texts.yml}
            refuse_secrets({f"deployed text of {node.table}, {name}": text for name, text in named.items()})
    now, hours = time.time(), declared.project.environments[plan.environment].plan_expires_h
    write_whole(path, saved_as_text(SavedPlan(plan, declared.texts, now, now + hours * 3600, login())))


def _read(path: str, place: SelectedEnvironment) -> "SavedPlan":
    from core.plan.file import saved_from_text

    try:
        with open(path, encoding="ascii") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not a plan file"
        raise UsageError(
            f"{path} cannot be read: {why}", remedy="give a plan's hash, or a file written with --save"
        ) from error
    saved = saved_from_text(text, path)
    if saved.plan.project_id != place.project_id:
        raise Refused(
            f"{path} is a plan of a project other than {place.project}", remedy="name its project with --project"
        )
    if saved.plan.environment != place.environment:
        raise Refused(
            f"{path} was planned for {saved.plan.environment}, but the environment is {place.environment}",
            remedy=f"use its environment: --env {saved.plan.environment}",
        )
    return saved


def _hand_over(place: SelectedEnvironment, client: AgentClient, saved: "SavedPlan", *, line: str) -> SubmittedPlan:
    """Submit a saved plan unchanged.

    The agent recomputes it from the saved source files and refuses it if there is any difference.
    """
    from core.plan.codec import plan_as_json
    from core.planner.strategy_costs import refuse_not_executable

    refuse_not_executable(saved.plan)
    body = plan_as_json(saved.plan)
    args = {
        "texts": dict(saved.texts),
        "environment": place.environment,
        "request": body["request"],
        "hash": saved.plan.hash,
        "folder": place.folder,
        "planner": saved.plan.planner,
        "plan": body,
        "created_at": saved.created_at,
    }
    return submitted_from(saved.plan, client.call("submit_plan", args, line=line), "")


def login() -> str:
    """Return this user's login name, or the user id if there is none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())
