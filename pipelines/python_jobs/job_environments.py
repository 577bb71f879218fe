"""Virtual environments with the requirements of jobs, which are created once and shared by all environments."""

import fcntl
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from core.model.errors import Busy
from core.ports.spark import never
from core.text.escaping import escape_control_characters
from core.text.sentence import Fact
from pipelines.local_pool.java_and_spark import write_python
from pipelines.python_jobs.job_faults import JobFault

INSTALL_S = 120.0
"""Deadline, in seconds, of each of the two programs that create an environment."""
_PROGRAM = "bin/python-without-token"
"""The Python of an environment, as Spark's processes run it."""
_LOOKS_S = 0.2
"""Seconds between two looks at whether a creation is cancelled."""
_LONGEST = 300
"""Maximum length of pip's message in an error, in characters."""


@dataclass(frozen=True, slots=True)
class JobEnvironments:
    """A folder with one virtual environment for each set of requirements and version of Python."""

    folder: Path

    def python_for(
        self, requirements: tuple[str, ...], file: str, cancelled: Callable[[], bool] = never
    ) -> "str | Fact[JobFault]":
        """Return the Python that has the requirements of a job, or why there is none; it may take minutes to create it.

        The environment is created in a temporary folder and renamed when it is complete, so a creation that is killed
        is repeated. pip takes its settings from the agent's environment variables and files. Raises Busy, and ends pip,
        once `cancelled` returns True.
        """
        if not requirements:
            return sys.executable
        place = self._place(requirements)
        if _is_used(place):
            return str(place / _PROGRAM)
        try:
            return self._created(place, requirements, file, cancelled)
        except OSError as error:
            return JobFault.FOLDER.of(file=file, folder=str(self.folder), why=error.strerror or type(error).__name__)

    def _created(
        self, place: Path, requirements: tuple[str, ...], file: str, cancelled: Callable[[], bool]
    ) -> "str | Fact[JobFault]":
        key, python = place.name, str(place / _PROGRAM)
        self.folder.mkdir(parents=True, mode=0o750, exist_ok=True)
        with open(self.folder / f"{key}.lock", "w") as lock:
            while not _locked(lock):
                # Another process is creating the same environment.
                _end_if_cancelled(cancelled, file)
                time.sleep(_LOOKS_S)
            for left in self.folder.glob(f"{key}.new.*"):
                shutil.rmtree(left, ignore_errors=True)
            if _is_used(place):
                return python
            new = Path(tempfile.mkdtemp(prefix=f"{key}.new.", dir=self.folder))
            try:
                if message := _create(new, requirements, lambda: _end_if_cancelled(cancelled, file)):
                    return JobFault.REQUIREMENTS.of(file=file, message=message)
                write_python(new / _PROGRAM, str(place / "bin/python"))
                os.rename(new, place)
            finally:
                shutil.rmtree(new, ignore_errors=True)
        return python

    def remove_unused(self, used: Iterable[tuple[str, ...]], before: float) -> tuple[str, ...]:
        """Mark the environments of lists as used; remove those that nobody has used since `before`, in epoch seconds.

        Returns the names of the removed environments. One in which a process of this machine runs is kept, and so are
        all where the processes cannot be listed (macOS). A removal that is killed is repeated.
        """
        for requirements in used:
            _is_used(self._place(requirements))
        removed = []
        for place in sorted(self.folder.glob("*")):
            key, new, _ = place.name.partition(".new.")
            if place.suffix == ".lock" or not (new or _is_old(place, before)):
                continue
            with suppress(OSError), open(self.folder / f"{key}.lock", "w") as lock:
                # Somebody who holds the lock is creating it; and it may have been used since the first look.
                if _locked(lock) and (new or (_is_old(place, before) and not _has_processes(place))):
                    unused = place if new else place.rename(place.with_name(f"{key}.new.unused"))
                    shutil.rmtree(unused, ignore_errors=True)
                    removed += [] if new else [key]
        return tuple(removed)

    def _place(self, requirements: tuple[str, ...]) -> Path:
        described = json.dumps([_PROGRAM, sorted(requirements), sys.version, _packages()])
        return self.folder / hashlib.sha256(described.encode()).hexdigest()[:20]


def _is_used(place: Path) -> bool:
    """Mark an environment as used now; False if it does not exist."""
    # It may belong to another user, whose agent marks it.
    with suppress(OSError):
        os.utime(place)
    return os.path.exists(place / _PROGRAM)


def _is_old(place: Path, before: float) -> bool:
    try:
        return place.stat().st_mtime < before
    except OSError:
        return False


def _has_processes(place: Path) -> bool:
    """True if a process runs a program of an environment, or if processes cannot be listed."""
    program, found = f"{place}/".encode(), False
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found = found or process.read_bytes().startswith(program)
    return found or not os.path.isdir("/proc/self")


def _locked(file: TextIO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _end_if_cancelled(cancelled: Callable[[], bool], file: str) -> None:
    if cancelled():
        raise Busy(f"the installation of the packages of {file} was cancelled", remedy="start it again")


def _create(folder: Path, requirements: tuple[str, ...], look: Callable[[], None]) -> str:
    """Create an environment; return an error message, or an empty text. `look` is called several times a second.

    It sees the packages of this process, so Spark's client is not installed again. Only wheels are installed, because
    the build of a source package would execute its code.
    """
    if message := _run([sys.executable, "-I", "-m", "venv", str(folder)], look):
        return message
    python = str(folder / "bin/python")
    packages = sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)})
    Path(packages, "headgate_base.pth").write_text("".join(f"{each}\n" for each in _packages()), encoding="utf-8")
    options = ["--no-input", "--disable-pip-version-check", "--no-color", "--only-binary", ":all:"]
    return _run([python, "-m", "pip", "install", *options, "--", *requirements], look)


def _packages() -> list[str]:
    return [each for each in sys.path if each.endswith("-packages") and os.path.isabs(each)]


def _run(command: list[str], look: Callable[[], None]) -> str:
    """Run a program; return the last line with its error, or an empty text if it succeeded.

    The program and its children are killed at the deadline, and if `look` raises an error.
    """
    ends_at = time.monotonic() + INSTALL_S
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        text=True, errors="replace",
    ) as process:  # fmt: skip
        try:
            output = None
            while output is None:
                try:
                    output, _ = process.communicate(timeout=_LOOKS_S)
                except subprocess.TimeoutExpired:
                    look()
                    if time.monotonic() > ends_at:
                        output = f"ERROR: it took longer than {INSTALL_S:.0f} s"
        finally:
            with suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
        if process.wait() == 0:
            return ""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    return escape_control_characters((errors or lines or ["it failed without a message"])[-1])[:_LONGEST]
