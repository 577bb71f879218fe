"""Sends operator actions to the agent, each with the user's confirmation and an equivalent command line."""

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from core.model.act_outcomes import ActOutcome
from core.model.errors import UsageError
from core.text.wording import counted
from tui.agent_client.socket_client import AgentClient
from tui.project_folder.environment_selection import SelectedEnvironment

if TYPE_CHECKING:
    from core.observed.spark_work import WorkOfPool
    from core.plan.confirmation import Confirmation
    from core.plan.request import PlanRequest
    from core.run.records import RunRow
    from state.ledger import LedgerReader


@dataclass(frozen=True, slots=True)
class PeekedRows:
    """Some rows of a table."""

    columns: tuple[str, ...]
    rows: list[list[Any]]
    """The rows; each has one plain JSON value per column."""
    newest_first: bool = False
    """Whether the rows are the newest messages of topics; the rows of other tables have no order."""

    @property
    def counted(self) -> str:
        """The number of rows and their order as text, such as `5 rows in no order`."""
        return f"{counted(len(self.rows), 'row')} {'from the newest on' if self.newest_first else 'in no order'}"


@dataclass(frozen=True, slots=True)
class ComparisonProgress:
    """How far a comparison of an overlay with its base is."""

    running: bool
    done: int
    """Number of tables that are finished, of `of`."""
    of: int
    about: str
    """What the agent is doing, as a clause."""


@dataclass(frozen=True, slots=True)
class UnlockAnswer:
    """An unlock that the agent has recorded."""

    actor: str
    ticket: str
    seconds: float
    until: float
    """End of the unlock, in epoch seconds."""


class AgentCommands:
    """Sends commands to the agent of one environment.

    If the agent refuses a command, the call raises the agent's error. Every call may also raise AgentUnreachable,
    TryAgain and VersionMismatch, like `AgentClient.call`.
    """

    def __init__(self, place: SelectedEnvironment, client: AgentClient) -> None:
        self._place = place
        self._client = client

    def confirmation(self, act: str, tables: Iterable[str]) -> "Confirmation":
        """Compute the confirmation required for an operator action on these tables. The agent computes it again."""
        from core.plan.confirmation import confirmation_for_act

        place = self._place
        return confirmation_for_act(act, tuple(sorted(set(tables))), place.protected, environment=place.environment)

    def act(self, verb: str, tables: Sequence[str], *, confirm: str) -> tuple[ActOutcome, ...]:
        """Stop, start or restart statements, and return the outcome for each.

        Started statements continue from their checkpoints.
        """
        names = sorted(set(tables))
        line = equivalent_command(self._place, verb, *names)
        found = self._client.call(verb, {"tables": names}, confirm=confirm, line=line).get("statements")
        return tuple(map(ActOutcome.from_json, found)) if isinstance(found, list) else ()

    def stage(self, tables: Sequence[str], *, verb: str) -> None:
        """Stage tables for this user's next plan in this project folder. `verb` is deploy, hold or delete.

        Staging exists only in the console, so the console's command is recorded.
        """
        names = sorted(set(tables))
        args = {"folder": self._place.folder, "tables": names, "verb": verb}
        self._client.call("stage", args, line=" ".join((f":{verb}", *names)))

    def unstage(self, tables: Sequence[str]) -> tuple[str, ...]:
        """Unstage tables that this user has staged in this folder. Returns the tables that were staged until now."""
        names = sorted(set(tables))
        args = {"folder": self._place.folder, "tables": names}
        found = self._client.call("unstage", args, line=" ".join((":unstage", *names))).get("unstaged")
        return tuple(str(name) for name in found) if isinstance(found, list) else ()

    def apply(self, plan_hash: str, *, confirm: str) -> str:
        """Execute a submitted plan and return the run's id. Raises Stale if the plan's scope has changed."""
        line = equivalent_command(self._place, "apply", plan_hash[:12], "--confirm", confirm)
        return str(self._client.call("apply", {"hash": plan_hash}, confirm=confirm, line=line).get("run", ""))

    def approve(self, plan_hash: str, *, confirm: str) -> tuple[int, int]:
        """Approve a submitted plan. Returns (approvals by users other than its author, approvals required)."""
        line = equivalent_command(self._place, "approve", plan_hash[:12], "--confirm", confirm)
        answer = self._client.call("approve", {"hash": plan_hash}, confirm=confirm, line=line)
        return int(answer.get("approved") or 0), int(answer.get("approvals") or 0)

    def run_control(self, run_id: str, verb: str, *, step: int = 0, confirm: str = "") -> None:
        """Pause, resume, cancel or retry a run, or skip a `step`. To cancel or skip, `confirm` is the short run id."""
        words = [verb, run_id, *(["--step", str(step)] if step else [])]
        args = {"id": run_id, "act": verb, "step": step}
        line = equivalent_command(self._place, "runs", *words)
        self._client.call("run", args, confirm=confirm or None, line=line)

    def confirmation_of_swap(self, run_id: str) -> "Confirmation":
        """Compute the confirmation required for the swap of a held run. The agent computes it again."""
        from core.plan.confirmation import confirmation_for_swap

        return confirmation_for_swap(run_id, environment=self._place.environment)

    def swap(self, run_id: str, *, confirm: str) -> None:
        """Request the swap of a held run. Raises Refused if the run is not held, or if another user must request it."""
        words = ("release", "swap", run_id, "--confirm", confirm)
        line = equivalent_command(self._place, *words)
        self._client.call("run", {"id": run_id, "act": "swap"}, confirm=confirm, line=line)

    def close_ticket(self, run_id: str, reader: str) -> None:
        """Record that a reader has moved to the serving version. Raises Refused if the reader has no open ticket."""
        line = equivalent_command(self._place, "release", "close", run_id, reader)
        self._client.call("close_ticket", {"id": run_id, "reader": reader}, line=line)

    def peek(self, table: str, *, version: int | None, limit: int) -> PeekedRows:
        """Read at most `limit` rows of a table; `version` is None for the serving version."""
        args: dict[str, Any] = {"table": table, "limit": limit}
        if version is not None:
            args["version"] = version
        answer = self._client.call("peek", args)
        columns = tuple(str(name) for name in answer.get("columns", ()))
        return PeekedRows(columns, [list(row) for row in answer.get("rows", ())], bool(answer.get("newest_first")))

    def pool_work(self, pool: str) -> "WorkOfPool":
        """Return what a pool really does. Raises Refused if there is no such pool."""
        from core.observed.spark_work import WorkOfPool, work_of_pool

        try:
            return work_of_pool(self._client.call("pool_work", {"pool": pool}))
        except ValueError:
            return WorkOfPool(unread="the agent answers in a form that is not known here")

    def compare(self, seconds: float) -> str:
        """Begin a comparison with the base, or join the one that is running; return its id.

        It waits at most `seconds` for positions that both environments have read.
        """
        line = equivalent_command(self._place, "release", "diff")
        return str(self._client.call("compare", {"seconds": seconds}, line=line).get("id", ""))

    def comparison(self, id: str) -> ComparisonProgress:
        """Return how far a comparison is. Raises its error if it failed, and TryAgain if the agent was restarted."""
        found = self._client.call("comparison", {"id": id})
        done, of = int(found.get("done") or 0), int(found.get("of") or 0)
        return ComparisonProgress(bool(found.get("running")), done, of, str(found.get("about", "")))

    def unlock(self, length: str, ticket: str) -> UnlockAnswer | None:
        """Unlock the environment for this user, for a length such as `30m`; None if it is not protected.

        Raises UsageError if length or ticket is wrong, and Refused if the policy makes the environment read-only.
        """
        from core.policy.unlocking import checked_ticket, parse_unlock_length

        seconds, why = parse_unlock_length(length), checked_ticket(ticket)
        line = equivalent_command(self._place, "unlock", length, why)
        found = self._client.call("unlock", {"seconds": seconds, "ticket": why}, line=line)
        if not found.get("unlocked"):
            return None
        return UnlockAnswer(str(found.get("actor", "")), why, seconds, float(found.get("until") or 0.0))

    def lock(self) -> tuple[bool, bool]:
        """End this user's unlock. Returns whether there was one, and whether the environment is protected."""
        found = self._client.call("lock", line=equivalent_command(self._place, "lock"))
        return bool(found.get("changed")), bool(found.get("protected", True))

    def cordon_pool(self, name: str, *, cordons: bool) -> bool:
        """Let a pool take no new statements or, if not `cordons`, take them again. Returns False if that was so."""
        line = equivalent_command(self._place, "pool", "cordon" if cordons else "uncordon", name)
        return bool(self._client.call("cordon_pool", {"id": name, "cordons": cordons}, line=line).get("changed"))

    def refuse_early(self, op: str, act: str = "") -> None:
        """Raise the agent's refusal if this user may not use the command `op` at all, such as in a locked environment.

        `act` is what a command `run` would do to the run.
        """
        from core.model.errors import error_from_json

        if refused := self._client.call("status", {"op": op, "act": act}).get("refused"):
            raise error_from_json(refused)

    def actor(self) -> str:
        """Return the name under which the agent knows this user."""
        return str(self._client.call("status").get("actor", ""))


def find_run(reader: "LedgerReader", id_prefix: str) -> "RunRow":
    """Return the run whose id starts with `id_prefix`. Raises UsageError if no run or several runs match."""
    # Every id starts with an empty prefix, but an empty prefix usually is an unset variable and must not match a run.
    ids = reader.run_ids(id_prefix) if id_prefix else ()
    if len(ids) > 1:
        raise UsageError(f"{id_prefix} matches several runs: {', '.join(ids)}", remedy="give more of the id")
    row = reader.run(ids[0]) if ids else None
    if row is None:
        raise UsageError(f"there is no run {id_prefix!r}", remedy="headgate runs lists them")
    return row


def equivalent_command(place: SelectedEnvironment, *words: str) -> str:
    """Return a `headgate` command line for these words that works in any folder."""
    return shlex.join(["headgate", *words, "--project", place.folder, "--env", place.environment])


def plan_command(place: SelectedEnvironment, request: "PlanRequest") -> str:
    """Return the command line that is equivalent to a plan request."""
    if request.continues:
        return equivalent_command(place, "runs", "retry", request.continues)
    from core.plan.request import command_words
    from core.planner.scope import normal_request

    return equivalent_command(place, *command_words(normal_request(request)))
