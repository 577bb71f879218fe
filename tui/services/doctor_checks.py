"""What `doctor` and `demo` check before anything is started; each verdict that is not good has a remedy.

Every check returns a verdict and raises nothing: a broken machine is its subject.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from core.model.errors import HeadgateError, LedgerUnavailable, Refused, VersionMismatch
from tui.agent_client import agent_process, os_processes
from tui.agent_client.socket_client import AgentClient
from tui.project_folder.environment_selection import SelectedEnvironment, has_ledger

DISK_BYTES = 2 * 1000**3
PYTHON = (3, 11)
TERMINAL = (80, 24)


@dataclass(frozen=True, slots=True)
class DoctorCheck:
    """One verdict; `remedy` says what to do and is never empty when it is not ok."""

    name: str
    ok: bool
    summary: str
    remedy: str = ""
    warning: bool = False
    """Worth knowing, and not a failure."""
    facts: Mapping[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return the verdict as the object that `--json` prints."""
        return {
            "name": self.name,
            "ok": self.ok,
            "warning": self.warning,
            "summary": self.summary,
            "remedy": self.remedy,
            "facts": dict(self.facts),
        }


def check_machine(environ: Mapping[str, str], folder: str) -> tuple[DoctorCheck, ...]:
    """Check what is needed before any project: Java, engine, Python, disk at the folder, terminal."""
    return (*check_engine(environ), check_python(), check_disk(folder), check_terminal(environ))


def check_engine(environ: Mapping[str, str]) -> tuple[DoctorCheck, ...]:
    """Ask the Spark side, in a child process of its own, about Java and itself."""
    try:
        done = os_processes.run_module("pipelines.doctor", ("--json",), environ, seconds=60)
        found = json.loads(done.stdout)["checks"]
        return tuple(
            DoctorCheck(str(c["name"]), bool(c["ok"]), str(c["summary"]), str(c["remedy"]), facts=dict(c["facts"]))
            for c in found
        )
    except (OSError, subprocess.TimeoutExpired, ValueError, KeyError, TypeError) as error:
        return (
            DoctorCheck("java", False, f"the check did not run: {error}", "install headgate again: pip install -e ."),
        )


def check_python() -> DoctorCheck:
    """Check the interpreter."""
    version = ".".join(str(part) for part in sys.version_info[:3])
    if sys.version_info[:2] < PYTHON:
        return DoctorCheck("python", False, f"Python {version} is too old", "create the venv with Python 3.11 or newer")
    return DoctorCheck("python", True, f"Python {version} at {sys.executable}", facts={"version": version})


def check_disk(folder: str) -> DoctorCheck:
    """Check that 2 GB are free where tables and checkpoints will lie."""
    at = existing(folder)
    try:
        free = shutil.disk_usage(at).free
    except OSError as error:
        return DoctorCheck(
            "disk", False, f"the free space at {at} cannot be determined: {error.strerror}", "give another folder"
        )
    text = f"{free / 1000**3:.1f} GB free at {at}"
    if free < DISK_BYTES:
        return DoctorCheck("disk", False, f"{text}; 2 GB is needed", "free some space, or use a folder on another disk")
    return DoctorCheck("disk", True, text, facts={"free_bytes": free})


def check_terminal(environ: Mapping[str, str]) -> DoctorCheck:
    """Check what the console would be drawn on; without a terminal the commands still work, so that is a warning."""
    if not (sys.stdin.isatty() or sys.stderr.isatty() or sys.stdout.isatty()):
        return DoctorCheck("terminal", True, "no terminal: commands work, the console does not", "", warning=True)
    size = shutil.get_terminal_size()
    term = environ.get("TERM", "")
    encoding = (sys.stdout.encoding or "").lower()
    facts = {"columns": size.columns, "lines": size.lines, "term": term, "encoding": encoding}
    text = f"{size.columns}x{size.lines}, TERM={term or '(unset)'}, {encoding}"
    if term in ("", "dumb"):
        return DoctorCheck(
            "terminal", False, f"{text}: no full screen", "set TERM, for example xterm-256color", facts=facts
        )
    if size.columns < TERMINAL[0] or size.lines < TERMINAL[1]:
        return DoctorCheck("terminal", False, f"{text}: too small", "make the window 80x24 or larger", facts=facts)
    if "utf" not in encoding:
        return DoctorCheck(
            "terminal", True, f"{text}: ASCII glyphs are used", "set LANG=C.UTF-8", warning=True, facts=facts
        )
    return DoctorCheck("terminal", True, text, facts=facts)


def check_project(folder: str) -> DoctorCheck:
    """Check that headgate.yml is valid, whatever an earlier text of it said: each problem with its file and line."""
    from core.model.problems import Problem, in_reading_order
    from core.project_files.manifest import MANIFEST_PATH, read_manifest

    path = Path(folder, MANIFEST_PATH)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        return DoctorCheck("project", False, f"{path} cannot be read: {error}", "make it a text file that you can read")
    problems: list[Problem] = []
    read_manifest(text, problems)
    found = in_reading_order(problems)
    if not found:
        return DoctorCheck("project", True, str(path), facts={"folder": folder})
    facts = {"folder": folder, "problems": [problem.as_json() for problem in found]}
    summary = "; ".join(f"{folder}/{problem.where}: {problem.summary}" for problem in found)
    return DoctorCheck("project", False, summary, found[0].remedy or "correct what is listed", facts=facts)


def check_home(place: SelectedEnvironment) -> DoctorCheck:
    """Check the folder of ledger, lock and logs: there or makeable, ours, on a local disk."""
    from state.network_file_systems import refuse_network

    home = place.where.home
    at = existing(home)
    try:
        refuse_network(Path(home) / "ledger.db")
    except HeadgateError as error:
        return DoctorCheck("home", False, error.summary, error.remedy or "set HEADGATE_HOME to a local folder")
    if not os.access(at, os.W_OK | os.X_OK):
        return DoctorCheck("home", False, f"{at} cannot be written", "set HEADGATE_HOME to a folder that you own")
    if at != home:
        return DoctorCheck("home", True, f"{home} will be created at the first start", facts={"home": home})
    mode = os.stat(home).st_mode & 0o777
    if mode & 0o007:
        return DoctorCheck("home", False, f"{home} is accessible to everybody (mode {mode:o})", f"chmod o-rwx {home}")
    return DoctorCheck("home", True, f"{home} (mode {mode:o})", facts={"home": home, "mode": f"{mode:o}"})


def check_agent(place: SelectedEnvironment, client: AgentClient) -> DoctorCheck:
    """Check that an agent answers; that none runs is a warning, that one hangs a failure."""
    try:
        hello = client.hello()
        client.call("status")
        return DoctorCheck("agent", True, f"Headgate {hello.program} answers at {place.where.socket}")
    except VersionMismatch as error:
        return DoctorCheck("agent", False, error.summary, error.remedy)
    except HeadgateError as error:
        running = agent_process.find_agent_process(place)
        if running is None:
            return DoctorCheck("agent", True, "no agent is running", "headgate up starts it", warning=True)
        return DoctorCheck(
            "agent", False, f"{error.summary} (pid {running.pid} is running)", error.remedy or "headgate logs agent"
        )


def check_logout(place: SelectedEnvironment) -> DoctorCheck | None:
    """Check whether a logout would kill the agent (KillUserProcesses without lingering); None if it would not."""
    try:
        settings = Path("/etc/systemd/logind.conf").read_text()
        lingers = Path("/var/lib/systemd/linger", os.environ.get("USER", "")).exists()
    except OSError:
        return None
    kills = any(line.strip().lower() == "killuserprocesses=yes" for line in settings.splitlines())
    if kills and not lingers:
        return DoctorCheck(
            "logout", False, "logging out would kill the agent (KillUserProcesses=yes)", "run: loginctl enable-linger"
        )
    return None


def check_pool(place: SelectedEnvironment) -> DoctorCheck:
    """Check the pool as the ledger last saw it."""
    try:
        facts = agent_process.read_environment_row(place)
    except HeadgateError as error:
        return DoctorCheck("pool", False, error.summary, error.remedy or "headgate logs agent")
    if facts is None:
        return DoctorCheck("pool", True, "never started", "headgate up starts it", warning=True)
    text = f"pool {facts.pool} is {facts.pool_state}" + (f": {facts.pool_detail}" if facts.pool_detail else "")
    if facts.pool_state == "failed" and agent_process.find_agent_process(place) is not None:
        return DoctorCheck("pool", False, text, "headgate logs pool says why; headgate up starts it again")
    if facts.pool_state in ("down", "silent") and agent_process.find_agent_process(place) is not None:
        return DoctorCheck("pool", False, text, "headgate logs pool; the agent restarts a local pool by itself")
    if agent_process.find_agent_process(place) is None:
        return DoctorCheck("pool", True, f"last seen: {text}", "headgate up starts it", warning=True)
    return DoctorCheck("pool", True, text)


def check_connectors(place: SelectedEnvironment) -> DoctorCheck | None:
    """Check that the jars of the project's connectors are there; None for a project that needs none."""
    from core.project.connectors import FETCHED_LIST, fetched_folder
    from core.project_files.manifest import MANIFEST_PATH, read_manifest

    try:
        connectors = read_manifest(Path(place.folder, MANIFEST_PATH).read_text("utf-8-sig"), []).connectors
    except (OSError, UnicodeDecodeError):
        return None
    if not connectors:
        return None
    names = ", ".join(connector.name for connector in connectors)
    for jars in (Path(place.folder) / Path(jar).expanduser() for connector in connectors for jar in connector.jars):
        if not jars.exists():
            return DoctorCheck("jars", False, f"{names}: {jars} does not exist", "correct connectors: in headgate.yml")
    coordinates = ", ".join(each for connector in connectors for each in connector.coordinates)
    if not coordinates:
        return DoctorCheck("jars", True, f"{names}: jars from {', '.join(connectors[0].jars)}")
    folder = Path(fetched_folder(place.where.home, connectors))
    try:
        sizes = json.loads((folder / FETCHED_LIST).read_text("utf-8"))
    except (OSError, ValueError):
        return DoctorCheck("jars", True, f"{names}: {coordinates} is fetched when the pool first starts", warning=True)
    facts = {"folder": str(folder), "jars": sorted(sizes)}
    text = f"{names}: {coordinates}, {len(sizes)} jars, {sum(sizes.values()) / 1e6:.1f} MB in {folder}"
    return DoctorCheck("jars", True, text, facts=facts)


def check_ledger(place: SelectedEnvironment) -> DoctorCheck:
    """Check that the ledger can be read, and that it describes this world."""
    path = Path(place.where.ledger)
    try:
        if not has_ledger(place):
            return DoctorCheck("ledger", True, "there is none yet", "headgate up creates it", warning=True)
    except Refused as error:
        return DoctorCheck("ledger", False, error.summary, error.remedy)
    from state.ledger import LedgerReader

    try:
        with LedgerReader(path) as reader:
            count, doubt = len(reader.statements()), reader.facts().doubt
        if doubt:
            return DoctorCheck("ledger", False, f"nothing is started: {doubt}", "headgate adopt")
        return DoctorCheck("ledger", True, f"{path}: {count} deployments, {path.stat().st_size / 1e6:.1f} MB")
    except (LedgerUnavailable, VersionMismatch) as error:
        return DoctorCheck("ledger", False, error.summary, error.remedy or "headgate logs agent")


def existing(path: str) -> str:
    """Return the nearest folder upwards that exists."""
    at = Path(path)
    while not at.exists() and at != at.parent:
        at = at.parent
    return str(at)
