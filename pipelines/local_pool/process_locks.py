"""Identifies processes, and locks folders so that no two servers write to the same checkpoints.

One lock file is in the server's home. The other lock file is in the data folder, because a restored or copied home
contains a different lock file.
"""

import fcntl
import logging
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from core.model.errors import PoolUnreachable
from core.model.names import whole_number


def process_start(pid: int) -> str | None:
    """Return a process's start time as an opaque string that never changes; None if the process is gone or a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("utf-8", errors="replace")
    except FileNotFoundError:
        return None if os.path.isdir("/proc/self") else _ask_ps(pid, "lstart=")
    except OSError:
        return None
    # The process name is in parentheses, and may contain spaces and parentheses. After it come the state and, as the
    # 20th field, the start time in ticks.
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else f"{_boot()}:{fields[19]}"


def process_command_line(pid: int) -> str:
    """Return a process's command line, with arguments separated by spaces; empty if it cannot be read."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
    except OSError:
        return "" if os.path.isdir("/proc/self") else _ask_ps(pid, "command=") or ""


def processes_with(name: str, value: str) -> list[int]:
    """Return the ids of processes whose environment contains `name=value`; empty on systems without /proc (macOS)."""
    wanted, found = f"{name}={value}".encode(), []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            given = place.joinpath("environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if wanted in given:
            found.append(int(place.name))
    return found


def _boot() -> str:
    # Process start times are comparable only within one boot.
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return ""


def _ask_ps(pid: int, column: str) -> str | None:
    """Return a `ps` column, for systems without /proc (macOS); None if the process is gone or a zombie."""
    command = ["ps", "-ww", "-p", str(pid), "-o", "stat=", "-o", column]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    state, _, value = done.stdout.strip().partition(" ")
    return None if done.returncode or not state or state.startswith("Z") else value.strip()


log = logging.getLogger(__name__)

DATA_LOCK = "_headgate_pool"
"""Name of the file in the data folder that the server of an environment with one pool locks."""


def data_lock_name(place: str) -> str:
    """Return the name of the lock in the data folder of a pool; `place` is as in `Environment.place_of`."""
    return f"{DATA_LOCK}.{place}" if place else DATA_LOCK


GONE_S = 5.0
"""Longest wait, in seconds, for the lock of a server whose process is gone.

The kernel closes the files of a killed process last.
"""


@contextmanager
def server_locks(home: Path, lock: Path | None) -> Iterator[tuple[int, ...]]:
    """Acquire a server's locks and yield their file descriptors. A child that inherits the descriptors keeps the locks.

    `lock` is a file in the data folder. Raises PoolUnreachable if another process holds one of the locks. A data folder
    that is not writable is not locked, but no statement can start there.
    """
    with ExitStack() as held:
        what = "a server of this home that pool.json does not name: it was restored or replaced"
        locks = [held.enter_context(_locked(home / "pool.lock", what))]
        if lock is not None:
            try:
                lock.parent.mkdir(parents=True, exist_ok=True)
                other = f"the server of another home over {lock.parent}"
                locks.append(held.enter_context(_locked(lock, other)))
            except OSError as error:
                log.warning("%s is not locked by the server, because it cannot be written: %s", lock.parent, error)
        yield tuple(locks)


def write_server_pid(locks: tuple[int, ...], pid: int) -> None:
    """Write the process id of the server that holds the locks to the lock files."""
    for lock in locks:
        os.ftruncate(lock, 0)
        os.pwrite(lock, str(pid).encode("ascii"), 0)


def pids_of_servers_on(data: Path) -> dict[str, int]:
    """Return the process id of each server that has locked a data folder, by the name of its lock."""
    found = {lock.name: pid_of_lock(lock) for lock in sorted(data.glob(f"{DATA_LOCK}*"))}
    return {name: pid for name, pid in found.items() if pid is not None}


def pid_of_lock(lock: Path) -> int | None:
    """Return the process id of the server that holds a lock in the data folder; None if no server holds it.

    Returns 0 if the server has not written its id yet. If the recorded process is gone, this waits for up to `GONE_S`:
    a killed server may still hold the lock, or a new one may not have written its id yet.
    """
    try:
        descriptor = os.open(lock, os.O_RDONLY)
    except OSError:
        # No server has run here yet, or nothing can be started here anyway.
        return None
    try:
        _take(descriptor, fcntl.LOCK_SH)
    except BlockingIOError:
        return whole_number(_holder(descriptor)) or 0
    finally:
        os.close(descriptor)
    return None


@contextmanager
def _locked(place: Path, what: str) -> Iterator[int]:
    descriptor = os.open(place, os.O_RDWR | os.O_CREAT, 0o640)
    try:
        try:
            _take(descriptor)
        except BlockingIOError as error:
            pid = _holder(descriptor)
            raise PoolUnreachable(
                f"{f'process {pid}' if pid else 'a process'} is {what}",
                remedy=f"kill {pid or 'it'}, if nothing needs it; the agent then starts a server",
            ) from error
        yield descriptor
    finally:
        os.close(descriptor)


def _take(descriptor: int, kind: int = fcntl.LOCK_EX) -> None:
    """Acquire a file lock. Raises BlockingIOError if a live process holds it.

    If the recorded holder is gone, wait up to `GONE_S`: a child process may still hold the inherited lock.
    """
    ends_at = time.monotonic() + GONE_S
    while True:
        try:
            return fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            pid = whole_number(_holder(descriptor))
            if not pid or process_start(pid) or time.monotonic() > ends_at:
                raise
            time.sleep(0.05)


def _holder(descriptor: int) -> str:
    return os.pread(descriptor, 20, 0).decode("ascii", "replace").strip()
