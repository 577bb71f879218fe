"""Ends the processes of an environment, and deletes the files that Headgate created for it.

Before it ends a generator, agent or pool, it checks that the process belongs to the environment; afterwards, that it
has ended. A purge deletes only files that are certain to belong to the environment: the folder of a version contains
the owner file of this ledger or is listed in a record; files of the home and of a demo are known by name. All other
files, and the folders that contain them, are kept. Links are never followed.
"""

import fcntl
import json
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from core.ipc.environment_paths import PARSE_CACHE_FILE, POOLS, manifest_cache_path, parse_cache_path
from core.model.errors import HeadgateError, Refused, error_from_json
from core.model.names import is_folder_of_version
from core.project.data_folder import is_in_hdfs
from core.project.overlay import OVERLAY_FILE, PROJECT_FOLDER
from core.text.wording import counted
from tui.agent_client import agent_process, os_processes
from tui.agent_client.agent_commands import equivalent_command
from tui.agent_client.agent_process import ProgressCallback, WaitProgress
from tui.agent_client.os_processes import OsProcess
from tui.agent_client.socket_client import AgentClient
from tui.project_folder.environment_selection import SelectedEnvironment, has_ledger
from tui.project_folder.manifest_head_cache import read_manifest_head

GENERATOR = "pipelines.demo"


def end_all(
    place: SelectedEnvironment,
    client: AgentClient,
    *,
    keep_pool: bool,
    purge: bool = False,
    confirm: str,
    progress: ProgressCallback,
) -> list[str]:
    """End generator, agent, pool and the servers of a scenario; return the names and pids of the ended processes.

    Raises HeadgateError if a process does not end, and Refused if this folder is a copy of the project folder that the
    agent serves.
    """
    # Without access to the home, "nothing was running" would be a guess.
    has_ledger(place)
    _refuse_copy(place, agent_process.find_agent_process(place))
    ended = []
    generator = None if keep_pool else find_generator(place)
    if generator:
        progress(WaitProgress("generator stops", 0.0, 1.0))
        if not os_processes.end_process(generator, patience_s=15.0):
            raise HeadgateError(f"the generator (pid {generator.pid}) does not stop", remedy="stop it as its owner")
        ended.append(f"generator (pid {generator.pid})")
    pools = agent_process.find_pool_processes(place)
    agent = agent_process.find_agent_process(place)
    line = equivalent_command(place, "down", *(["--keep-pool"] if keep_pool else []))
    asked = {"pool": not keep_pool, "purge": purge}
    if agent_process.end_agent(place, client, **asked, confirm=confirm, line=line, progress=progress):
        ended.append(f"agent (pid {agent.pid})" if agent else "agent")
    for name, pool in pools.items() if not keep_pool else ():
        # The agent ends its pools; a pool whose agent was killed is ended here.
        if not os_processes.end_process(pool, patience_s=20.0):
            raise HeadgateError(f"the {name} (pid {pool.pid}) does not stop", remedy="stop it as its owner or as root")
        ended.append(f"{name} (pid {pool.pid})")
    if not keep_pool:
        ended += _end_servers(place, progress)
    left = [] if keep_pool else still_running(place)
    if left:
        raise HeadgateError(f"still running: {', '.join(left)}", remedy="headgate doctor; then headgate down again")
    return ended


def _refuse_copy(place: SelectedEnvironment, agent: OsProcess | None) -> None:
    """Raise Refused if this folder is a copy of the project folder that the agent serves.

    A moved project is not refused, because its former folder no longer exists.
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
    """Return the names and pids of this environment's running processes: agent, pool, generator, servers."""
    found = {
        "agent": agent_process.find_agent_process(place),
        **agent_process.find_pool_processes(place),
        "generator": find_generator(place),
        **({} if _others_with_agent(place) else _servers(place)),
    }
    return [f"{name} (pid {process.pid})" for name, process in found.items() if process is not None]


def find_generator(place: SelectedEnvironment) -> OsProcess | None:
    """Return the demo's generator, which holds the lock in the folder of its events; None if it is not running."""
    lock = Path(event_folder(place), "generator.lock")
    found = os_processes.lock_holder(str(lock))
    # A status query holds the lock for an instant and writes no pid.
    if found is None or found.pid != os_processes.written_pid(lock):
        return None
    return found if GENERATOR in os_processes.arguments_of(found.pid) else None


def event_folder(place: SelectedEnvironment) -> str:
    """Return the folder of the demo's generator; it is local, even if tables and events are in HDFS."""
    return f"{place.folder}/data" if is_in_hdfs(place.data) else place.data


def event_folders(place: SelectedEnvironment) -> list[str]:
    """Return the arguments of the demo's generator that name its folder and the store of its events."""
    return ["--data", event_folder(place), *(["--store", place.data] if is_in_hdfs(place.data) else [])]


def _servers(place: SelectedEnvironment) -> dict[str, OsProcess | None]:
    """Return the running servers of a scenario by name, as recorded with their start times by `pipelines.demo`."""
    processes = read_object(Path(place.folder, SERVERS_FOLDER, "servers.json")).get("processes", {})
    found = {str(name): OsProcess(int(one["pid"]), str(one["started"])) for name, one in processes.items()}
    return {name: process for name, process in found.items() if process.alive}


def in_own_database(place: SelectedEnvironment, address: str) -> bool:
    """True if an address is in the database of a scenario's folder, which is deleted with the folder."""
    processes = read_object(Path(place.folder, SERVERS_FOLDER, "servers.json")).get("processes", {})
    own, parts = processes.get("PostgreSQL"), urlsplit(address)
    return own is not None and (parts.hostname, parts.port) == ("127.0.0.1", own["port"])


def _end_servers(place: SelectedEnvironment, progress: ProgressCallback) -> list[str]:
    """Stop the servers of a scenario through a child process, which also finds servers whose record is missing.

    They keep running while another environment of the project has an agent, because its statements may need them.
    """
    if not os.path.isfile(os.path.join(place.folder, SERVERS_FOLDER, "servers.json")) or _others_with_agent(place):
        return []
    progress(WaitProgress("servers stop", 0.0, 2.0))
    done = os_processes.run_module(GENERATOR, ["--end-servers", "--project", place.folder], os.environ, seconds=120.0)
    try:
        answer = json.loads(done.stdout)
    except ValueError as error:
        said = (done.stderr.strip().splitlines() or ["nothing"])[-1]
        raise HeadgateError(f"the servers cannot be ended: {said}", remedy="headgate down again") from error
    if "error" in answer:
        raise error_from_json(answer["error"])
    return list(answer["ended"])


AT_ONCE = 16
"""Number of folders emptied in parallel. On a slow virtual disk, this deletes 30,000 files in 3 s instead of 56 s."""

OWNER_FILE = "_headgate_owner"
"""File in the folder of a table or checkpoint that identifies the ledger that owns the folder."""
NOTE_FILE = "_headgate.json"
"""File next to the owner file that contains the table's name and version."""
WORLD_FILE = "_headgate_world"
RECORDS_FOLDER = "_headgate_registry"
LOCK_FILE = "_headgate_pool"
DEMO_FILE = ".headgate-demo"
SERVERS_FOLDER = "servers"
"""Folder in a scenario's folder with the data and the logs of its servers."""

_HOME_FILES = re.compile(
    r"ledger\.db(\.new|\.restoring|\.\d{8}T\d{6}Z(\.\d+)?\.replaced)?(-wal|-shm|-journal)?|agent\.(lock|log(\.\d+)?)"
    r"|pool\.(json|token|lock|log(\.\d+)?)|\.pool\.(json|token|log)\.\d+|emergency\.jsonl.*|audit-.*\.jsonl|generator\.log"
    r"|overlay\.(json(\.new)?|lock)|given\.token|jar-sessions\.json"
)
_HOME_FOLDERS = ("pool", POOLS, "connectors", "jars", PROJECT_FOLDER, f"{PROJECT_FOLDER}.new", f"{PROJECT_FOLDER}.old")
"""Folders in the home: for the local Spark server, connectors' and functions' jars, and the project of an overlay."""
_GENERATED = ("feeds.json", "generator.json", "generator.log", "generator.book.json", "generator.lock", "book.json")
"""Files that the demo's generator writes into its data folder."""


@dataclass(frozen=True, slots=True)
class OwnedPlace:
    """A file or folder that a purge deletes."""

    path: str
    parts: tuple[str, ...] = ()
    """The paths to delete; the folder `path` is removed once they are gone.

    If there are none, `path` is deleted with its contents.
    """


def owned_places(place: SelectedEnvironment) -> list[OwnedPlace]:
    """List everything that a purge deletes: only files and folders certain to belong to this environment.

    These are versions, records, marks, the home, and demo files.
    """
    ledger = _ledger_id(place)
    home = _home_parts(Path(place.where.home)) if keeps_home(place) is None else []
    if is_in_hdfs(place.data):
        there = _in_hdfs(place, ledger)
        mark = [OwnedPlace(f"{place.data}/{WORLD_FILE}")] if there["marked"] else []
        found = list(map(OwnedPlace, there["places"]))
        return [*found, *home, *mark] if place.overlay is None else [*found, *mark, *home]
    data = Path(place.data)
    found = [OwnedPlace(str(folder)) for folder in _version_folders(data) if is_owned(folder, ledger)]
    records = data / RECORDS_FOLDER
    if _is_folder(records):
        found += _with_parts(records, [path for path in _entries(records) if _belongs_to_ledger(path, ledger)])
    marks = []
    if _belongs_to_ledger(data / WORLD_FILE, ledger):
        locks = sorted(path for path in data.glob(f"{LOCK_FILE}*") if _is_lock(path))
        marks = [_file(path) for path in (*locks, data / WORLD_FILE) if path.is_file()]
    # The proof for everything else goes last, so that a killed purge can be repeated: the mark or, because no file
    # declares an overlay, its home.
    found += [*home, *marks] if place.overlay is None else [*marks, *home]
    servers = Path(place.folder, SERVERS_FOLDER)
    if _deletes_demo(place) and _is_folder(servers):
        found.append(OwnedPlace(str(servers)))
    return found + _demo_parts(place, {owned.path for owned in found})


def keeps_home(place: SelectedEnvironment) -> str | None:
    """Explain why a purge keeps the environment's home folder; None if it deletes the folder.

    The home is kept if its ledger does not match the mark in the data folder, because the data folder was copied or the
    mark deleted.
    """
    ledger = _ledger_id(place)
    if not ledger or place.overlay is not None:
        return None
    if (
        _in_hdfs(place, ledger)["marked"]
        if is_in_hdfs(place.data)
        else _belongs_to_ledger(Path(place.data, WORLD_FILE), ledger)
    ):
        return None
    return f"{place.where.home} stays: its ledger does not match the mark in {place.data}, which was copied or deleted"


def keeps_demo(place: SelectedEnvironment) -> str | None:
    """Explain why a purge keeps the files of a demo; None if it deletes them, and in any other project.

    They are the project and what has landed for it, so they are kept while another environment has a ledger or overlay.
    """
    others = _others(place)
    if not others or not _is_demo(place):
        return None
    return f"the demo's project and its landed files stay, because it has other environments: {', '.join(others)}"


def purge(place: SelectedEnvironment, places: list[OwnedPlace], progress: ProgressCallback) -> list[str]:
    """Delete the files and folders that `owned_places` listed, and emptied parent folders. Return the deleted paths."""
    began, ledger = time.monotonic(), _ledger_id(place)
    ends = {place.data, place.folder, os.path.dirname(place.where.home)}
    gone: list[str] = []
    for remote, group in groupby(places, key=lambda owned: is_in_hdfs(owned.path)):
        if remote:
            progress(WaitProgress("deleting", time.monotonic() - began, 0.0, f"in {place.data}"))
            gone += _in_hdfs(place, ledger, delete=[owned.path for owned in group])["deleted"]
            continue
        for owned in group:
            where = f"{len(gone) + 1} of {counted(len(places), 'place')}"

            def told(files: int, where: str = where) -> None:
                progress(WaitProgress("deleting", time.monotonic() - began, 0.0, f"{where}, {files:,} files"))

            for path in map(Path, owned.parts):
                _delete(path)
                _remove_empty(path.parent, ends)
            # Checked again, because the folder may have changed while the user typed the confirmation.
            if not owned.parts and _goes_whole(place, Path(owned.path), ledger):
                remove_tree(owned.path, told=told)
                _remove_empty(Path(owned.path).parent, ends)
            if not os.path.lexists(owned.path):
                gone.append(owned.path)
    return gone


def delete_caches(place: SelectedEnvironment, environ: Mapping[str, str]) -> None:
    """Delete the cached parts of a demo's or overlay's project, which nothing else can use; other caches are kept.

    An overlay shares the parse cache with the other environments of its project.
    """
    parsed = parse_cache_path(environ, project=place.project, project_id=place.project_id)
    if parsed and place.overlay is not None:
        _delete(Path(manifest_cache_path(environ, os.getuid(), folder=place.folder)))
    if not parsed or not _deletes_demo(place):
        return
    manifest = Path(manifest_cache_path(environ, os.getuid(), folder=place.folder))
    for path in (*Path(parsed).parent.glob(f"{PARSE_CACHE_FILE}*"), Path(parsed).parent, manifest, manifest.parent):
        _delete(path)


def _in_hdfs(place: SelectedEnvironment, ledger: str, delete: Iterable[str] | None = None) -> dict[str, Any]:
    """Return what the ledger has in the data folder in HDFS, from a child process; or delete some of it.

    Raises HeadgateError if HDFS does not answer.
    """
    words = ["--data", place.data, "--ledger", ledger, "--home", place.where.home]
    words += [] if delete is None else ["--delete", *delete]
    done = os_processes.run_module("pipelines.storage.owned_files", words, os.environ, seconds=600.0)
    try:
        answer: dict[str, Any] = json.loads(done.stdout)
    except ValueError as error:
        said = (done.stderr.strip().splitlines() or ["nothing"])[-1]
        raise HeadgateError(f"{place.data} cannot be read: {said}", remedy="headgate down --purge again") from error
    if "error" in answer:
        raise error_from_json(answer["error"])
    return answer


def _goes_whole(place: SelectedEnvironment, folder: Path, ledger: str) -> bool:
    whole = [f"{place.where.home}/{name}" for name in _HOME_FOLDERS]
    if _deletes_demo(place):
        whole.append(f"{place.folder}/{SERVERS_FOLDER}")
    return is_owned(folder, ledger) or str(folder) in whole


def _delete(path: Path) -> None:
    """Delete a file or an empty folder. Links, folders with content, and lock files in use are kept."""
    with suppress(OSError):
        if _is_folder(path):
            path.rmdir()
        elif not path.is_symlink() and not (_is_lock(path) and _is_locked(path)):
            path.unlink()


def _is_lock(path: Path) -> bool:
    """True for the lock of a server in the data folder, which has the name of its pool among several after a dot."""
    return path.name == LOCK_FILE or path.name.startswith(f"{LOCK_FILE}.")


def _is_locked(path: Path) -> bool:
    with suppress(FileNotFoundError), open(path, "rb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _remove_empty(folder: Path, ends: set[str]) -> None:
    """Remove a folder if it is empty, then its parents while they are empty, up to and including a path in `ends`."""
    with suppress(OSError):
        os.rmdir(folder)
        if str(folder) not in ends:
            _remove_empty(folder.parent, ends)


def is_owned(folder: Path, ledger: str) -> bool:
    """True if a folder is a version that the ledger owns, judging by its owner file, its note and its name.

    A folder copied by hand contains the owner file and the note, but has another name. A link is never owned, and an
    unknown ledger owns nothing.
    """
    if folder.is_symlink() or not _belongs_to_ledger(folder / OWNER_FILE, ledger):
        return False
    note = read_object(folder / NOTE_FILE)
    return is_folder_of_version(folder.name, note.get("table"), note.get("version"))


def remove_tree(root: str, *, told: Callable[[int], None]) -> None:
    """Delete a folder with its contents. Links are removed, but never followed.

    `told` is called from this thread with the number of files deleted so far. Files that cannot be deleted are kept
    without an error. The owner file is deleted last, so that a partly deleted folder is still recognized.
    """
    folders = [folder for folder, _, _ in os.walk(root)]
    gone = 0
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="remove") as workers:
        for emptied in as_completed([workers.submit(_empty, folder, folder == root) for folder in folders]):
            gone += emptied.result()
            told(gone)
    for folder in reversed(folders):
        with suppress(OSError):
            if folder == root and os.listdir(folder) == [OWNER_FILE]:
                os.unlink(os.path.join(folder, OWNER_FILE))
            os.rmdir(folder)


def _empty(folder: str, is_root: bool) -> int:
    """Delete the files in a folder and return their number. A link that has replaced the folder is not followed."""
    gone = 0
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            with os.scandir(descriptor) as entries:
                names = [entry.name for entry in entries if not entry.is_dir(follow_symlinks=False)]
            for name in names:
                if is_root and name == OWNER_FILE:
                    continue
                with suppress(OSError):
                    os.unlink(name, dir_fd=descriptor)
                    gone += 1
        finally:
            os.close(descriptor)
    return gone


def _ledger_id(place: SelectedEnvironment) -> str:
    """Return the id of the environment's ledger, or the id in the data folder's mark, or an empty string."""
    from state.ledger import ledger_id_of

    with suppress(HeadgateError):
        return ledger_id_of(Path(place.where.ledger))
    mark = read_object(Path(place.data, WORLD_FILE))
    is_ours = os.path.realpath(str(mark.get("home"))) == place.where.home
    return str(mark.get("ledger", "")) if is_ours else ""


def _version_folders(data: Path) -> Iterator[Path]:
    for container in ("tables", "checkpoints"):
        yield from _folders(data / container)
    for version in _folders(data / "trash"):
        for kind in _folders(version):
            for folder in _folders(kind):
                yield folder
                yield from _folders(folder)


def _folders(root: Path) -> list[Path]:
    return [entry for entry in _entries(root) if _is_folder(entry)]


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _belongs_to_ledger(file: Path, ledger: str) -> bool:
    return bool(ledger) and read_object(file).get("ledger") == ledger


def read_object(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file; empty if there is none, or if the file is a link."""
    try:
        value = json.loads(path.read_text("utf-8")) if not path.is_symlink() else {}
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _with_parts(folder: Path, ours: list[Path], besides: Iterable[Path] = ()) -> list[OwnedPlace]:
    """Return `folder` as a whole if it contains exactly `ours` and `besides`; otherwise, each path in `ours`."""
    if not ours:
        return []
    if {*_entries(folder)} == {*ours, *besides}:
        return [OwnedPlace(str(folder), tuple(map(str, ours)))]
    return [_file(path) for path in ours]


def _file(path: Path) -> OwnedPlace:
    return OwnedPlace(str(path), (str(path),))


def _home_parts(home: Path) -> list[OwnedPlace]:
    if not (os.path.isfile(home / "ledger.db") or os.path.isfile(home / OVERLAY_FILE)):
        return []
    whole = [path for path in (home / name for name in _HOME_FOLDERS) if _is_folder(path)]
    ours = [path for path in _entries(home) if _HOME_FILES.fullmatch(path.name) and path.is_file()]
    # The ledger goes last, with an overlay's file: without them nothing else here counts as part of the home.
    ours.sort(key=lambda path: (path.name in ("ledger.db", OVERLAY_FILE), path.name))
    return [OwnedPlace(str(path)) for path in whole] + _with_parts(home, ours, besides=whole)


def _demo_parts(place: SelectedEnvironment, others: set[str]) -> list[OwnedPlace]:
    """List the files that `headgate demo` created: those listed in the marker file, and those that the generator wrote.

    The demo's folder is listed as a whole if it contains nothing but these files and `others`, which a purge also
    deletes.
    """
    root = Path(place.folder)
    mark = read_object(root / DEMO_FILE)
    if not _deletes_demo(place):
        return []
    made = [root / "data" / name for name in _GENERATED]
    for feed in _folders(root / "data" / "landing"):
        landed = re.compile(rf"{re.escape(feed.name)}-\d{{9}}\.json")
        made += [file for file in _entries(feed) if landed.fullmatch(file.name)]
    # In reverse, as a folder must be empty first; headgate.yml goes last: without it a purge finds nothing.
    names = sorted(map(str, mark.get("made", ())), key=lambda name: (name != "headgate.yml", name), reverse=True)
    made += [root / name for name in names]
    found = [path for path in made if os.path.exists(path) and not path.is_symlink() and _is_below(path, root)]
    found.append(root / DEMO_FILE)
    known = {*map(str, found), *others}
    foreign = any(
        os.path.join(folder, name) not in known
        for folder, folders, files in _walked(str(root), others)
        for name in (*files, *(name for name in folders if os.path.islink(os.path.join(folder, name))))
    )
    return (
        [_file(path) for path in found if path.is_file()]
        if foreign
        else [OwnedPlace(str(root), tuple(map(str, found)))]
    )


def _is_demo(place: SelectedEnvironment) -> bool:
    mark = read_object(Path(place.folder, DEMO_FILE))
    return mark.get("made_by") == "headgate demo" and mark.get("project_id") == place.project_id


def _deletes_demo(place: SelectedEnvironment) -> bool:
    return _is_demo(place) and not _others(place)


def _others(place: SelectedEnvironment) -> tuple[str, ...]:
    """Return the project's other environments that have a ledger or are overlays, sorted."""
    homes = Path(place.where.home).parent
    proofs = {path.parent.name for name in ("ledger.db", OVERLAY_FILE) for path in homes.glob(f"*/{name}")}
    return tuple(sorted(proofs - {Path(place.where.home).name}))


def _others_with_agent(place: SelectedEnvironment) -> bool:
    homes = Path(place.where.home).parent
    return any(os_processes.lock_holder(str(homes / name / "agent.lock")) is not None for name in _others(place))


def _walked(root: str, without: set[str]) -> Iterator[tuple[str, list[str], list[str]]]:
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if os.path.join(folder, name) not in without]
        yield folder, folders, files


def _is_below(path: Path, root: Path) -> bool:
    return path.parent.resolve().is_relative_to(root.resolve())


def _is_folder(path: Path) -> bool:
    # Not `Path.is_dir`, which raises PermissionError below a folder without access.
    return os.path.isdir(path) and not path.is_symlink()
