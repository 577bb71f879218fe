"""The checks of `headgate doctor` and `headgate demo`. Every failed check has a remedy.

A check returns its result and never raises an error, so that it works on a broken machine.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.model.errors import HeadgateError, InvalidProject, LedgerUnavailable, Refused, UsageError, VersionMismatch
from core.model.problems import Severity
from core.model.states import PoolState
from core.project.data_folder import absolute_data_folder, is_in_hdfs
from core.text.secret_masking import mask_secrets
from tui.agent_client import agent_process, os_processes
from tui.agent_client.socket_client import AgentClient
from tui.project_folder.environment_selection import SelectedEnvironment, has_ledger

if TYPE_CHECKING:
    from core.project.model import Project
    from state.row_types import PoolRow
    from tui.project_folder.project_folder_reader import ProjectDeclaration

DISK_BYTES = 2 * 1000**3
PYTHON = (3, 11)
TERMINAL = (80, 24)
SHOWN_PROBLEMS = 5
"""Maximum number of a project's problems that one check lists."""


@dataclass(frozen=True, slots=True)
class DoctorCheck:
    """The result of one check. A failed check always has a remedy."""

    name: str
    ok: bool
    summary: str
    remedy: str = ""
    warning: bool = False
    """True if the check did not fail, but found something worth knowing."""
    facts: Mapping[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return the result as the object that `--json` prints."""
        return {
            "name": self.name,
            "ok": self.ok,
            "warning": self.warning,
            "summary": self.summary,
            "remedy": self.remedy,
            "facts": dict(self.facts),
        }


def check_machine(
    environ: Mapping[str, str], folder: str, place: SelectedEnvironment | None = None
) -> tuple[DoctorCheck, ...]:
    """Check the prerequisites of a start: Java, Spark, the environment's jars, Python, disk space and the terminal."""
    return (*check_engine(environ, place), check_python(), check_disk(folder), check_terminal(environ))


def check_engine(environ: Mapping[str, str], place: SelectedEnvironment | None = None) -> tuple[DoctorCheck, ...]:
    """Check Java, Spark and the jars of an environment's pool, in a child process."""
    words = ["--json"]
    if place is not None:
        words += ["--project", place.folder, "--env", place.environment, "--home", place.where.home]
    return _ask_the_spark_side(environ, words)


def check_inputs(
    environ: Mapping[str, str], place: SelectedEnvironment, declared: "Callable[[], ProjectDeclaration]"
) -> tuple[DoctorCheck, ...]:
    """Check that external tables are as declared. Plain files, which have no transaction log, are not checked."""
    from core.model.table_formats import table_format

    project = declared().project
    tables = [t for t in project.tables.values() if t.external]
    formats = [(t.ddl.path, table_format(t.parsed_ddl.format)) for t in tables]
    paths = [path for path, format in formats if format.transaction_log or not format.has_files]
    if not paths:
        return ()
    words = ["--json", "--project", place.folder, "--env", place.environment]
    words += ["--data", _data_of_sources(place, project), "--inputs", *paths]
    words += ["--connectors", *(f"{t.name}={t.settings.connector}" for t in tables if t.settings.connector)]
    words += ["--silences", *(f"{t.name}={t.settings.silence}" for t in tables if t.settings.silence)]
    if any(format.changes for _, format in formats):
        from core.sql.postgres_changes import read_address

        words += ["--known", *(read_address(url).slot for url in slot_addresses(place))]
    return _ask_the_spark_side(environ, words)


def _data_of_sources(place: SelectedEnvironment, project: "Project") -> str:
    environment = project.environments.get(place.environment)
    other = environment.sources.data if environment else ""
    return absolute_data_folder(place.folder, other, os.path.realpath) if other else place.data


def check_ephemeral(environ: Mapping[str, str]) -> DoctorCheck | None:
    """Report the environments that killed tests and measurements have left; None if there are none."""
    from tui.services.ephemeral_record import abandoned

    found = [record.name for record in abandoned(environ)]
    if not found:
        return None
    summary = f"{', '.join(found[:SHOWN_PROBLEMS])} of a killed command may still use memory and disk"
    remedy = "the next headgate test --integration or headgate bench deletes it"
    return DoctorCheck("tests", True, summary, remedy, warning=True, facts={"environments": found})


def slot_addresses(place: SelectedEnvironment) -> tuple[str, ...]:
    """Return the addresses of the replication slots of the registered tables; empty if the ledger cannot be read."""
    from core.model.table_formats import table_format
    from state.ledger import LedgerReader

    with suppress(HeadgateError), LedgerReader(Path(place.where.ledger)) as reader:
        return tuple(found.folder for found in reader.deployments() if table_format(found.format).changes)
    return ()


def drop_slots(environ: Mapping[str, str], addresses: Sequence[str]) -> tuple[DoctorCheck, ...]:
    """Drop replication slots in a child process. A slot that may remain has the command to drop it as its remedy."""
    return _ask_the_spark_side(environ, ["--json", "--drop-slots", *addresses]) if addresses else ()


def columns_of_delta(environ: Mapping[str, str], place: SelectedEnvironment, folder: str) -> DoctorCheck:
    """Check that a folder, which the pools of an environment can read, contains a Delta table.

    If it does, the result's `facts` contain the table's `columns` as (name, type).
    """
    words = ["--json", "--project", place.folder, "--env", place.environment, "--delta", folder]
    return _ask_the_spark_side(environ, words)[0]


def columns_in_database(environ: Mapping[str, str], uri: str) -> DoctorCheck:
    """Check a table of a PostgreSQL database, and return its columns and options in the result's `facts`.

    If the columns can be read, `columns` contains them as (name, type in Spark), with an empty type if Spark cannot
    read the column, and `options` maps the OPTIONS of a table `USING jdbc` to their values.
    """
    return _ask_the_spark_side(environ, ["--json", "--postgres", uri])[0]


def columns_of_topics(environ: Mapping[str, str], uri: str) -> DoctorCheck:
    """Read the newest messages of Kafka topics, and return the inferred columns in the result's `facts`.

    If columns can be inferred, `columns` contains objects with name, type and remark; `options` maps the OPTIONS of a
    table `USING kafka` to their values; `looked_at` is the number of messages, `left_out` lists fields that no column
    can have, and `key` the columns that identify a row of a captured table.
    """
    return _ask_the_spark_side(environ, ["--json", "--kafka", uri])[0]


def _ask_the_spark_side(environ: Mapping[str, str], words: Sequence[str]) -> tuple[DoctorCheck, ...]:
    try:
        done = os_processes.run_module("pipelines.doctor", words, environ, seconds=60)
        found = json.loads(done.stdout)["checks"]
        return tuple(
            DoctorCheck(
                str(c["name"]),
                bool(c["ok"]),
                str(c["summary"]),
                str(c["remedy"]),
                warning=bool(c["warning"]),
                facts=dict(c["facts"]),
            )
            for c in found
        )
    except (OSError, subprocess.TimeoutExpired, ValueError, KeyError, TypeError) as error:
        return (
            DoctorCheck("java", False, f"the check did not run: {error}", "install headgate again: pip install -e ."),
        )


def check_python() -> DoctorCheck:
    """Check that the version of the Python interpreter is supported."""
    version = ".".join(str(part) for part in sys.version_info[:3])
    if sys.version_info[:2] < PYTHON:
        return DoctorCheck("python", False, f"Python {version} is too old", "create the venv with Python 3.11 or newer")
    return DoctorCheck("python", True, f"Python {version} at {sys.executable}", facts={"version": version})


def check_disk(folder: str) -> DoctorCheck:
    """Check that 2 GB are free on the disk of a folder, which need not exist yet."""
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
    """Check that the terminal can show the console.

    A missing terminal is only a warning, because commands still work.
    """
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
    """Check that headgate.yml is valid. Each reported problem includes its file and line."""
    from core.model.problems import Problem, in_reading_order
    from core.project.manifest_head import MANIFEST_PATH
    from core.project_reader.manifest import read_manifest

    path = Path(folder, MANIFEST_PATH)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        return DoctorCheck("project", False, f"{path} cannot be read: {error}", "make it a text file that you can read")
    problems: list[Problem] = []
    read_manifest(text, problems)
    if not problems:
        return DoctorCheck("project", True, str(path), facts={"folder": folder})
    return _wrong_project(folder, [problem.as_json() for problem in in_reading_order(problems)])


def check_tables(folder: str, declared: "Callable[[], ProjectDeclaration]") -> DoctorCheck:
    """Check the files of all tables in the same way as planning. Each reported problem includes its file and line."""
    from core.text.wording import counted

    try:
        found = declared()
    except InvalidProject as error:
        wrong = [problem for problem in error.problems if problem.get("severity") != Severity.WARNING]
        return _wrong_project(folder, wrong)
    except UsageError as error:
        return DoctorCheck("project", False, error.summary, error.remedy or "headgate plan says more")
    told = counted(len(found.project.tables), "table")
    if found.problems:
        warnings = [problem.as_json() for problem in found.problems]
        summary = f"{told}, {counted(len(warnings), 'warning')}: {_listed(folder, warnings)}"
        facts = {"folder": folder, "problems": warnings}
        return DoctorCheck("project", True, f"{folder}: {summary}", warning=True, facts=facts)
    return DoctorCheck("project", True, f"{folder}: {told}", facts={"folder": folder})


def check_names(
    place: SelectedEnvironment, client: AgentClient, declared: "Callable[[], ProjectDeclaration]"
) -> DoctorCheck | None:
    """Check that headgate.yml still declares the names of what is deployed, and what the running agent serves.

    Returns None if the environment was never started, or if its ledger cannot be read.
    """
    from core.observed.served_environment import EnvironmentEdit, OtherName, environment_edits, other_name
    from core.project.manifest_head import MANIFEST_PATH
    from core.project_reader.manifest import read_manifest
    from core.text.sentence import Fact
    from state.ledger import LedgerReader

    found = declared()
    environment = found.project.environments[place.environment]
    try:
        with LedgerReader(Path(place.where.ledger)) as reader:
            served, deployed = reader.facts().serves, reader.deployments(include_deleted=True)
    except HeadgateError:
        return None
    edit: Fact[OtherName] | Fact[EnvironmentEdit] | None = other_name(deployed, environment)
    if edit is None and served is not None and agent_process.is_listening(client):
        edit = next(environment_edits(served, environment, place.data), None)
    if edit is None:
        return DoctorCheck("names", True, environment.naming.pattern)
    at = read_manifest(found.texts[MANIFEST_PATH], []).place(place.environment, edit.kind.code)
    return DoctorCheck("names", False, f"{at}: {edit}", str(edit.remedy))


def _wrong_project(folder: str, problems: Sequence[Mapping[str, object]]) -> DoctorCheck:
    facts = {"folder": folder, "problems": list(problems)}
    remedy = str(problems[0]["remedy"]) or "correct what is listed"
    return DoctorCheck("project", False, _listed(folder, problems), remedy, facts=facts)


def _listed(folder: str, problems: Sequence[Mapping[str, object]]) -> str:
    summary = "; ".join(_located(folder, problem) for problem in problems[:SHOWN_PROBLEMS])
    more = len(problems) - SHOWN_PROBLEMS
    return f"{summary}; and {more} more, which headgate plan --all lists" if more > 0 else summary


def _located(folder: str, problem: Mapping[str, object]) -> str:
    place = ":".join(str(problem[part]) for part in ("file", "line", "column") if problem[part] is not None)
    return f"{folder}/{place}: {problem['summary']}" if place else str(problem["summary"])


def check_home(place: SelectedEnvironment) -> DoctorCheck:
    """Check that the folder for ledger, lock and logs is local, writable, and inaccessible to other users."""
    from state.ledger import refuse_network

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
    """Check that the agent answers.

    If no agent is running, this is a warning; if an agent is running but does not answer, a failure.
    """
    try:
        hello = client.hello()
        client.call("status")
        return DoctorCheck("agent", True, f"Headgate {hello.program} answers at {place.where.socket}")
    except VersionMismatch as error:
        return DoctorCheck("agent", False, error.summary, error.remedy)
    except HeadgateError as error:
        running = agent_process.find_agent_process(place)
        if running is None:
            return DoctorCheck("agent", True, "no agent is running", f"{place.up} starts it", warning=True)
        return DoctorCheck(
            "agent", False, f"{error.summary} (pid {running.pid} is running)", error.remedy or "headgate logs agent"
        )


def check_data(place: SelectedEnvironment, client: AgentClient) -> DoctorCheck:
    """Check that the data folder can be written: by the agent, or by this user if no agent answers."""
    at = place.data if is_in_hdfs(place.data) else existing(place.data)
    try:
        fault = client.call("status").get("data_fault")
    except HeadgateError:
        if is_in_hdfs(place.data):
            summary = f"{mask_secrets(place.data)} was not checked, because no agent answers"
            return DoctorCheck("data", True, summary, f"{place.up} starts one", warning=True)
        denied = not os.access(at, os.W_OK | os.X_OK)
        fault = {"summary": f"{at} cannot be written", "remedy": "make it writable for the user of the agent"}
        fault = fault if denied else None
    if fault:
        return DoctorCheck("data", False, str(fault["summary"]), str(fault["remedy"]) or "headgate logs agent")
    return DoctorCheck("data", True, place.data if at == place.data else f"{place.data} will be created in {at}")


def check_logout(place: SelectedEnvironment) -> DoctorCheck | None:
    """Return a failed check if logging out would kill the agent (KillUserProcesses without lingering)."""
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


def check_pools(place: SelectedEnvironment) -> list[DoctorCheck]:
    """Check the state of each pool as last recorded in the ledger."""
    try:
        facts = agent_process.read_environment_row(place)
    except HeadgateError as error:
        return [DoctorCheck("pool", False, error.summary, error.remedy or "headgate logs agent")]
    if facts is None:
        return [DoctorCheck("pool", True, "never started", f"{place.up} starts it", warning=True)]
    has_agent = agent_process.find_agent_process(place) is not None
    return [_check_pool(place, pool, has_agent=has_agent, several=len(facts.pools) > 1) for pool in facts.pools]


def _check_pool(place: SelectedEnvironment, pool: "PoolRow", *, has_agent: bool, several: bool) -> DoctorCheck:
    name, log = "pool", f"headgate logs pool {pool.name}" if several else "headgate logs pool"
    text = f"pool {pool.name} is {pool.state}" + (f": {pool.detail}" if pool.detail else "")
    if has_agent and pool.declared is not None and pool.declared.url and pool.state.is_fault:
        said = f"{text}; {pool.loss}" if pool.loss is not None else text
        remedy = "its server is not Headgate's: it has to be started again where it runs; headgate help pools"
        return DoctorCheck(name, False, said, remedy)
    if pool.state == PoolState.FAILED and has_agent:
        return DoctorCheck(name, False, text, f"{log} says why; {place.up} starts it again")
    if pool.state in (PoolState.DOWN, PoolState.SILENT) and has_agent:
        return DoctorCheck(name, False, text, f"{log}; the agent restarts a local pool by itself")
    if pool.state == PoolState.DEGRADED and has_agent:
        return DoctorCheck(name, False, text, "see cluster above, and headgate help clusters")
    from core.project.pool_recipe import SPARK_VERSION

    if has_agent and pool.declared is not None and pool.declared.url and pool.engine not in ("", SPARK_VERSION):
        other = f"{text}; its server runs Spark {pool.engine}, and Headgate is made for {SPARK_VERSION}"
        remedy = f"start it from Spark {SPARK_VERSION}: headgate pool recipe prints how"
        return DoctorCheck(name, True, other, remedy, warning=True)
    if not has_agent:
        return DoctorCheck(name, True, f"last seen: {text}", f"{place.up} starts it", warning=True)
    return DoctorCheck(name, True, text)


def check_servers(place: SelectedEnvironment) -> DoctorCheck | None:
    """Check the servers that `headgate demo` has recorded in the folder of a scenario; None without such a record.

    Servers that are down together with the agent were ended by `headgate down`, which is no failure.
    """
    try:
        recorded = json.loads(Path(place.folder, "servers", "servers.json").read_text("utf-8"))["processes"]
        servers = {name: os_processes.OsProcess(int(each["pid"]), each["started"]) for name, each in recorded.items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None
    dead = [name for name, server in servers.items() if not server.alive]
    if not dead:
        return DoctorCheck("servers", True, f"{', '.join(servers)}: running")
    needed = agent_process.find_agent_process(place) is not None
    return DoctorCheck(
        "servers", not needed, f"{', '.join(dead)}: not running", "headgate demo in this folder starts what is missing",
        warning=not needed,
    )  # fmt: skip


def check_ledger(place: SelectedEnvironment) -> DoctorCheck:
    """Check that the ledger can be read and that it belongs to the environment's data folder."""
    path = Path(place.where.ledger)
    try:
        if not has_ledger(place):
            return DoctorCheck("ledger", True, "there is none yet", f"{place.up} creates it", warning=True)
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
    """Return the path if it exists; otherwise its nearest parent that does."""
    at = Path(path)
    while not at.exists() and at != at.parent:
        at = at.parent
    return str(at)
