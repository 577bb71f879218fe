"""Facts about other processes: whether an id still is the process that it was."""

import os
import subprocess
from pathlib import Path


def process_start(pid: int) -> str | None:
    """Return when the process was started, opaque and equal over its life;
    None when there is none or it is a zombie.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("utf-8", errors="replace")
    except FileNotFoundError:
        return None if os.path.isdir("/proc/self") else _ask_ps(pid, "lstart=")
    except OSError:
        return None
    # The name, in parentheses, may hold spaces and parentheses; after it come state and, 20th, the start in ticks.
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else f"{_boot()}:{fields[19]}"


def process_command_line(pid: int) -> str:
    """Return the command line, arguments separated by blanks; empty when it cannot be read."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
    except OSError:
        return "" if os.path.isdir("/proc/self") else _ask_ps(pid, "command=") or ""


def processes_with(name: str, value: str) -> list[int]:
    """List the processes whose environment holds a variable, as far as it may be read; none without /proc (macOS)."""
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
    """Ticks count from the boot, so an id and a start of before it mean nothing."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return ""


def _ask_ps(pid: int, column: str) -> str | None:
    """For systems without /proc (macOS)."""
    command = ["ps", "-ww", "-p", str(pid), "-o", "stat=", "-o", column]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    state, _, value = done.stdout.strip().partition(" ")
    return None if done.returncode or not state or state.startswith("Z") else value.strip()
