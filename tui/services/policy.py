"""The declared and recorded policies of an environment, and how a policy is recorded and approved."""

from collections.abc import Mapping
from dataclasses import dataclass

from core.model.errors import InvalidProject
from core.model.problems import Problem, Severity
from core.policy.roles_and_rules import POLICY_KEYS, Policy, differing_rules
from core.text.wording import counted, short_number
from state.ledger import LedgerReader
from state.registry import policy_of
from state.row_types import PolicyRow
from tui.agent_client.agent_commands import equivalent_command
from tui.agent_client.socket_client import AgentClient
from tui.project_folder.declaring_files import read_files
from tui.project_folder.environment_selection import SelectedEnvironment, refuse_undeclared
from tui.project_folder.manifest_head_cache import PROJECT_FILE

COUNTS = frozenset(("max_replay_rows", "approve_rows"))


@dataclass(frozen=True, slots=True)
class RecordedPolicy:
    """A policy in the ledger, with the users who recorded and approved it."""

    policy: Policy
    row: PolicyRow


@dataclass(frozen=True, slots=True)
class EnvironmentPolicies:
    """The policies of an environment: declared, in force, and awaiting approval."""

    declared: Policy | None
    """The policy that the files declare; None if the files were not read."""
    in_force: RecordedPolicy | None
    """The recorded policy in force; None if no agent has recorded one yet."""
    awaiting_approval: RecordedPolicy | None

    @property
    def differs(self) -> tuple[str, ...]:
        """Keys of the rules whose values differ between the declared policy and the one in force."""
        return differing_rules(self.declared, self.in_force.policy) if self.declared and self.in_force else ()


def read_declared(place: SelectedEnvironment) -> tuple[Policy, dict[str, str]]:
    """Return the declared policy and, by path, the text of each project file, which is empty for SQL files.

    Only YAML is parsed, so invalid SQL is not an error. Raises UsageError or InvalidProject.
    """
    from core.project_reader.manifest import declared_policy

    refuse_undeclared(place)
    files = read_files(place.folder).texts
    texts = {path: "" if path.endswith(".sql") else text for path, text in files.items()}
    problems: list[Problem] = []
    policy = declared_policy(texts, place.environment, problems)
    errors = [problem for problem in problems if problem.severity is Severity.ERROR]
    if policy is None or errors:
        raise InvalidProject(
            f"{PROJECT_FILE} or a table's settings have {counted(len(errors), 'problem')}",
            remedy="correct what is listed",
            problems=tuple(problem.as_json() for problem in problems),
        )
    return policy, texts


def read_policies(declared: Policy | None, reader: LedgerReader | None) -> EnvironmentPolicies:
    """Combine the declared policy with the policies recorded in the ledger.

    If `reader` is None, no policy is recorded.
    """
    if reader is None:
        return EnvironmentPolicies(declared, None, None)
    with reader.frame():
        in_force, awaiting = reader.policy_in_force(), reader.policy_awaiting_approval()
    return EnvironmentPolicies(declared, _recorded(in_force), _recorded(awaiting))


def apply(
    place: SelectedEnvironment, client: AgentClient, declared: Policy, texts: Mapping[str, str], *, confirm: str
) -> dict[str, object]:
    """Have the agent record the declared policy.

    The result contains `policy` (the digest), `state` (`in force` or `waits`) and `changed`.
    """
    args = {"texts": dict(texts), "id": declared.digest}
    return client.call("policy_apply", args, confirm=confirm, line=equivalent_command(place, "policy", "apply"))


def approve(place: SelectedEnvironment, client: AgentClient, digest: str, *, confirm: str) -> dict[str, object]:
    """Have the agent put a policy that awaits approval in force. The result has the same keys as for `apply`."""
    line = equivalent_command(place, "policy", "approve")
    return client.call("policy_approve", {"id": digest}, confirm=confirm, line=line)


def rule_words(policy: Policy, key: str) -> str:
    """Return the value of a rule as written in headgate.yml; `-` if it is not set."""
    value = getattr(policy, key)
    if value in (None, (), ""):
        return "-"
    if isinstance(value, str):
        return value
    if key == "roles":
        return "; ".join(f"{role}: {', '.join(holders)}" for role, holders in value)
    if key == "promote":
        return "; ".join(f"{condition}: {decision}" for condition, decision in value)
    if isinstance(value, tuple):
        return ", ".join(value)
    if isinstance(value, bool):
        return "yes" if value else "-"
    return short_number(value) if key in COUNTS and value % 1000 == 0 else f"{value:g}"


def comparison(policies: Mapping[str, Policy]) -> tuple[tuple[str, ...], ...]:
    """Return a row for each rule: its key, and its value in each policy.

    Rules that no policy sets are omitted.
    """
    every = tuple(policies.values())
    return tuple(
        (key, *(rule_words(policy, key) for policy in every))
        for key in POLICY_KEYS
        if any(getattr(policy, key) not in (None, (), False, "") for policy in every)
    )


def as_json(found: RecordedPolicy | None) -> dict[str, object] | None:
    """Return a recorded policy as a JSON object."""
    if found is None:
        return None
    row = found.row
    return {
        "digest": row.digest,
        "by": row.actor,
        "at": row.at,
        "approved_by": row.approver or None,
        "in_force_at": row.in_force_at,
        "rules": row.body,
    }


def _recorded(row: PolicyRow | None) -> RecordedPolicy | None:
    return RecordedPolicy(policy_of(row), row) if row else None
