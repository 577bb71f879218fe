"""The policy of an environment, which headgate.yml declares and which takes effect once it is recorded."""

import hashlib
import json
from collections.abc import Mapping, Set
from dataclasses import asdict, dataclass, fields
from typing import Any

from core.model.names import TableName

VIEW, OPERATE, APPROVE = "view", "operate", "approve"
ROLES = (VIEW, OPERATE, APPROVE)

ALLOW, ASK = "allow", "ask"
"""Values of `machine_moves`; ASK is the default."""

DENY = "deny"
PROMOTION_RULES = {"failed": DENY, "degraded": DENY, "stopped": ASK, "behind": ASK, "unvalidated": ASK}
"""What a policy decides about a promotion by the condition of its source, with the default of each decision.

The decision is ALLOW, ASK (another login must approve the plan) or DENY.
"""

APPROVABLE = ("delete", "rebuild", "swap", "all")
"""Actions for which a policy can require an approval."""

DISK_FACTOR = 1.3
"""Default factor by which free disk space must exceed the estimate of a plan."""


@dataclass(frozen=True, slots=True)
class Policy:
    """The rules and protections of an environment; a rule that is not set is None."""

    max_replay_rows: int | None = None
    """Maximum number of rows that a single plan may replay."""
    max_replay_h: float | None = None
    """Maximum number of hours that a replay may take."""
    disk_factor: float | None = None
    """Factor by which free disk space must exceed the estimate.

    If it is None, DISK_FACTOR applies, and an unknown amount needs no approval.
    """
    max_statements: int | None = None
    """Maximum number of statements that the pool may run at the same time, including both versions during a rebuild."""
    max_busy_percent: float | None = None
    """Maximum percentage of the pool's time that batches may take while both versions run."""
    max_stopped_percent: float | None = None
    """Maximum percentage of the running statements that a single plan may stop or restart."""
    freeze: tuple[str, ...] = ()
    """Windows in which no plan is applied, in the notation that `core.policy.freeze_windows` parses."""
    approve: tuple[str, ...] = ()
    """Actions from APPROVABLE that need an approval by another login."""
    approve_rows: int | None = None
    """Number of rows to replay above which another login must approve a plan."""
    roles: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Pairs of a role from ROLES and its logins or @groups; a role that is not listed belongs to everybody."""
    hold: bool = False
    """True if a run that replaces a version waits for an operator before its swap."""
    read_only: bool = False
    """True if nobody may change anything but by stopping and cancelling, whether unlocked or not."""
    machine_moves: str = ""
    """What the agent does if the machine's id, and nothing else, differs.

    ALLOW: it continues. ASK: it waits until an operator adopts the environment.
    """
    promote: tuple[tuple[str, str], ...] = ()
    """Pairs of a key of PROMOTION_RULES and its decision, for promotions into the environment.

    A key that is not listed has its default.
    """
    protected: bool = False
    """True if the environment itself is protected."""
    protected_tables: tuple[TableName, ...] = ()
    """Tables whose deletes and rebuilds need an approval, and for which changes in place are denied."""

    @property
    def digest(self) -> str:
        """The first 16 hex digits of the SHA-256 of the policy."""
        text = json.dumps(policy_as_json(self), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def of_promotion(self, condition: str) -> str:
        """Return the decision about a promotion whose source has a condition, a key of PROMOTION_RULES."""
        return dict(self.promote).get(condition, PROMOTION_RULES[condition])

    def holders(self, role: str) -> tuple[str, ...] | None:
        """Return the logins and @groups with a role; None if everybody has it.

        Operators and approvers also have the role of viewer.
        """
        named = dict(self.roles)
        if role != VIEW or VIEW not in named:
            return named.get(role)
        return tuple(sorted({holder for each in ROLES for holder in named.get(each, ())}))

    def grants(self, role: str, login: str, groups: Set[str]) -> bool:
        """True if a login has a role, directly or through one of its groups."""
        holders = self.holders(role)
        return holders is None or any(
            holder[1:] in groups if holder.startswith("@") else holder == login for holder in holders
        )


POLICY_KEYS = tuple(field.name for field in fields(Policy))


def policy_as_json(policy: Policy) -> dict[str, Any]:
    """Return a policy as a JSON object; roles and `promote` are mappings, and rules that are not set are null."""
    pairs = {"roles": {role: list(holders) for role, holders in policy.roles}, "promote": dict(policy.promote)}
    return {**asdict(policy), **pairs}


def policy_from_json(data: Mapping[str, Any]) -> Policy:
    """Rebuild a policy from its JSON object; a missing key means that the rule is not set."""
    known: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in data.items() if key in POLICY_KEYS
    }
    known["roles"] = tuple(sorted((role, tuple(holders)) for role, holders in data.get("roles", {}).items()))
    known["promote"] = tuple(sorted(data.get("promote", {}).items()))
    return Policy(**known)


def differing_rules(one: Policy, other: Policy) -> tuple[str, ...]:
    """Return the keys of the rules that differ between two policies, in the order of POLICY_KEYS."""
    return tuple(key for key in POLICY_KEYS if getattr(one, key) != getattr(other, key))
