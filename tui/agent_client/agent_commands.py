"""Acts: what is sent to the agent, each with the text it is confirmed by and the command line that does the same."""

import shlex
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from core.model.errors import UsageError
from core.model.names import TableName
from core.plan.request import PlanRequest
from state.ledger import LedgerReader
from state.row_types import RunRow
from tui.agent_client.socket_client import AgentClient
from tui.project_folder.environment_selection import SelectedEnvironment

if TYPE_CHECKING:
    from core.plan.confirmation import Confirmation


def confirmation(place: SelectedEnvironment, act: str, tables: Iterable[TableName]) -> "Confirmation":
    """Compute what an act asks to be typed."""
    from core.plan.confirmation import confirmation_for_act

    return confirmation_for_act(act, tuple(sorted(set(tables))), place.protected, environment=place.environment)


def send_statement_command(
    place: SelectedEnvironment, client: AgentClient, verb: str, tables: Sequence[TableName], *, confirm: str
) -> tuple[dict[str, Any], ...]:
    """Stop, start or restart statements; one answer each."""
    names = sorted(set(tables))
    answer = client.call(verb, {"tables": names}, confirm=confirm, line=equivalent_command(place, verb, *names))
    found = answer.get("statements")
    return tuple(found) if isinstance(found, list) else ()


def stage(place: SelectedEnvironment, client: AgentClient, tables: Sequence[TableName], *, verb: str) -> None:
    """Stage tables in this project folder. The stage is the console's: the line is what is typed there."""
    names = sorted(set(tables))
    args = {"folder": place.folder, "tables": names, "verb": verb}
    client.call("stage", args, line=" ".join((f":{verb}", *names)))


def unstage(place: SelectedEnvironment, client: AgentClient, tables: Sequence[TableName]) -> tuple[str, ...]:
    """Unstage tables; returns those that were staged."""
    names = sorted(set(tables))
    args = {"folder": place.folder, "tables": names}
    found = client.call("unstage", args, line=" ".join((":unstage", *names))).get("unstaged")
    return tuple(str(name) for name in found) if isinstance(found, list) else ()


def apply(place: SelectedEnvironment, client: AgentClient, plan_hash: str, *, confirm: str) -> str:
    """Execute a submitted plan; returns the run's id."""
    line = equivalent_command(place, "apply", plan_hash[:12], "--confirm", confirm)
    return str(client.call("apply", {"hash": plan_hash}, confirm=confirm, line=line).get("run", ""))


def approve(place: SelectedEnvironment, client: AgentClient, plan_hash: str, *, confirm: str) -> tuple[int, int]:
    """Approve a submitted plan; returns how many others than its author approved it, and how many must."""
    line = equivalent_command(place, "approve", plan_hash[:12], "--confirm", confirm)
    answer = client.call("approve", {"hash": plan_hash}, confirm=confirm, line=line)
    return int(answer.get("approved") or 0), int(answer.get("approvals") or 0)


def run_control(
    place: SelectedEnvironment, client: AgentClient, run_id: str, verb: str, *, step: int = 0, confirm: str = ""
) -> None:
    """Control a run; cancel and skip need its short id as `confirm`."""
    words = [verb, run_id, *(["--step", str(step)] if step else [])]
    args = {"id": run_id, "act": verb, "step": step}
    client.call("run", args, confirm=confirm or None, line=equivalent_command(place, "runs", *words))


def peek(
    client: AgentClient, table: str, *, version: int | None, limit: int
) -> tuple[tuple[str, ...], list[list[Any]]]:
    """Read some rows of a table through the agent."""
    args: dict[str, Any] = {"table": table, "limit": limit}
    if version is not None:
        args["version"] = version
    answer = client.call("peek", args)
    return tuple(str(name) for name in answer.get("columns", ())), [list(row) for row in answer.get("rows", ())]


def find_run(reader: LedgerReader, id_prefix: str) -> RunRow:
    """Find a run by the start of its id; raises UsageError."""
    # Every id begins with an empty text, and the newest run is not what an unset variable meant.
    row = reader.run(id_prefix) if id_prefix else None
    if row is None:
        raise UsageError(f"there is no run {id_prefix!r}", remedy="headgate runs lists them")
    return row


def equivalent_command(place: SelectedEnvironment, *words: str) -> str:
    """Write the complete command that does the same, from any folder."""
    return shlex.join(["headgate", *words, "--project", place.folder, "--env", place.environment])


def plan_command(place: SelectedEnvironment, request: PlanRequest) -> str:
    """Write the command of a request."""
    if request.continues:
        return equivalent_command(place, "runs", "retry", request.continues)
    from core.plan.request import command_words
    from core.planning.scope import normal_request

    return equivalent_command(place, *command_words(normal_request(request)))
