"""The end of ephemeral environments: of those that have served, and of those that killed processes have left."""

import fcntl
import os
import shutil
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

from core.ipc.environment_paths import GIVEN_TOKEN, ephemeral_root
from core.model.errors import HeadgateError
from core.model.names import whole_number
from core.project.ephemeral import LOCK_FILE, EphemeralRecord, Remains, Teardown
from core.project.model import Pool
from core.project_reader.manifest import read_manifest
from core.text.sentence import Fact
from tui.agent_client import agent_process, os_processes
from tui.agent_client.agent_process import ProgressCallback
from tui.project_folder.environment_selection import select_environment
from tui.project_folder.manifest_head_cache import PROJECT_FILE
from tui.services import teardown
from tui.services.environment_service import EnvironmentService
from tui.services.ephemeral_record import abandoned, write_record
from tui.services.ephemeral_topics import end_topics
from tui.services.table_client import SparkServer, TableClient


def end_abandoned(environ: Mapping[str, str], progress: ProgressCallback) -> tuple[Teardown, ...]:
    """Delete the ephemeral environments that killed processes have left."""
    found = []
    # The newest one first: it may use the server of an older one.
    for record in reversed(abandoned(environ)):
        folder = Path(ephemeral_root(environ), record.name)
        with suppress(FileNotFoundError), open(folder / LOCK_FILE, "a", encoding="ascii") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            own = dict(environ) | {"HEADGATE_HOME": str(folder / "home")}
            found.append(tear_down(folder, record, own, progress))
    return tuple(found)


def tear_down(
    folder: Path,
    record: EphemeralRecord,
    environ: Mapping[str, str],
    progress: ProgressCallback,
    access: TableClient | None = None,
) -> Teardown:
    """End the processes of an environment, delete everything of it, and check that nothing is left.

    `access` is an open client of a shared server, which saves the start of one.
    """
    ended: tuple[str, ...] = ()
    left: list[Fact[Remains]] = []
    server, session_id, place = _shared_server(folder, record), "", None
    project = str(folder / "project")
    if os.path.isfile(os.path.join(project, PROJECT_FILE)):
        place = select_environment(environ, project, project=project, environment=record.name)
        facts = agent_process.read_environment_row(place)
        session_id = facts.pools[0].session_id if facts is not None else ""
        with closing(EnvironmentService(place, environ)) as operations:
            ended = tuple(
                teardown.end_all(place, operations.client, keep_pool=False, purge=True, confirm="", progress=progress)
            )
        teardown.purge(place, teardown.owned_places(place), progress)
    if server is not None:
        left += _left_on_server(server, record, session_id, access or TableClient(environ))
    topics = end_topics(record, folder, environ)
    if topics.locations:
        _delete_all_but_record(folder, replace(record, shared_server="", topics=topics.locations))
    else:
        shutil.rmtree(folder, ignore_errors=True)
        with suppress(OSError):
            os.rmdir(folder.parent)
        if os.path.lexists(folder):
            left.append(Remains.FOLDER.of(folder=str(folder)))
    left += topics.left
    if place is not None and os.path.lexists(place.where.socket):
        left.append(Remains.SOCKET.of(path=place.where.socket))
    left += [Remains.PROCESS.of(process=each) for each in _processes_in(folder)]
    return Teardown(
        record.name, ended, str(folder), record.shared_server, left=tuple(left), checked_brokers=topics.brokers
    )  # fmt: skip


def _delete_all_but_record(folder: Path, record: EphemeralRecord) -> None:
    """Keep only a record of what is left, so that the next command finds it."""
    write_record(folder, record)
    for each in folder.iterdir():
        if each.is_dir():
            shutil.rmtree(each, ignore_errors=True)


def _left_on_server(
    server: SparkServer, record: EphemeralRecord, session_id: str, client: TableClient
) -> list[Fact[Remains]]:
    """End the session of the environment's agent on a shared server, and look for names in the server's catalog.

    Closes the client.
    """
    address = Pool(url=server.url).address
    try:
        with closing(client) as access:
            access.use_server(server)
            if session_id:
                with suppress(HeadgateError):
                    access.release(session_id)
            names = access.names(f"{record.name}_")
    except HeadgateError as error:
        return [Remains.UNKNOWN.of(environment=record.name, server=address, why=error.summary)]
    return [Remains.NAMES.of(names=names, server=address)] if names else []


def _processes_in(folder: Path) -> list[str]:
    """Return the processes, other than this one, whose arguments contain a path in a folder."""
    found = []
    with suppress(OSError):
        for name in os.listdir("/proc"):
            if whole_number(name) is not None and int(name) != os.getpid():
                words = os_processes.arguments_of(int(name))
                if any(str(folder) in word for word in words):
                    found.append(f"{os.path.basename(words[0])} (pid {name})")
    return found


def _shared_server(folder: Path, record: EphemeralRecord) -> SparkServer | None:
    """Return the server of another environment that this one uses; None if it has one of its own."""
    if not record.shared_server:
        return None
    tokens = sorted(folder.glob(f"home/*/{record.name}/{GIVEN_TOKEN}"))
    token = tokens[0].read_text("ascii") if tokens else ""
    try:
        text = (folder / "project" / PROJECT_FILE).read_text("utf-8")
    except FileNotFoundError:
        return SparkServer(record.shared_server, token)
    declared = (each.pool for each in read_manifest(text, []).environments if each.name == record.name)
    return SparkServer(record.shared_server, token, next(declared, None))
