"""The command `policy`: shows, applies or approves an environment's policy."""

import time
from collections.abc import Mapping

from core.model.errors import Refused
from core.plan.confirmation import confirmation_for_policy
from core.policy.freeze_windows import frozen_until
from core.policy.roles_and_rules import Policy, policy_as_json
from state.ledger import LedgerReader
from state.registry import IN_FORCE
from tui.command_line.context import CommandContext
from tui.presentation.styling.table_layout import format_table
from tui.project_folder.environment_selection import has_ledger
from tui.services import policy as operations
from tui.services.policy import EnvironmentPolicies, RecordedPolicy

NO_RULES = "no rules: there are no limits, and everybody may operate and approve"


def policy(context: CommandContext) -> int:
    """Show the recorded and the declared policy, or change the recorded one."""
    return {"apply": _apply, "approve": _approve}.get(context.args.subcommand, _show)(context)


def _show(context: CommandContext) -> int:
    declared, _ = operations.read_declared(context.place)
    found = operations.read_policies(declared, _reader(context))
    rules = found.in_force.policy if found.in_force else declared
    now_frozen = frozen_until(rules.freeze, time.time())
    if context.output.as_json:
        context.output.data(
            {
                "environment": context.place.environment,
                "protected": context.place.protected,
                "in_force": operations.as_json(found.in_force),
                "declared": {"digest": declared.digest, "rules": policy_as_json(declared)},
                "waits": operations.as_json(found.awaiting_approval),
                "differs": list(found.differs),
                "frozen": now_frozen,
            }
        )
        return 0
    context.output.print([f"POLICY of {context.place.title}", *_who(found), "", *_beside(_columns(found))])
    if now_frozen:
        context.output.print(["", f"{context.place.environment} is {now_frozen}: no plan is applied"])
    context.output.say(_next(found))
    return 0


def _apply(context: CommandContext) -> int:
    context.announce()
    declared, texts = operations.read_declared(context.place)
    found = operations.read_policies(declared, _reader(context))
    if found.in_force and not found.differs:
        return _answered(context, {"policy": declared.digest, "state": IN_FORCE, "changed": False})
    context.output.say("\n".join(_beside(_columns(found))))
    place = context.place
    needed = confirmation_for_policy("apply", declared.digest, place.protected, environment=place.environment)
    waits = found.in_force is not None and found.in_force.policy.protected
    after = " It takes effect once another login approves it." if waits else ""
    confirm = context.confirm(needed.text, f"Recording the declared policy of {place.title}.{after}")
    client = context.operations.client
    return _answered(context, operations.apply(place, client, declared, texts, confirm=confirm))


def _approve(context: CommandContext) -> int:
    context.announce()
    place = context.place
    found = operations.read_policies(None, context.operations.reader)
    if found.awaiting_approval is None:
        raise Refused("no policy is waiting for approval", remedy="headgate policy show")
    context.output.say("\n".join([*_who(found), *_beside(_columns(found))]))
    digest = found.awaiting_approval.row.digest
    needed = confirmation_for_policy("approve", digest, place.protected, environment=place.environment)
    confirm = context.confirm(needed.text, f"Putting policy {digest} of {place.title} into force.")
    return _answered(context, operations.approve(place, context.operations.client, digest, confirm=confirm))


def _answered(context: CommandContext, answer: Mapping[str, object]) -> int:
    said = "is waiting for approval; another login must run: headgate policy approve"
    if not answer.get("changed"):
        said = "is already in force: nothing to record"
    elif answer.get("state") == IN_FORCE:
        said = "is in force; plans made before it are stale"
    context.answer(answer, f"policy {answer.get('policy')} {said}")
    return 0


def _reader(context: CommandContext) -> LedgerReader | None:
    return context.operations.reader if has_ledger(context.place) else None


def _columns(found: EnvironmentPolicies) -> dict[str, Policy]:
    columns = {"IN FORCE": found.in_force.policy} if found.in_force else {}
    columns |= {"WAITS": found.awaiting_approval.policy} if found.awaiting_approval else {}
    return columns | ({"DECLARED": found.declared} if found.declared else {})


def _beside(columns: dict[str, Policy]) -> list[str]:
    rows = operations.comparison(columns)
    # Differing rules are marked, so that long lists of names need not be compared by eye.
    marked = [(row[0] + ("" if len(set(row[1:])) == 1 else " *"), *row[1:]) for row in rows]
    return format_table(("RULE", *columns), marked) if rows else [NO_RULES]


def _who(found: EnvironmentPolicies) -> list[str]:
    lines = [_recorded("in force", found.in_force)] if found.in_force else ["nothing is recorded yet"]
    return lines + ([_recorded("waits", found.awaiting_approval)] if found.awaiting_approval else [])


def _recorded(status: str, found: RecordedPolicy) -> str:
    row = found.row
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(row.in_force_at or row.at))
    approved = f", approved by {row.approver}" if row.approver else ""
    return f"{row.digest} {status} since {when}, by {row.actor}{approved}"


def _next(found: EnvironmentPolicies) -> str:
    if found.awaiting_approval:
        row = found.awaiting_approval.row
        return f"policy {row.digest} is waiting for approval by a login other than {row.actor}: headgate policy approve"
    if found.in_force is None:
        return "the first start of the agent records what is declared: headgate up"
    if found.differs:
        return f"the files declare something else: {', '.join(found.differs)}; to record it: headgate policy apply"
    return "the declared policy is in force"
