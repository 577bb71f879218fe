"""The commands `up` and `down`, and `headgate` alone, which opens the console.

In an unprotected environment, the console starts an agent if none is running.
"""

import getpass
import os
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from core.model.errors import HeadgateError, InvalidProject, LedgerUnavailable, Refused, UsageError
from core.model.states import WantedState
from core.project.overlay import parse_period
from core.text.wording import clipped, counted, long_duration
from tui.agent_client import agent_process, os_processes
from tui.agent_client.agent_commands import equivalent_command
from tui.command_line.context import CommandContext
from tui.presentation.styling.value_formatting import moment
from tui.presentation.view.pools import pools_in_words
from tui.project_folder.environment_selection import SelectedEnvironment, environments_started, select_environment
from tui.services.environment_service import EnvironmentService

if TYPE_CHECKING:
    from tui.presentation.screen_content.screen_frame import ConsoleIdentity, LaterCommands
    from tui.screens.backend import ConsoleBackend
    from tui.screens.environment_tab import OpenedEnvironment


def console(context: CommandContext) -> int:
    """Open the console. It shows the last known state if no agent can be reached or started.

    `--env` may name several environments. The first one is shown, and only its agent is started; the others are opened
    as they are, even if they were never started.
    """
    require_terminal(context)
    shown, *also = dict.fromkeys(getattr(context.args, "environments", None) or (None,))
    if also:
        context.args.env = shown
    try:
        client = context.operations.client
        agent_process.ensure_running(context.place, client, context.environ, progress=context.output.progress)
    except (Refused, HeadgateError) as error:
        if not (also or os.path.exists(context.place.where.ledger)):
            raise
        known = os.path.exists(context.place.where.ledger)
        context.output.say(f"{error.summary}: showing the last known state" if known else error.summary)
    context.output.clear()
    return open_console(context, also=[name for name in also if name is not None])


def require_terminal(context: CommandContext) -> None:
    """Raise UsageError if there is no terminal that can display the console."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("the console needs a terminal", remedy="headgate ls; headgate --help lists the commands")
    if context.environ.get("TERM", "") in ("", "dumb"):
        raise UsageError("this terminal has no full screen (TERM)", remedy="set TERM, for example xterm-256color")


def open_console(
    context: CommandContext, *, offer_down: Callable[[], object] | None = None, also: Sequence[str] = ()
) -> int:
    """Run the console until the user exits. `offer_down` is called if the user chooses to stop everything.

    The environments `also` of the same project are opened beside that of the context. Raises LedgerUnavailable if that
    is the only one and has never been started, and UsageError if the project lacks one of them.
    """
    from tui.screens.startup import run_console

    operations = context.operations
    place = operations.place
    if not also and not os.path.exists(place.where.ledger):
        raise LedgerUnavailable(f"{place.title} has never been started", remedy=place.up)
    declared: Mapping[str, bool] = {}
    with suppress(InvalidProject):
        declared = environments_started(place, context.environ) if also else {}
    for name in also:
        # The ledger of a declared environment is read only once the console is open, which it could delay.
        if name not in declared:
            select_environment(context.environ, context.cwd, project=place.folder, environment=name)
    return run_console(
        _identity(operations),
        operations.last_known,
        partial(_backend, operations),
        environ=context.environ,
        offer_down=offer_down,
        later=_commands_for_later(context, place),
        open_environment=partial(_open_environment, context, place.folder),
        also=also,
    )


def _open_environment(context: CommandContext, folder: str, name: str) -> "OpenedEnvironment":
    from tui.screens.environment_tab import OpenedEnvironment

    place = select_environment(context.environ, context.cwd, project=folder, environment=name)
    operations = EnvironmentService(place, context.environ)
    return OpenedEnvironment(_identity(operations), _backend(operations))


def _identity(operations: EnvironmentService) -> "ConsoleIdentity":
    from tui.presentation.screen_content.screen_frame import ConsoleIdentity

    place, user = operations.place, _user(operations)
    return ConsoleIdentity(
        place.project, place.environment, place.protected, user, colour=place.colour, base=place.base
    )


def _backend(operations: EnvironmentService) -> "ConsoleBackend":
    from tui.screens.backend import ConsoleBackend

    return ConsoleBackend(operations)


def _commands_for_later(context: CommandContext, place: SelectedEnvironment) -> "LaterCommands":
    from tui.presentation.screen_content.screen_frame import LaterCommands

    program = started_program(sys.argv[0], context.environ)
    try:
        chosen = select_environment(context.environ, context.cwd)
        found = (chosen.folder, chosen.environment) == (place.folder, place.environment)
    except UsageError:
        found = False
    folder = min(place.folder, os.path.relpath(place.folder, context.cwd), key=len)
    options = [] if found else ["--project", folder, "--env", place.environment]
    return LaterCommands(shlex.join([program, *options]), shlex.join([program, "down", *options]))


def started_program(started: str, environ: Mapping[str, str]) -> str:
    """Return the word that starts this program in the user's shell: `headgate`, or its path if PATH lacks it."""
    found = shutil.which("headgate", path=environ.get("PATH", ""))
    on_path = found is not None and os.path.realpath(found) == os.path.realpath(started)
    return "headgate" if on_path or os.path.basename(started) != "headgate" else started


def _user(operations: EnvironmentService) -> str:
    try:
        return operations.agent.actor()
    except HeadgateError:
        return getpass.getuser()


def up(context: CommandContext) -> int:
    """Start agent and pool, unless they are already running. With `--from`, create the overlay first."""
    said = _create_overlay(context)
    if said is None:
        return 0
    if (overlay := context.place.overlay) is not None and overlay.expires_at <= time.time():
        name = context.place.environment
        raise Refused(
            f"{name} expired {long_duration(time.time() - overlay.expires_at)} ago",
            remedy=f"headgate down --env {name} --purge, or keep it with --from {overlay.base} --expires 2d",
        )
    context.announce()
    if context.args.foreground:
        agent_process.make_home(context.place)
        command = agent_process.agent_command(context.place)
        os.chdir("/")
        os.execve(command[0], command, os_processes.child_environment(context.environ))
    # Without an agent, the ledger may have an older schema, which only the next agent migrates.
    if agent_process.is_listening(context.operations.client):
        facts = agent_process.read_environment_row(context.place)
        if facts is not None and facts.pool_state == "failed":
            context.operations.client.call("start_pool", line=equivalent_command(context.place, "up"))
    started = agent_process.ensure_running(
        context.place, context.operations.client, context.environ, progress=context.output.progress
    )
    facts = agent_process.read_environment_row(context.place)
    wanted = _wanted_running(context) if started else 0
    pool = "the pool is unknown"
    if facts:
        pool = (
            f"{pools_in_words(facts)} up"
            if len(facts.pools) > 1
            else f"pool {facts.pools[0].name} is {facts.pool_state}"
        )
    said.append(f"agent {'started' if started else 'was already running'}; {pool}")
    if wanted:
        resumed = "those not running are resumed from their checkpoints (headgate wait waits for all)"
        said.append(f"wanted running: {counted(wanted, 'statement')}; {resumed}")
    known: dict[str, object] = dict.fromkeys(("agent_pid", "pool", "pool_state"))
    if facts:
        known = {"agent_pid": facts.agent_pid, "pool": facts.pools[0].name, "pool_state": facts.pool_state}
        known |= {"pools": {pool.name: pool.state for pool in facts.pools}} if len(facts.pools) > 1 else {}
    if (overlay := context.place.overlay) is not None:
        known |= {"base": overlay.base, "expires_at": overlay.expires_at, "inherited": dict(overlay.inherited)}
    context.answer({"started": started, **known, "wanted_running": wanted}, *said)
    return 0


def _create_overlay(context: CommandContext) -> list[str] | None:
    """Create the overlay that `--from` demands; return what to print about it, or None if there is nothing to build."""
    args = context.args
    if args.base is None:
        if args.expires is not None or args.since is not None:
            raise UsageError("--expires and --since belong to an overlay", remedy="add --from ENV, as in --from dev")
        return []
    from tui.services.overlays import create_overlay

    name = getattr(args, "env", None)
    if not name:
        raise UsageError("an overlay needs a name", remedy=f"add --env, such as --env pr-123 --from {args.base}")
    expires, since = (
        None if text is None else parse_period(text, option)
        for option, text in (("--expires", args.expires), ("--since", args.since))
    )
    found = create_overlay(
        context.environ,
        context.cwd,
        project=getattr(args, "project", None),
        environment=name,
        base=args.base,
        expires_s=expires,
        since_s=since,
        now=time.time(),
    )
    if found is None:
        words = f"every statement of this project runs in {args.base} as declared: there is nothing to build for {name}"
        context.output.answer({"environment": name, "started": False, "built": []}, words)
        return None
    overlay, project = found.overlay, found.project
    said = [
        f"builds {counted(len(project.built), 'table')}: {clipped(', '.join(project.built), 200)}".removesuffix(": "),
        f"reads {counted(len(project.inherited), 'table')} of {overlay.base}"
        + (f": {clipped(', '.join(f'{t}@v{v}' for t, v in project.inherited.items()), 200)}" * bool(project.inherited)),
    ]
    if project.missing:
        said.append(f"{overlay.base} does not run {clipped(', '.join(project.missing), 200)}")
    if project.shortened:
        tables = ", ".join(project.shortened)
        said.append(f"lacks the earlier rows of {tables}, which {overlay.base} has in second tables")
    for table, version in found.behind.items():
        said.append(f"{overlay.base} now serves {table}@v{version}; down --purge and up again read that")
    left = overlay.expires_at - time.time()
    said.append(f"expires at {moment(overlay.expires_at, time.time())} and is then deleted, in {long_duration(left)}")
    said.append(f"next: headgate plan --all --env {name}")
    return said


def _wanted_running(context: CommandContext) -> int:
    lines = context.operations.snapshot().serving
    return sum(not line.external and line.wanted == WantedState.RUNNING for line in lines)


def down(context: CommandContext) -> int:
    """Stop agent, pool and generator of one environment, and check that they have exited.

    With `--purge`, also delete their files. Other environments of the project that have an agent are named.
    """
    from tui.services import doctor_checks, teardown
    from tui.services.environments import others_with_agent
    from tui.services.overlays import refuse_while_read

    args, output, place = context.args, context.output, context.place
    context.announce()
    typed = place.environment if place.protected else place.project if args.purge else ""
    question = f"Stopping everything in {place.title}: agent, pool and every statement."
    found: list[teardown.OwnedPlace] = []
    known = doctor_checks.slot_addresses(place) if args.purge else ()
    slots = tuple(address for address in known if not teardown.in_own_database(place, address))
    if args.purge:
        refuse_while_read(place)
        found = teardown.owned_places(place)
        output.say(f"{counted(len(found), 'place')} with Headgate's mark:")
        for owned in found:
            output.say(f"  {owned.path}")
        for slot in slots:
            output.say(f"  the replication slot of {slot}")
        for stays in filter(None, (teardown.keeps_home(place), teardown.keeps_demo(place))):
            output.say(stays)
        question += " Then permanently deleting all of the above: tables, checkpoints, ledger, edits."
    # Asked before anything is stopped, so that a refusal changes nothing.
    confirm = context.confirm(typed, question)
    ended = teardown.end_all(
        place,
        context.operations.client,
        keep_pool=args.keep_pool,
        purge=args.purge,
        confirm=confirm,
        progress=output.progress,
    )
    # Slots are dropped before the purge, because it deletes the ledger that lists them.
    kept = [check for check in doctor_checks.drop_slots(context.environ, slots) if not check.ok]
    stays = _left_on_server(place, agent_ended=any(each.startswith("agent") for each in ended)) if args.purge else ""
    # These places are listed only now, because the sample's generator writes files until it has ended.
    found = teardown.owned_places(place) if args.purge else []
    if args.purge:
        teardown.delete_caches(place, context.environ)
    purged = teardown.purge(place, found, output.progress) if found else []
    others = others_with_agent(place, (place.environment,))
    said = [f"{place.title}: ended {', '.join(ended)}" if ended else f"{place.title}: nothing was running"]
    said += [f"still running: {name}; headgate down --env {name} stops it" for name in others]
    said += [f"deleted {len(purged)} of {counted(len(found), 'place')}"] if args.purge else []
    said += [f"{check.summary}; {check.remedy}" for check in kept]
    said += [stays] if stays else []
    left: dict[str, object] = {"others_running": list(others)}
    left |= {"slots_left": [check.facts.get("slot") for check in kept], "left_on_server": stays or None}
    context.answer({"ended": ended, "purged": purged, **left}, *said)
    return 1 if args.purge and (kept or stays or len(purged) < len(found)) else 0


def _left_on_server(place: SelectedEnvironment, *, agent_ended: bool) -> str:
    """Return what an environment leaves on a server that its agent does not manage; empty if that is nothing."""
    facts = agent_process.read_environment_row(place)
    if facts is None:
        return ""
    remote = [pool for pool in facts.pools if pool.declared is not None and pool.declared.url]
    addresses = [pool.declared.address for pool in remote if pool.declared is not None]
    if not addresses and facts.serves is not None and facts.serves.has_remote_server:
        # The agent of an older release recorded only the address.
        remote, addresses = list(facts.pools), [facts.serves.pool]
    if agent_ended:
        return "; ".join(pool.detail for pool in remote if pool.state == "off" and pool.detail)
    if not addresses:
        return ""
    where = " and ".join(addresses)
    return f"no agent was running: queries and names of {place.environment} may still be on {where}"
