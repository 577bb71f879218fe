"""Bare `headgate`: the console, over an agent that is started on demand where the environment is not protected."""

import getpass
import os
import sys
from collections.abc import Callable

from core.model.errors import HeadgateError, LedgerUnavailable, Refused, UsageError
from tui.agent_client import agent_process
from tui.command_line.context import CommandContext
from tui.project_folder.environment_selection import select_environment
from tui.services.environment_service import EnvironmentService


def console(context: CommandContext) -> int:
    """Open the console; it is opened without an agent as well, on the last known state."""
    require_terminal(context)
    try:
        client = context.operations.client
        agent_process.ensure_running(context.place, client, context.environ, progress=context.voice.progress)
    except (Refused, HeadgateError) as error:
        if not os.path.exists(context.place.where.ledger):
            raise
        context.voice.say(f"{error.summary}: showing the last known state")
    context.voice.clear()
    return open_console(context)


def require_terminal(context: CommandContext) -> None:
    """Raise UsageError where the console could not be drawn."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("the console needs a terminal", remedy="headgate ls; headgate --help lists the commands")
    if context.environ.get("TERM", "") in ("", "dumb"):
        raise UsageError("this terminal has no full screen (TERM)", remedy="set TERM, for example xterm-256color")


def open_console(context: CommandContext, *, offer_down: Callable[[], object] | None = None) -> int:
    """Run the Textual application until it is left; `offer_down` is called when everything is to be stopped."""
    from tui.screens.backend import ConsoleBackend
    from tui.screens.startup import run_console

    operations = context.operations
    while True:
        place = operations.place
        if not os.path.exists(place.where.ledger):
            raise LedgerUnavailable(
                f"{place.title} has never been started", remedy=f"headgate up --env {place.environment}"
            )
        left = run_console(
            ConsoleBackend(operations),
            project=place.project,
            environment=place.environment,
            protected=place.protected,
            user=_user(operations),
            environ=context.environ,
            offer_down=offer_down,
        )
        if isinstance(left, int):
            return left
        operations.close()
        there = select_environment(context.environ, context.cwd, project=place.folder, environment=left)
        operations = EnvironmentService(there, context.environ)


def _user(operations: EnvironmentService) -> str:
    """Name the user as the agent does, which stages under that name; without one, as the system does."""
    try:
        return operations.agent.actor()
    except HeadgateError:
        return getpass.getuser()
