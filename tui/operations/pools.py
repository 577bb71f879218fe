"""The local pool as seen from outside: the process that pool.json names, if it still is that process."""

import json
from pathlib import Path

from tui.operations import processes
from tui.operations.environments import Place
from tui.operations.processes import Process


def find(place: Place) -> Process | None:
    """Find the local pool that pool.json names, if its command line carries the marker written there."""
    try:
        server = json.loads(Path(place.where.pool_file).read_text("utf-8"))
        pid, marker = int(server["pid"]), str(server["marker"])
    except (OSError, ValueError, TypeError, KeyError):
        return None
    if not pid:
        pid = processes.written_pid(Path(place.where.home, "pool", "pid")) or 0
    found = processes.identify(pid)
    return found if found and marker and marker in processes.command_of(found.pid) else None


def is_gone(place: Place) -> bool:
    """Whether a local pool was started here and its process is no longer there."""
    return Path(place.where.pool_file).exists() and find(place) is None
