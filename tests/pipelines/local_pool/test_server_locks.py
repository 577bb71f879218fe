"""A server's locks: held for its lifetime, and released by the system a moment after a kill."""

import fcntl
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from core.model.errors import PoolUnreachable
from pipelines.local_pool import process_locks as module
from pipelines.local_pool.process_locks import DATA_LOCK, pids_of_servers_on, server_locks


def held_by(home: Path, pid: int) -> int:
    """Hold the lock of a home in the name of a process; return the file descriptor."""
    lock = os.open(home / "pool.lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
    os.write(lock, str(pid).encode())
    return lock


def a_dead_process() -> int:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    return ended.pid


def test_the_lock_of_a_killed_server_is_waited_for_until_its_files_are_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, looked = held_by(tmp_path, a_dead_process()), threading.Event()
    looks_again = module._holder

    def holder(descriptor: int) -> str:
        if looked.is_set():
            os.close(lock)
            monkeypatch.setattr(module, "_holder", looks_again)
        looked.set()
        return looks_again(descriptor)

    monkeypatch.setattr(module, "_holder", holder)
    with server_locks(tmp_path, None) as locks:
        assert looked.is_set() and len(locks) == 1


def test_a_living_server_is_named_at_once_and_remains_of_a_dead_one_after_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = held_by(tmp_path, os.getpid())
    with (
        pytest.raises(PoolUnreachable, match=f"process {os.getpid()} is a server of this home"),
        server_locks(tmp_path, None),
    ):
        pass
    os.close(lock)
    lock = held_by(tmp_path, a_dead_process())
    monkeypatch.setattr(module, "GONE_S", 0.1)
    with pytest.raises(PoolUnreachable, match="is a server of this home"), server_locks(tmp_path, None):
        pass
    os.close(lock)


def test_a_server_over_a_data_folder_is_recognised_by_its_lock_not_by_its_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "GONE_S", 0.1)
    assert pids_of_servers_on(tmp_path).get(DATA_LOCK) is None and not list(tmp_path.iterdir()), (
        "a look creates nothing"
    )
    place = tmp_path / "_headgate_pool"
    place.write_text(str(os.getpid()))
    assert pids_of_servers_on(tmp_path).get(DATA_LOCK) is None
    with open(place, "r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert pids_of_servers_on(tmp_path).get(DATA_LOCK) == os.getpid()
        lock.truncate(0)
        assert pids_of_servers_on(tmp_path).get(DATA_LOCK) == 0
        lock.write(str(gone := a_dead_process()))
        lock.flush()
        assert pids_of_servers_on(tmp_path).get(DATA_LOCK) == gone, "of another machine, or a child holds it"
    assert pids_of_servers_on(tmp_path).get(DATA_LOCK) is None
