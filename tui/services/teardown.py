"""Ending an environment and taking away what Headgate made: proven gone, and never more than what carries our mark.

Folders are deleted as fast as their file system takes it: one that waits for its disk takes many deletions at once.
"""

import json
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from pathlib import Path

from core.model.errors import HeadgateError, Refused
from core.text.wording import counted
from tui.agent_client import agent_process, os_processes
from tui.agent_client.agent_commands import equivalent_command
from tui.agent_client.agent_process import ProgressCallback, WaitProgress
from tui.agent_client.os_processes import OsProcess
from tui.agent_client.socket_client import AgentClient
from tui.project_folder.environment_selection import SelectedEnvironment, has_ledger

AT_ONCE = 16
"""Folders that are emptied side by side: 30,000 files took 3 s instead of 56 s one by one on a slow virtual disk."""


def remove_tree(root: str, *, told: Callable[[int], None]) -> None:
    """Delete a folder with all below it; links are taken away and never followed.

    `told` hears, from this thread, how many files are gone so far. What cannot be deleted stays, without an error.
    """
    folders = [folder for folder, _, _ in os.walk(root)]
    gone = 0
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="remove") as workers:
        for emptied in as_completed([workers.submit(_empty, folder) for folder in folders]):
            gone += emptied.result()
            told(gone)
    for folder in reversed(folders):
        with suppress(OSError):
            os.rmdir(folder)


def _empty(folder: str) -> int:
    """Delete the files of one folder; through its descriptor, so that a link that takes its place leads nowhere."""
    gone = 0
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            with os.scandir(descriptor) as entries:
                names = [entry.name for entry in entries if not entry.is_dir(follow_symlinks=False)]
            for name in names:
                with suppress(OSError):
                    os.unlink(name, dir_fd=descriptor)
                    gone += 1
        finally:
            os.close(descriptor)
    return gone


GENERATOR = "pipelines.demo"

OWNER_FILE = "_headgate_owner"
NOTE_FILE = "_headgate.json"
WORLD_FILE = "_headgate_world"
RECORDS_FOLDER = "_headgate_registry"
LOCK_FILE = "_headgate_pool"
DEMO_FILE = ".headgate-demo"
"""The marks: in a checkpoint, beside a table, in a data folder (with the registry's records and the lock that a server
holds), in a demo's folder."""


def end_all(
    place: SelectedEnvironment, client: AgentClient, *, keep_pool: bool, confirm: str, progress: ProgressCallback
) -> list[str]:
    """End generator, agent and pool; returns what was running. Raises HeadgateError naming what does not end."""
    # Of a home that is closed to us nothing can be seen, and "nothing was running" would be a guess.
    has_ledger(place)
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


def marked(place: SelectedEnvironment) -> list[str]:
    """List what carries our mark: tables, checkpoints, trash, the ledger's home, the demo's folder."""
    data = Path(place.data)
    found = [folder for folder in _folders(data / "tables") if (folder / NOTE_FILE).is_file()]
    found += [folder for folder in _folders(data / "checkpoints") if (folder / OWNER_FILE).is_file()]
    trash = data / "trash"
    if trash.is_dir() and _ours_alone(trash):
        found.append(trash)
    found += [path for path in (data / WORLD_FILE, data / RECORDS_FOLDER, data / LOCK_FILE) if path.exists()]
    home = Path(place.where.home)
    if (home / "ledger.db").is_file():
        found.append(home)
    return [str(path) for path in found] + demo_parts(place.folder)


def demo_parts(folder: str) -> list[str]:
    """List what `headgate demo` made in its folder; empty where the folder does not carry the demo's mark."""
    root = Path(folder)
    try:
        mark = json.loads((root / DEMO_FILE).read_text("utf-8"))
    except (OSError, ValueError):
        return []
    if not isinstance(mark, dict) or mark.get("made_by") != "headgate demo":
        return []
    made = ("README.md", ".gitignore", "headgate.yml", "pipelines", "data", DEMO_FILE)
    found = [str(root / name) for name in made if (root / name).exists()]
    foreign = [entry.name for entry in root.iterdir() if entry.name not in made]
    return found if foreign else [str(root)]


def purge(place: SelectedEnvironment, paths: list[str], progress: ProgressCallback) -> list[str]:
    """Delete what `marked` listed, and folders of ours that are empty then; returns what of the list is gone.

    Raises Refused for a path that leads elsewhere.
    """
    began = time.monotonic()
    shelves = [os.path.join(place.data, "tables"), os.path.join(place.data, "checkpoints"), place.data]
    shelves.append(os.path.dirname(place.where.home))
    gone: list[str] = []
    for path in paths:
        if os.path.islink(path):
            raise Refused(f"{path} is a symbolic link", remedy="remove it yourself")
        if os.path.isdir(path):
            where = f"{len(gone) + 1} of {counted(len(paths), 'place')}"
            remove_tree(
                path,
                told=lambda files, where=where: progress(  # type: ignore[misc]  # Bound per turn.
                    WaitProgress("deleting", time.monotonic() - began, 0.0, f"{where}, {files:,} files")
                ),
            )
        elif os.path.exists(path):
            os.unlink(path)
        if not os.path.exists(path):
            gone.append(path)
    for shelf in shelves:
        with suppress(OSError):
            os.rmdir(shelf)
    return gone


def _folders(root: Path) -> list[Path]:
    if not root.is_dir():
        return []
    return sorted(entry for entry in root.iterdir() if entry.is_dir() and not entry.is_symlink())


def _ours_alone(trash: Path) -> bool:
    """Return whether every folder that was set aside carries a mark of ours: `trash/<mark>/<kind>/<table>`."""
    kept = [table for mark in _folders(trash) for kind in _folders(mark) for table in _folders(kind)]
    return all((folder / NOTE_FILE).is_file() or (folder / OWNER_FILE).is_file() for folder in kept)
