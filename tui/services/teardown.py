"""Ending an environment: generator, agent and pool, each proven to be its own and proven gone."""

import os
from pathlib import Path

from core.model.errors import HeadgateError, Refused
from tui.agent_client import agent_process, os_processes
from tui.agent_client.agent_commands import equivalent_command
from tui.agent_client.agent_process import ProgressCallback, WaitProgress
from tui.agent_client.os_processes import OsProcess
from tui.agent_client.socket_client import AgentClient
from tui.project_folder.environment_selection import SelectedEnvironment, has_ledger
from tui.project_folder.manifest_head import read_manifest_head

GENERATOR = "pipelines.demo"


def end_all(
    place: SelectedEnvironment, client: AgentClient, *, keep_pool: bool, confirm: str, progress: ProgressCallback
) -> list[str]:
    """End generator, agent and pool; returns what was running. Raises HeadgateError naming what does not end.

    Raises Refused where all of it belongs to another folder, of which this one is a copy.
    """
    # Of a home that is closed to us nothing can be seen, and "nothing was running" would be a guess.
    has_ledger(place)
    _refuse_copy(place, agent_process.find_agent_process(place))
    ended = []
    generator = None if keep_pool else find_generator(place)
    if generator:
        progress(WaitProgress("generator stops", 0.0, 1.0))
        if not os_processes.end_process(generator, patience_s=15.0):
            raise HeadgateError(f"the generator (pid {generator.pid}) does not stop", remedy="stop it as its owner")
        ended.append(f"generator (pid {generator.pid})")
    pool = agent_process.find_pool_process(place)
    agent = agent_process.find_agent_process(place)
    line = equivalent_command(place, "down", *(["--keep-pool"] if keep_pool else []))
    if agent_process.end_agent(place, client, pool=not keep_pool, confirm=confirm, line=line, progress=progress):
        ended.append(f"agent (pid {agent.pid})" if agent else "agent")
    if pool and not keep_pool:
        # The agent ends it; whatever is left of one that was killed is ended here.
        if not os_processes.end_process(pool, patience_s=20.0):
            raise HeadgateError(f"the pool (pid {pool.pid}) does not stop", remedy="stop it as its owner or as root")
        ended.append(f"pool (pid {pool.pid})")
    left = [] if keep_pool else still_running(place)
    if left:
        raise HeadgateError(f"still running: {', '.join(left)}", remedy="headgate doctor; then headgate down again")
    return ended


def _refuse_copy(place: SelectedEnvironment, agent: OsProcess | None) -> None:
    """Raise Refused where the agent serves another folder that is this project as well, by its id.

    A project that was moved has left no such folder behind.
    """
    words = os_processes.arguments_of(agent.pid) if agent is not None else ()
    served = words[words.index("--project") + 1] if "--project" in words[:-1] else ""
    if not served or os.path.realpath(served) == os.path.realpath(place.folder):
        return
    try:
        is_copy = read_manifest_head(os.environ, served).id == place.project_id
    except HeadgateError:
        return
    if is_copy:
        raise Refused(
            f"the agent of {place.title} serves {served}, and {place.folder} is a copy of it with the same id",
            remedy=f"headgate down --project {served}, or give the copy an id of its own in headgate.yml",
        )


def still_running(place: SelectedEnvironment) -> list[str]:
    """List processes of this environment that run: agent, pool, generator."""
    found = {
        "agent": agent_process.find_agent_process(place),
        "pool": agent_process.find_pool_process(place),
        "generator": find_generator(place),
    }
    return [f"{name} (pid {process.pid})" for name, process in found.items() if process is not None]


def find_generator(place: SelectedEnvironment) -> OsProcess | None:
    """Find the demo's generator that lands events in this environment's data folder: it holds the folder's lock."""
    lock = Path(place.data, "generator.lock")
    found = os_processes.lock_holder(str(lock))
    # Whoever only asks for the generator's status holds the lock for an instant and writes nothing.
    if found is None or found.pid != os_processes.written_pid(lock):
        return None
    return found if GENERATOR in os_processes.arguments_of(found.pid) else None
