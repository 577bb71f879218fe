"""The commands `unlock` and `lock`: for a limited time, this user may change a protected environment."""

from tui.command_line.context import CommandContext
from tui.presentation.screen_content.screen_frame import NOT_PROTECTED, lock_answer, unlock_answer


def unlock(context: CommandContext) -> int:
    """Unlock the environment for this user. An environment that is not protected stays as it is, which is no error."""
    title, agent = context.place.title, context.operations.agent
    found = agent.unlock(context.args.length, context.args.ticket)
    if found is None:
        context.answer({"unlocked": False, "protected": False}, f"{title} {NOT_PROTECTED}")
        return 0
    words = unlock_answer(title, found.actor, found.seconds, found.until, found.ticket)
    body = {"unlocked": True, "protected": True, "actor": found.actor, "ticket": found.ticket, "until": found.until}
    context.answer(body, words)
    return 0


def lock(context: CommandContext) -> int:
    """End this user's unlock of the environment."""
    ended = context.operations.agent.lock()
    context.answer({"unlocked": False, "changed": ended}, lock_answer(context.place.title, ended=ended))
    return 0
