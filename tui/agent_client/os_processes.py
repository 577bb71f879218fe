"""Starts, finds and ends processes, with children isolated from terminal, working directory and PYTHONPATH.

A process is signalled only if both its pid and its start time match the recorded ones, because pids are reused.
"""

import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from core.model.errors import HeadgateError

UMASK = 0o027


@dataclass(frozen=True, slots=True)
class OsProcess:
    """A process on this machine, identified by pid and start time."""

    pid: int
    started: str
    """Boot id and start time, in the form recorded in pool.json. Only compared, never parsed."""

    @property
    def alive(self) -> bool:
        """True if this very process is still running. A zombie counts as gone."""
        return bool(self.started) and started(self.pid) == self.started


def module_command(module: str, *words: str) -> list[str]:
    """Return the command that runs a module in a child process, isolated from PYTHONPATH and current folder."""
    return [sys.executable, "-I", "-m", module, *words]


def child_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return `environ` without the variables that affect Python's imports."""
    return {name: value for name, value in environ.items() if name not in ("PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP")}


def run_module(
    module: str, words: Sequence[str], environ: Mapping[str, str], *, seconds: float
) -> subprocess.CompletedProcess[str]:
    """Run a Headgate module in a child process until it exits. Raises TimeoutExpired after `seconds`."""
    return subprocess.run(
        module_command(module, *words),
        cwd="/",
        env=child_environment(environ),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )


def output_lines(module: str, words: Sequence[str], environ: Mapping[str, str]) -> Iterator[str]:
    """Run a Headgate module in a child process, and yield its lines of stdout and stderr until it exits.

    Every 0.2 s without a line, yields "". A child that is still running when the iterator is closed is killed.
    """
    child = subprocess.Popen(
        module_command(module, *words),
        cwd="/",
        env=child_environment(environ),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert child.stdout is not None, "stdout is a pipe"
    pending = b""
    # Unlike select(), a selector also waits for file descriptors from 1,024 on.
    readable = selectors.DefaultSelector()
    readable.register(child.stdout, selectors.EVENT_READ)
    try:
        while True:
            if not readable.select(0.2):
                yield ""
                continue
            part = os.read(child.stdout.fileno(), 65536)
            *lines, pending = (pending + part).split(b"\n")
            yield from (line.decode(errors="replace") for line in lines)
            if not part:
                yield pending.decode(errors="replace")
                child.wait()
                return
    finally:
        if child.poll() is None:
            child.kill()
            child.wait()
        readable.close()
        child.stdout.close()


def start_detached(command: Sequence[str], environ: Mapping[str, str], log: str) -> subprocess.Popen[bytes]:
    """Start a daemon in a new session, and append its output to `log`. Raises HeadgateError if that fails."""
    try:
        descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o640)
    except OSError as error:
        raise HeadgateError(
            f"{log} cannot be written: {error.strerror}", remedy="headgate doctor checks the home"
        ) from error
    try:
        return subprocess.Popen(
            list(command),
            cwd="/",
            env=child_environment(environ),
            stdin=subprocess.DEVNULL,
            stdout=descriptor,
            stderr=descriptor,
            close_fds=True,
            start_new_session=True,
            umask=UMASK,
        )
    except OSError as error:
        raise HeadgateError(f"{command[0]} cannot be started: {error.strerror}", remedy="headgate doctor") from error
    finally:
        os.close(descriptor)


def identify(pid: int | None) -> OsProcess | None:
    """Return the running process with this pid; None if no such process runs."""
    if not pid or pid <= 1:
        return None
    found = started(pid)
    return OsProcess(pid, found) if found else None


def started(pid: int) -> str:
    """Return boot and start time of a process, for comparison. Empty if it has exited or is a zombie."""
    stat = Path(f"/proc/{pid}/stat")
    if Path("/proc/self/stat").exists():
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            return ""
        # proc(5): after the name come state (field 3) and, as field 22, the start in clock ticks since boot.
        return "" if fields[0] in "ZX" else f"{boot_id()}:{fields[19]}"
    said = _ps(pid, "stat=,lstart=").strip()
    return "" if not said or said.startswith("Z") else said.partition(" ")[2].strip()


def boot_id() -> str:
    """Return the id of the machine's current boot; empty if the system does not provide one."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return ""


def arguments_of(pid: int) -> tuple[str, ...]:
    """Return a process's arguments. Empty if it has exited. Without /proc, its command line is split at blanks."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return () if Path("/proc/self").exists() else tuple(_ps(pid, "command=").split())
    return tuple(word.decode(errors="replace") for word in words[:-1])


def lock_holder(path: str) -> OsProcess | None:
    """Return the process that holds the flock(2) on a file, from the kernel's list of locks; None if there is none.

    On systems without such a list, return the process whose pid is written in the file, if it is still running.
    """
    try:
        file, listed = os.stat(path), Path("/proc/locks").read_text("ascii").splitlines()
    except OSError:
        return None if Path("/proc/self").exists() else identify(written_pid(Path(path)))
    for line in listed:
        # proc(5): number, FLOCK, ADVISORY, WRITE, pid, device:inode. The line of a process that waits for a lock has
        # `->` after its number.
        fields = line.split()
        if fields[1] == "FLOCK" and fields[5].rpartition(":")[2] == str(file.st_ino):
            found = identify(int(fields[4]))
            if found is not None and _has_open(found.pid, file) and found.alive:
                return found
    return None


def _has_open(pid: int, file: os.stat_result) -> bool:
    """True if a process has a file open, or if the process belongs to another user, whose open files are hidden.

    The device numbers in the kernel's list of locks do not identify the file: on btrfs and overlayfs they differ from
    stat(2).
    """
    try:
        descriptors = os.listdir(f"/proc/{pid}/fd")
    except PermissionError:
        return True
    except OSError:
        return False
    for descriptor in descriptors:
        with suppress(OSError):
            if os.path.samestat(os.stat(f"/proc/{pid}/fd/{descriptor}"), file):
                return True
    return False


def written_pid(path: Path) -> int | None:
    """Read the pid from a file; None if the file is missing or contains no pid."""
    try:
        return int(path.read_text("ascii").strip())
    except (OSError, ValueError):
        return None


def end_process(process: OsProcess, *, patience_s: float) -> bool:
    """Terminate a process, and kill it after `patience_s` seconds. Returns True once it has exited."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if not process.alive:
            return True
        try:
            os.kill(process.pid, number)
        except ProcessLookupError:
            return True
        except PermissionError:
            return False
        if wait_gone(process, patience_s):
            return True
    return not process.alive


def wait_gone(process: OsProcess, seconds: float) -> bool:
    """Wait up to `seconds` for a process to exit. Returns True if it has."""
    ends_at = time.monotonic() + seconds
    while process.alive:
        if time.monotonic() >= ends_at:
            return False
        _reap(process.pid)
        time.sleep(0.05)
    return True


def _reap(pid: int) -> None:
    # A child that has exited would otherwise remain a zombie.
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return


def _ps(pid: int, columns: str) -> str:
    done = subprocess.run(["ps", "-o", columns, "-p", str(pid)], capture_output=True, text=True, check=False)
    return done.stdout
