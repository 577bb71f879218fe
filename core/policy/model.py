"""What an environment allows, asks an approval for, or denies: declared in headgate.yml, in force once recorded."""

import hashlib
import json
from collections.abc import Mapping, Set
from dataclasses import asdict, dataclass, fields
from typing import Any

from core.model.names import TableName

VIEW, OPERATE, APPROVE = "view", "operate", "approve"
ROLES = (VIEW, OPERATE, APPROVE)

ALLOW, ASK = "allow", "ask"
"""What `machine_moves` says; ASK is the rule where the policy says nothing."""

APPROVABLE = ("delete", "rebuild", "swap", "all")
"""What a policy can ask another's approval for."""

DISK_FACTOR = 1.3
"""How many times the estimate must be free where the policy says nothing."""


@dataclass(frozen=True, slots=True)
class Policy:
    """The rules of one environment, and what is protected in it; None is no rule."""

    max_replay_rows: int | None = None
    """More rows to replay in one plan are denied."""
    max_replay_h: float | None = None
    """A longer replay is denied, in hours."""
    disk_factor: float | None = None
    """How many times the estimate must be free; None is DISK_FACTOR, and no approval where a size is unknown."""
    max_statements: int | None = None
    """Statements that the pool may run at once, both versions of a rebuild counted."""
    max_busy_percent: float | None = None
    """Share of the pool's time that batches may take while both versions run."""
    max_stopped_percent: float | None = None
    """Share of the running statements that one plan may stop or restart."""
    freeze: tuple[str, ...] = ()
    """Windows in which nothing is applied, as `core.policy.freeze_windows` reads them."""
    approve: tuple[str, ...] = ()
    """What needs another's approval, of APPROVABLE."""
    approve_rows: int | None = None
    """A plan that replays more rows needs another's approval."""
    roles: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Role, of ROLES, and the logins or @groups that have it; without an entry everybody has it."""
    hold: bool = False
    """Whether a run that replaces a version waits before its swap until somebody gives the word."""
    machine_moves: str = ""
    """ALLOW: the agent goes on where only the machine's id differs; else that is a doubt, which an operator adopts."""
    protected: bool = False
    """Whether the environment is protected."""
    protected_tables: tuple[TableName, ...] = ()
    """Tables that are deleted and rebuilt only with an approval, and never changed in place."""

    @property
    def digest(self) -> str:
        """SHA-256 of all of it, the first 16 characters."""
        text = json.dumps(policy_as_json(self), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def holders(self, role: str) -> tuple[str, ...] | None:
        """Return who has a role; None is everybody. Whoever operates or approves may view."""
        named = dict(self.roles)
        if role != VIEW or VIEW not in named:
            return named.get(role)
        return tuple(sorted({holder for each in ROLES for holder in named.get(each, ())}))

    def grants(self, role: str, login: str, groups: Set[str]) -> bool:
        """Return whether a login, or one of its groups, has a role."""
        holders = self.holders(role)
        return holders is None or any(
            holder[1:] in groups if holder.startswith("@") else holder == login for holder in holders
        )


POLICY_KEYS = tuple(field.name for field in fields(Policy))


def policy_as_json(policy: Policy) -> dict[str, Any]:
    """Return a policy as an object: roles as a mapping, null where there is no rule."""
    return {**asdict(policy), "roles": {role: list(holders) for role, holders in policy.roles}}


def policy_from_json(data: Mapping[str, Any]) -> Policy:
    """Rebuild a policy from what `policy_as_json` gave; a rule that it did not know yet is none."""
    known: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in data.items() if key in POLICY_KEYS
    }
    known["roles"] = tuple(sorted((role, tuple(holders)) for role, holders in data.get("roles", {}).items()))
    return Policy(**known)


def differing_rules(one: Policy, other: Policy) -> tuple[str, ...]:
    """List the keys in which two policies differ, in the order of KEYS."""
    return tuple(key for key in POLICY_KEYS if getattr(one, key) != getattr(other, key))
