"""The commands `unlock` and `lock`: for a limited time, this user may change a protected environment."""

from core.model.errors import AgentUnreachable
from tui.command_line.context import CommandContext
from tui.presentation.screen_content.screen_frame import NOT_PROTECTED, lock_answer, unlock_answer


def unlock(context: CommandContext) -> int:
    """Unlock the environment for this user. An environment that is not protected stays as it is, which is no error."""
    title, length, ticket = context.place.title, context.args.length, context.args.ticket
    try:
        found = context.operations.agent.unlock(length, ticket)
    except AgentUnreachable:
        if context.place.protected:
            raise
        found = None
    if found is None:
        context.answer({"unlocked": False, "protected": False}, f"{title} {NOT_PROTECTED}")
        return 0
    words = unlock_answer(title, found.actor, found.seconds, found.until, found.ticket)
    body = {"unlocked": True, "protected": True, "actor": found.actor, "ticket": found.ticket, "until": found.until}
    context.answer(body, words)
    return 0


def lock(context: CommandContext) -> int:
    """End this user's unlock of the environment."""
    title = context.place.title
    try:
        ended, protected = context.operations.agent.lock()
    except AgentUnreachable:
        if context.place.protected:
            raise
        ended, protected = False, False
    body = {"unlocked": False, "changed": ended, "protected": protected}
    context.answer(body, lock_answer(title, ended=ended, protected=protected))
    return 0
