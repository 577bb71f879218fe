"""The environment's policy, which is first recorded from the project's files and later changed by commands.

Every command obeys the policy. The agent itself determines the confirmation that an action needs, so that no caller can
choose a weaker one.
"""

import os
import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from core.model.errors import ConfirmationNeeded, InvalidProject, Refused, Stale, UsageError
from core.model.names import environment_words
from core.model.problems import Problem, Severity
from core.plan.confirmation import Confirmation, confirmation_for_policy
from core.policy.roles_and_rules import APPROVE, OPERATE, ROLES, VIEW, Policy, policy_as_json
from core.policy.unlocking import Unlock, checked_length, checked_ticket
from core.project.manifest_head import MANIFEST_PATH
from core.project.unreadable_file import texts_from_json
from core.project_reader.manifest import declared_policy, read_manifest
from core.run.state_machine import GOES_ON
from core.text.wording import long_duration
from pipelines.agent.checked_clock import checked_now, record_deadline
from pipelines.agent.context import AgentContext
from pipelines.agent.requests.socket_server import Caller
from pipelines.declaring_files import texts_without_sql
from state.ledger import Ledger
from state.registry import IN_FORCE, WAITING, policy_of
from state.row_types import AuditRow, PolicyRow


def require_confirmation(needed: Confirmation, given: str, *, stronger: Confirmation | None = None) -> None:
    """Raise ConfirmationNeeded unless `given` is the text of `needed` or of `stronger`."""
    if needed.text and given.strip() not in (needed.text, stronger.text if stronger else needed.text):
        said = f"{given!r} was given" if given else "nothing was given"
        raise ConfirmationNeeded(
            f"this needs the confirmation {needed.text!r}; {said}", remedy=f"--confirm '{needed.text}'"
        )


POLICY_COMMANDS = "agent"
"""Author recorded for the initial policy, which the agent records itself."""

REQUIRED_ROLES = {
    "peek": (VIEW, "look at rows"),
    "compare": (VIEW, "compare rows"),
    "opinion": (OPERATE, "have Spark analyse statements"),
    "look_for_inputs": (OPERATE, "look for topics and folders"),
    "upgrade_shown": (OPERATE, "record what an upgrade test has shown"),
    "start": (OPERATE, "start statements"),
    "restart": (OPERATE, "restart statements"),
    "stage": (OPERATE, "stage"),
    "submit_plan": (OPERATE, "submit plans"),
    "apply": (OPERATE, "apply plans"),
    "run": (OPERATE, "continue a run, retry, skip or let it swap"),
    "close_ticket": (OPERATE, "close tickets"),
    "cordon_pool": (OPERATE, "cordon pools"),
    "adopt": (OPERATE, "adopt the environment"),
    "start_pool": (OPERATE, "start the pool"),
    "exit": (OPERATE, "stop the agent"),
    "approve": (APPROVE, "approve plans"),
    "policy_apply": (OPERATE, "record a policy"),
    "policy_approve": (APPROVE, "approve a policy"),
}
"""Role that each command requires, with a description of the action. Commands that are not listed require no role."""

READ_ONLY = frozenset(("start", "restart", "stage", "apply", "run", "close_ticket", "cordon_pool", "adopt"))
"""Commands that a read-only environment refuses. `run` is refused only for the actions that continue a run.

Plans, approvals and policies are accepted: they change nothing by themselves, or need another login. So are
`start_pool`, which restores only what should be running, and everything that stops.
"""

STOPPING = frozenset(("pause", "cancel"))
"""Actions on a run that require no role."""

OVERRULING = frozenset(("skip", "swap"))
"""Actions on a run that an approver may perform without the role `operate` if the run's plan needed an approval."""

OF_A_POLICY = frozenset(("policy_apply", "policy_approve"))
"""Commands that the agent's own user may always run, so that a policy that locks out all users can be replaced."""

_NO_LONGER = "remove read_only from headgate.yml, then headgate policy apply; stop and cancel always work"


class PolicyEnforcement:
    """Enforces the policy. It is cached in `agent.layout`, so that checks never wait for the ledger."""

    def __init__(self, agent: AgentContext) -> None:
        self._agent = agent
        self._declared = agent.layout.environment
        self._one_at_a_time = threading.Lock()
        """Held from the check of a policy until the policy is written, so that the check remains valid."""
        recorded = agent.ledger.recorded_policy()
        if recorded is not None:
            self._enforce(recorded)
        # An unlock survives the agent, but not the machine, whose uptime measures it.
        if any(unlock.boot != agent.uptime().boot for unlock in agent.ledger.unlocks()):
            agent.ledger.end_unlocks_before_boot(agent.uptime().boot)

    def roles(self, caller: Caller) -> list[str]:
        """Return the roles that the policy grants to a caller."""
        return [role for role in ROLES if self._grants(self._in_force, role, caller)]

    def admit(self, caller: Caller, op: str, args: Mapping[str, Any]) -> None:
        """Raise Refused if the caller lacks the role for a command, or may only look at the environment."""
        self._require_role(caller, op, args)
        if op in READ_ONLY and (op != "run" or args.get("act") in GOES_ON):
            self._refuse_read_only(caller, REQUIRED_ROLES[op][1])

    def unlock(self, caller: Caller, args: Mapping[str, Any], confirm: str) -> dict[str, Any]:
        """Unlock a protected environment for the caller, from now on and for `seconds`; replaces an earlier unlock."""
        if not self.is_named(APPROVE, caller):
            self.require(caller, OPERATE, "unlock the environment")
        asked = args.get("seconds")
        number = isinstance(asked, int | float) and not isinstance(asked, bool)
        seconds = checked_length(float(asked) if number else 0.0, str(asked)[:40])  # type: ignore[arg-type]  # a number
        ticket = checked_ticket(str(args.get("ticket", "")))
        here = self._agent.layout.environment
        if self._in_force.read_only:
            raise Refused(f"the policy makes {here.name} read-only, so unlocking changes nothing", remedy=_NO_LONGER)
        if not here.protected:
            return {"unlocked": False, "changed": False}
        up, until = self._agent.uptime(), list[float]()

        def record(deadline: float) -> None:
            until.append(deadline)
            self._agent.ledger.put_unlock(
                Unlock(
                    uid=caller.person,
                    actor=caller.name,
                    ticket=ticket,
                    at=deadline - seconds,
                    until=deadline,
                    boot=up.boot,
                    uptime_s=up.seconds,
                    seconds=seconds,
                )
            )

        record_deadline(self._agent, seconds, record)
        return {"unlocked": True, "actor": caller.name, "ticket": ticket, "seconds": seconds, "until": until[0]}

    def lock(self, caller: Caller, args: Mapping[str, Any], confirm: str) -> dict[str, Any]:
        """End the caller's unlock."""
        protected = self._agent.layout.environment.protected
        return {"unlocked": False, "changed": self._agent.ledger.end_unlock(caller.person), "protected": protected}

    def _refuse_read_only(self, caller: Caller, words: str) -> None:
        here = self._agent.layout.environment
        title = f"{self._agent.project} {environment_words(here.name, protected=here.protected)}"
        if self._in_force.read_only:
            raise Refused(f"{title} is read-only by its policy: nobody may {words}", remedy=_NO_LONGER)
        if not here.protected:
            return
        now, up = checked_now(self._agent), self._agent.uptime()
        mine = next((one for one in self._agent.ledger.unlocks() if one.uid == caller.person), None)
        if mine is not None and mine.remaining_s(now, boot=up.boot, uptime_s=up.seconds):
            return
        ended = f", whose unlock of {long_duration(mine.seconds)} has ended" if mine is not None else ""
        raise Refused(
            f"{title} is read-only for {caller.name}{ended}: unlock it to {words}",
            remedy=f"headgate unlock 30m TICKET --env {here.name}",
        )

    def _require_role(self, caller: Caller, op: str, args: Mapping[str, Any]) -> None:
        if op not in REQUIRED_ROLES or (op == "run" and args.get("act") in STOPPING):
            return
        role, words = REQUIRED_ROLES[op]
        if op in OF_A_POLICY and caller.uid == os.getuid():
            return
        if op == "run" and args.get("act") in OVERRULING and self.is_named(APPROVE, caller):
            return
        self.require(caller, role, words)

    def is_named(self, role: str, caller: Caller) -> bool:
        """True if the policy grants the role to the caller's user or group by name, not merely to everybody."""
        return self._in_force.holders(role) is not None and self._grants(self._in_force, role, caller)

    def require(self, caller: Caller, role: str, words: str) -> None:
        """Raise Refused if the policy does not grant `role` to the caller.

        `words` completes the message `NAME may not …`.
        """
        if self._grants(self._in_force, role, caller):
            return
        holders = ", ".join(self._in_force.holders(role) or ())
        raise Refused(
            f"{caller.name} may not {words}: the policy grants {role} to {holders}",
            remedy="ask one of them; anybody may stop and cancel",
        )

    def apply(self, caller: Caller, args: Mapping[str, Any], confirm: str) -> dict[str, Any]:
        """Record the declared policy. In a protected environment, it takes effect once another login approves it."""
        policy = self._read(args)
        if policy.digest != args.get("id"):
            raise Stale("the files changed while they were being read", remedy="headgate policy show, then apply again")
        with self._one_at_a_time:
            return self._record(caller, policy, confirm)

    def approve(self, caller: Caller, args: Mapping[str, Any], confirm: str) -> dict[str, Any]:
        """Put the policy that awaits approval into effect.

        Raises Refused if the policy was recorded by the same login.
        """
        with self._one_at_a_time:
            return self._approve(caller, str(args.get("id", "")), confirm)

    def _record(self, caller: Caller, policy: Policy, confirm: str) -> dict[str, Any]:
        here, digest = self._agent.layout.environment, policy.digest
        row = self._agent.ledger.policy_in_force()
        if row is not None and row.digest == digest:
            return {"policy": digest, "state": IN_FORCE, "changed": False}
        if not self._grants(policy, OPERATE, caller):
            raise Refused(
                f"the new policy takes {OPERATE} away from {caller.name}, who could not revert it",
                remedy=f"name {caller.name} under roles.{OPERATE}, or have another login record it",
            )
        protected = here.protected or policy.protected
        require_confirmation(confirmation_for_policy("apply", digest, protected, environment=here.name), confirm)
        now, status = self._agent.clock(), WAITING if here.protected else IN_FORCE
        recorded = replace(_row(policy, status, now), actor=caller.name, actor_uid=caller.person)
        self._agent.ledger.put_policy(replace(recorded, actor_process_uid=caller.uid))
        if status == IN_FORCE:
            self._enforce(policy)
        return {"policy": digest, "state": status, "changed": True}

    def _approve(self, caller: Caller, wanted: str, confirm: str) -> dict[str, Any]:
        waiting, here = self._agent.ledger.policy_awaiting_approval(), self._agent.layout.environment
        if waiting is None:
            raise Refused("no policy is waiting for approval", remedy="headgate policy show")
        if caller.may_be(waiting.actor, waiting.actor_uid, waiting.actor_process_uid):
            raise Refused(
                f"policy {waiting.digest} was recorded by {waiting.actor}, who cannot approve it",
                remedy="ask another login to approve it, without sudo",
            )
        require_confirmation(confirmation_for_policy("approve", wanted, here.protected, environment=here.name), confirm)
        now = self._agent.clock()
        row = self._agent.ledger.approve_policy(wanted, seen=waiting.id, approver=caller.name, at=now)
        self._enforce(policy_of(row))
        return {"policy": row.digest, "state": IN_FORCE, "changed": True}

    @property
    def _in_force(self) -> Policy:
        return self._agent.layout.environment.policy

    def _enforce(self, policy: Policy) -> None:
        """Apply a policy to the whole agent. An environment that the agent's own files protect remains protected."""
        protected = policy.protected or self._declared.protected
        environment = replace(self._declared, policy=policy, protected=protected)
        self._agent.layout = replace(self._agent.layout, environment=environment)

    @staticmethod
    def _grants(policy: Policy, role: str, caller: Caller) -> bool:
        # Groups are looked up only if a policy names somebody, because a directory service may be slow.
        return policy.holders(role) is None or policy.grants(role, caller.name, caller.groups)

    def _read(self, args: Mapping[str, Any]) -> Policy:
        given = args.get("texts")
        if not isinstance(given, Mapping):
            raise UsageError("the request lacks the texts of the policy's files", remedy="headgate policy apply")
        texts = texts_from_json(given)
        policy = _declared(texts, self._declared.name, ("",))
        if read_manifest(texts.get(MANIFEST_PATH), []).id != self._agent.project_id:
            raise Refused("these texts belong to another project than the agent's", remedy="check --project")
        return policy


def record_first(ledger: Ledger, folder: str, environment: str, now: float) -> None:
    """Record headgate.yml's policy in a ledger without a policy. Raises InvalidProject if the file is invalid.

    If the ledger marks the environment as protected, so does the recorded policy, even if headgate.yml no longer does.
    """
    recorded, protected = ledger.recorded_policy(), ledger.facts().protected
    if recorded is not None and recorded.protected >= protected:
        return
    policy = recorded or _declared(texts_without_sql(folder), environment, (MANIFEST_PATH,))
    policy = replace(policy, protected=policy.protected or protected)
    ledger.put_policy(_row(policy, IN_FORCE, now))
    ledger.add_audit(AuditRow(0, now, POLICY_COMMANDS, "policy_apply", policy.digest, outcome="done"))


def _row(policy: Policy, status: str, now: float) -> PolicyRow:
    since = now if status == IN_FORCE else None
    return PolicyRow(
        0,
        now,
        actor=POLICY_COMMANDS,
        actor_uid=None,
        digest=policy.digest,
        body=policy_as_json(policy),
        status=status,
        in_force_at=since,
    )


def _declared(texts: Mapping[str, str], environment: str, places: tuple[str, ...]) -> Policy:
    problems: list[Problem] = []
    policy = declared_policy(texts, environment, problems)
    wrong = [
        problem
        for problem in problems
        if problem.severity is Severity.ERROR and problem.where and problem.where.path.startswith(places)
    ]
    if wrong:
        raise InvalidProject(
            f"{wrong[0].where}: {wrong[0].summary}",
            remedy=wrong[0].remedy,
            problems=tuple(problem.as_json() for problem in problems),
        )
    if policy is None:
        raise InvalidProject(
            f"there is no environment {environment} in {MANIFEST_PATH}", remedy=f"correct {MANIFEST_PATH}"
        )
    return policy
