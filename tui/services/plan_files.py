"""Plan files: written whole, read with their digest, handed to the agent as they are."""

import getpass
import os
import time
from typing import TYPE_CHECKING

from core.model.errors import Refused, UsageError
from core.plan.model import Plan
from tui.agent_client.socket_client import AgentClient
from tui.project_folder.environment_selection import SelectedEnvironment
from tui.project_folder.user_named_files import write_whole
from tui.services.plan_submission import SubmittedPlan, submitted_from

if TYPE_CHECKING:
    from core.plan.file import SavedPlan
    from tui.project_folder.project_reader import ProjectDeclaration


def save(path: str, plan: Plan, declared: "ProjectDeclaration") -> None:
    """Write a plan with its texts, whole or not at all; raises UsageError, Refused where a text holds a secret."""
    from core.plan.file import SavedPlan, refuse_secrets, saved_as_text

    refuse_secrets(declared.texts)
    for node in plan.nodes:
        for texts in (node.texts, node.old):
            # What is deployed, or was, may hold what the files no longer do.
            named = {"ddl.sql": texts.ddl, "dml.sql": texts.dml, "yml": texts.yml}
            refuse_secrets({f"deployed text of {node.table}, {name}": text for name, text in named.items()})
    now, hours = time.time(), declared.project.environments[plan.environment].plan_expires_h
    write_whole(path, saved_as_text(SavedPlan(plan, declared.texts, now, now + hours * 3600, _login())))


def read(path: str, place: SelectedEnvironment) -> "SavedPlan":
    """Read a plan file; raises UsageError for a damaged one, Refused for one of another project or environment."""
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


def hand_over(place: SelectedEnvironment, client: AgentClient, saved: "SavedPlan", *, line: str) -> SubmittedPlan:
    """Hand a saved plan over as it is; the agent plans again from its texts and refuses any difference."""
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


def _login() -> str:
    """Name who plans; a user without a name is its number."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())
