"""Ephemeral environments: tables with everything upstream, over sources of their own, deleted when they have served.

An environment is recorded before it exists, and its record is locked by the process that uses it. So what a killed
process leaves is found and deleted by the next one (`ephemeral_teardown`).
"""

import fcntl
import getpass
import os
import secrets
import shutil
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from core.integration_tests.positions import Positions, Unread, unread
from core.ipc.environment_paths import GIVEN_TOKEN, ephemeral_root
from core.model.act_outcomes import ActOutcome
from core.model.errors import HeadgateError, PoolUnreachable, Refused
from core.model.names import TableName
from core.model.states import State, WantedState
from core.model.table_formats import table_format
from core.observed.versions import Deployment
from core.plan.request import PlanRequest
from core.project.ephemeral import LOCK_FILE, PREFIX, EphemeralRecord, Teardown
from core.project.model import Environment, Pool, Project, Table
from core.project.naming import DECLARED, Naming
from core.project_reader.ephemeral_project import (
    TRIGGER,
    EphemeralProject,
    ephemeral_manifest,
    ephemeral_project,
    source_ddl,
)
from core.project_reader.ephemeral_systems import SystemNames
from core.project_reader.paths import is_jar
from core.run.model import RunState
from core.run.records import StepRow
from core.sql.statement import TableDdl
from core.statement_tests.case import Row
from core.statement_tests.fixture_rows import columns_of, expected_columns_of
from core.statement_tests.request import settings_of_meaning
from core.text.sentence import Fact
from tui.agent_client import agent_process
from tui.agent_client.agent_process import ProgressCallback, WaitProgress
from tui.agent_client.os_processes import OsProcess
from tui.project_folder.declaring_files import copy_jar
from tui.project_folder.environment_selection import SelectedEnvironment, select_environment
from tui.project_folder.manifest_head_cache import PROJECT_FILE
from tui.services import teardown
from tui.services.environment_service import EnvironmentService
from tui.services.ephemeral_record import write_record, write_secret
from tui.services.ephemeral_teardown import tear_down
from tui.services.ephemeral_topics import partitions_of, read_back, topic_locations, with_topics
from tui.services.held_interrupts import HeldInterrupts
from tui.services.table_client import SparkServer, TableClient

MEASURE_S = "1"
"""Seconds between two measurements of lag by the agent, as a variable of its environment."""

DEPLOY_USUAL_S = 20.0
READ_USUAL_S = 5.0
POLL_S = 0.1


class StatementFailed(HeadgateError):
    """Raised if a statement fails while rows are on their way; `table` is the first one upstream."""

    def __init__(self, summary: str, *, table: TableName) -> None:
        super().__init__(summary, remedy="the error is that of Spark: correct the statement")
        self.table = table


class DeploymentFailed(HeadgateError):
    """Raised if a deployment fails, with the step that has failed."""

    def __init__(self, step: StepRow) -> None:
        super().__init__(
            f"the deployment failed: {step.do} {step.table}: {step.note}", remedy="headgate plan shows the statements"
        )
        self.step = step


class NotInTime(HeadgateError):
    """Raised if statements have not read everything in time; `facts` say which, upstream tables first."""

    def __init__(self, seconds: float, facts: tuple[Fact[Unread], ...]) -> None:
        super().__init__(
            f"not everything was read within {seconds:.0f} s: {facts[0]}", remedy="give more time: --timeout S"
        )
        self.facts = facts


def running_server(operations: EnvironmentService, name: str) -> SparkServer:
    """Return the running server of a declared environment, to be shared with it.

    Raises Refused if the environment is protected, if no server of it is running, or if its memory is nearly full.
    """
    place = select_environment(
        operations.environ, operations.place.folder, project=operations.place.folder, environment=name
    )
    if place.protected:
        raise Refused(f"{name} is protected, and its server is not used for tests", remedy="name another environment")
    declared = operations.projects.read_sound_tables().project.environments.get(name)
    found = server_of(place, declared)
    try:
        pool = declared.pool.name if declared is not None else Pool().name
        heap = EnvironmentService(place, operations.environ).agent.pool_work(pool).heap
    except HeadgateError:
        # A server without an agent is used as it is.
        return found
    if heap is not None and (shortage := heap.shortage) is not None:
        raise Refused(f"{place.title}: {shortage}", remedy=str(shortage.remedy))
    return found


def server_of(place: SelectedEnvironment, declared: Environment | None = None) -> SparkServer:
    """Return the running server of an environment. Raises Refused if there is none."""
    if declared is not None and declared.pool.url:
        return SparkServer(declared.pool.url, pool=declared.pool)
    # Among several pools, the default one is used.
    of = declared.place_of(declared.pool) if declared is not None else ""
    found = agent_process.find_pool_process(place, of)
    try:
        if found is None:
            raise OSError("no process")
        paths = place.where.of_pool(of)
        record = teardown.read_object(Path(paths.record))
        token = Path(paths.home, "pool.token").read_text("ascii")
        return SparkServer(f"sc://127.0.0.1:{int(record['port'])}", token)
    except (OSError, KeyError, ValueError) as error:
        raise Refused(f"no server of {place.title} is running", remedy=f"start it: {place.up}") from error


@dataclass(frozen=True, slots=True)
class EphemeralRequest:
    """Which tables an ephemeral environment has, and how it runs them."""

    tables: tuple[TableName, ...]
    """The tables whose statements run; everything upstream of them runs as well."""
    purpose: str
    """The command, for the record."""
    server: SparkServer | None = None
    """The server to share; None for a server of its own."""
    trigger: str | None = TRIGGER
    """Interval of all statements; None keeps the declared intervals."""
    texts: Mapping[str, str] | None = None
    """Contents of the project's files by path, in place of those in the project folder."""
    cores: int | None = None
    """Cores of its own server; None for those of the declared pool."""
    measure_s: str = MEASURE_S
    """Seconds between two measurements of lag by the agent; empty for the usual time."""
    conf: Mapping[str, str] = field(default_factory=dict)
    """Settings of Spark for its own server that differ from those of the declared pool."""
    keeps_partitions: bool = False
    """Whether topics of its own have as many partitions as those that they replace; otherwise they have one."""


@contextmanager
def ephemeral_environment(
    operations: EnvironmentService,
    request: EphemeralRequest,
    progress: ProgressCallback,
    *,
    ended: Callable[[Teardown], None],
) -> "Iterator[EphemeralEnvironment]":
    """Create an ephemeral environment, yield it with agent and server running, and delete it in any case.

    `operations` is the environment whose variables and settings it has. Nothing is deployed yet, and the sources are
    empty. `ended` is called with what was checked at the end. Raises Refused if the tables cannot be isolated or the
    environment is protected. No interrupt breaks off its creation or deletion: it is raised afterwards.
    """
    with HeldInterrupts(progress) as interrupts:
        found = create_ephemeral_environment(operations, request)
        try:
            try:
                interrupts.let_through()
                found.start(progress)
                yield found
            finally:
                interrupts.hold()
        finally:
            # A block of its own: an interrupt may come just before it is held.
            ended(found.end(progress))


def create_ephemeral_environment(operations: EnvironmentService, request: EphemeralRequest) -> "EphemeralEnvironment":
    """Record an ephemeral environment and generate its project; nothing runs yet."""
    place = operations.place
    if place.protected:
        raise Refused(f"{place.title} is not used for tests", remedy="name another environment with --env")
    project, texts = _declared(operations, request.texts)
    name = f"{PREFIX}{secrets.token_hex(4)}"
    folder = Path(ephemeral_root(operations.environ), name)
    data = str(folder / "data")
    systems = _names(project, place.environment, name)
    found = _isolated(project, texts, request.tables, data=data, trigger=request.trigger, systems=systems)
    folders = {each.name: each.data for each in project.environments.values()} | {name: data}
    manifest = ephemeral_manifest(
        texts[PROJECT_FILE],
        folder=place.folder,
        name=name,
        base=place.environment,
        data=folders,
        pool=_pool(project.environments[place.environment].pool, request),
        trigger=request.trigger,
    )
    record = EphemeralRecord(
        name, place.project, place.folder, place.environment,
        purpose=request.purpose, created_at=time.time(), created_by=getpass.getuser(),
        shared_server=request.server.url if request.server else "",
    )  # fmt: skip
    lock = _write(folder, record, {**found.texts, PROJECT_FILE: manifest})
    environ = dict(operations.environ) | ({"HEADGATE_MEASURE_S": request.measure_s} if request.measure_s else {})
    return EphemeralEnvironment(
        folder, record, found, environ,
        base_home=place.where.home, server=request.server, trigger=request.trigger, systems=systems, lock=lock,
        keeps_partitions=request.keeps_partitions,
    )  # fmt: skip


def isolated_project(
    operations: EnvironmentService, tables: Iterable[TableName], *, texts: Mapping[str, str] | None = None
) -> EphemeralProject:
    """Return the project that an ephemeral environment of tables would have, before anything is created.

    Its names are not those that the environment will have. `texts` replace the project's files. Raises Refused if the
    tables cannot run over sources of their own.
    """
    project, texts = _declared(operations, texts)
    names = _names(project, operations.place.environment, PREFIX)
    return _isolated(project, texts, tables, data="/", trigger=None, systems=names)


def _declared(operations: EnvironmentService, texts: Mapping[str, str] | None) -> tuple[Project, Mapping[str, str]]:
    """Return the project of texts, or of the project folder if there are none, with its texts."""
    if texts is None:
        declared = operations.projects.read_sound_tables()
        return declared.project, declared.texts
    from tui.project_folder.project_folder_reader import parse_sound_tables

    return parse_sound_tables(operations.place, texts, operations.projects.parse_cache)[0], texts


def refuse_not_isolated(operations: EnvironmentService, groups: Iterable[Iterable[TableName]]) -> None:
    """Raise Refused if tables of a group cannot run over sources of their own, before anything is created."""
    for tables in groups:
        isolated_project(operations, tables)


def _names(project: Project, base: str, name: str) -> SystemNames:
    declared = project.environments.get(base)
    return SystemNames(Naming(prefix=f"{name}_"), declared.naming if declared is not None else DECLARED)


def _isolated(
    project: Project,
    texts: Mapping[str, str],
    tables: Iterable[TableName],
    *,
    data: str,
    trigger: str | None,
    systems: SystemNames,
) -> EphemeralProject:
    found = ephemeral_project(project, texts, tables, data=data, trigger=trigger, systems=systems)
    if isinstance(found, Fact):
        raise Refused(found.sentence, remedy=found.remedy or "")
    return found


class EphemeralEnvironment:
    """An ephemeral environment, with its project, its processes and access to its tables.

    Its methods raise HeadgateErrors. It belongs to one thread.
    """

    def __init__(
        self,
        folder: Path,
        record: EphemeralRecord,
        project: EphemeralProject,
        environ: Mapping[str, str],
        *,
        base_home: str,
        server: SparkServer | None,
        trigger: str | None,
        systems: SystemNames,
        lock: int,
        keeps_partitions: bool = False,
    ) -> None:
        self.folder, self.record, self.project = folder, record, project
        self._base_home = Path(base_home)
        self._environ = dict(environ) | {"HEADGATE_HOME": str(folder / "home")}
        self._server, self._trigger, self._systems, self._lock = server, trigger, systems, lock
        self._keeps_partitions = keeps_partitions
        self._access: TableClient | None = None

    @cached_property
    def place(self) -> SelectedEnvironment:
        """The environment, as commands select it."""
        project = str(self.folder / "project")
        return select_environment(self._environ, project, project=project, environment=self.record.name)

    @cached_property
    def operations(self) -> EnvironmentService:
        """The operations on the environment."""
        return EnvironmentService(self.place, self._environ)

    @property
    def tables(self) -> Mapping[TableName, Table]:
        """Its declared tables by name."""
        return self.operations.project().tables

    def start(self, progress: ProgressCallback) -> None:
        """Create topics and the folders of the sources, and start agent and server.

        Raises Refused if a broker does not answer; nothing exists then.
        """
        self._access = TableClient(self._environ)
        self._create_topics()
        for source in self.project.sources.values():
            Path(source).mkdir(parents=True, exist_ok=True)
        agent_process.make_home(self.place)
        _reuse_jars(self._base_home, Path(self.place.where.home))
        if self._server is not None:
            write_secret(Path(self.place.where.home, GIVEN_TOKEN), self._server.token)
        agent_process.ensure_running(self.place, self.operations.client, self._environ, progress=progress)
        self.access.use_server(self.server)
        for source, folder in self.project.sources.items():
            if table_format(self.tables[source].parsed_ddl.format).transaction_log:
                # Such a table is registered only if its log exists.
                self.access.write(self.tables[source].ddl.text, folder, columns_of(self.tables[source]), ())

    def _create_topics(self) -> None:
        """Create the topics of its project, which its record names before they exist."""
        if self.project.topics:
            recorded = with_topics(self.record, self.project.topics, self.access)
            write_record(self.folder, recorded)
            self.record = recorded
            partitions = partitions_of(self.project.replaced_topics, self.access) if self._keeps_partitions else {}
            self.access.create_topics(topic_locations(self.project.topics), partitions)

    @property
    def server(self) -> SparkServer:
        """The Spark server in which its statements run. A restart of its own server changes the address."""
        return self._server or server_of(self.place)

    def server_process(self) -> OsProcess | None:
        """Return the process of its own server; None if that has ended, or if the server is shared."""
        return agent_process.find_pool_process(self.place)

    @property
    def access(self) -> TableClient:
        """Access to the rows of tables."""
        assert self._access is not None, "it was started"
        return self._access

    def write_rows(self, source: TableName, rows: Iterable[Row]) -> None:
        """Append rows to an external table, in one file. Values are in the order of its declared columns."""
        table = self.tables[source]
        self.access.use_server(self.server)
        self.access.write(table.ddl.text, self.project.sources.get(source, ""), columns_of(table), rows)

    def write_rows_as(self, ddl: TableDdl, rows: Iterable[Row]) -> None:
        """Append rows to an external table in the form of another declaration than that of the project."""
        columns = tuple((column.name, column.type) for column in ddl.columns)
        folder = self.project.sources.get(ddl.table, "")
        self.access.use_server(self.server)
        self.access.write(source_ddl(ddl, folder), folder, columns, rows)

    def declare(self, texts: Mapping[str, str]) -> None:
        """Replace files of its project, given by path; the next deployment takes them."""
        for path, text in texts.items():
            file = self.folder / "project" / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")

    def declare_all(self, project: Project, texts: Mapping[str, str], tables: Iterable[TableName]) -> None:
        """Replace all files of its project by those of another project for these tables.

        Raises Refused if they cannot be isolated.
        """
        data = str(self.folder / "data")
        found = _isolated(project, texts, tables, data=data, trigger=self._trigger, systems=self._systems)
        for path in self.project.texts.keys() - found.texts.keys():
            (self.folder / "project" / path).unlink()
        for source in found.sources.values():
            Path(source).mkdir(parents=True, exist_ok=True)
        self.project = found
        self._create_topics()
        self.declare(found.texts)

    def rows(self, table: TableName) -> tuple[Row, ...]:
        """Return the rows that a table's serving version has, or the messages of its topic, without metadata."""
        self.access.use_server(self.server)
        if (topic := self.project.topics.get(table)) is not None:
            return self.access.messages(read_back(topic), expected_columns_of(self.tables[table]))
        naming = self.operations.project().environments[self.record.name].naming
        return self.access.rows(naming.pointer(table), expected_columns_of(self.tables[table]))

    def columns_in_files(self, table: TableName) -> dict[str, str]:
        """Return the columns in the files of a table with rows, declared or not, with their types.

        Empty if the format refuses columns that are not declared, or has no files. CSV and text have invented names.
        """
        found = max(
            (each for each in self.operations.reader.deployments() if each.table == table and each.active),
            key=lambda each: each.version,
        )
        format = table_format(found.stored_as)
        if format.transaction_log or not format.has_files:
            return {}
        self.access.use_server(self.server)
        return self.access.columns_in_files(found.stored_as, found.folder)

    def deploy(self, progress: ProgressCallback, request: PlanRequest | None = None) -> None:
        """Plan all tables or, if given, `request`, apply the plan, and wait until its run is done.

        Raises Refused if the plan is refused, and DeploymentFailed if a step of its run failed.
        """
        submitted = self.operations.submit(request or PlanRequest(everything=True), asks_spark=False)
        if submitted.plan.empty:
            return
        run_id = self.operations.agent.apply(submitted.plan.hash, confirm=submitted.confirm)
        began, version = time.monotonic(), -1
        while (run := self.operations.run(run_id)).state in (RunState.RUNNING, RunState.PAUSED):
            done = sum(step.state == "done" for step in run.steps)
            detail = f"{done} of {len(run.steps)} steps"
            progress(WaitProgress("deploying", time.monotonic() - began, DEPLOY_USUAL_S, detail))
            if not self.operations.has_agent():
                raise PoolUnreachable("the agent ended during the deployment", remedy="headgate logs agent")
            version = self.operations.wait_for_change(version, 0.5)
        failed = next((step for step in run.steps if step.state == "failed"), None)
        if failed is not None and run.state != RunState.DONE:
            raise DeploymentFailed(failed)
        if run.state != RunState.DONE:
            raise HeadgateError(f"the deployment failed: {run.state}", remedy="headgate plan shows the statements")

    def wait_until_read(self, progress: ProgressCallback, *, seconds: float, what: str = "reading") -> float:
        """Wait until every statement has read everything upstream of it, and return how long that took, in seconds.

        Raises StatementFailed if a statement fails, and NotInTime after `seconds`.
        """
        began = changed_at = time.monotonic()
        before: Positions = {}
        while True:
            # Files are read at some moment after this one, and reading them may take seconds on a busy machine.
            looked_at = time.monotonic()
            found = self.positions()
            now = time.monotonic()
            if found != before or not self._all_run():
                changed_at = now
            facts = unread(before, found, idle_s=looked_at - changed_at)
            missing = [name for name in self.project.built if name not in found]
            if not facts and not missing:
                return now - began
            before = found
            self.refuse_failed()
            if now - began > seconds:
                raise NotInTime(seconds, facts or tuple(Unread.UNKNOWN.of(table=name) for name in missing))
            progress(WaitProgress(what, now - began, READ_USUAL_S, str(facts[0]) if facts else ""))
            time.sleep(POLL_S)

    def positions(self, *, stopped: bool = False) -> Positions:
        """Return the position of every statement that should be running, upstream tables first.

        With `stopped`, statements that should not be running are included.
        """
        every = self.operations.reader.deployments()
        by_version = {(each.table, each.version): each for each in every}
        tables = self.tables
        asked = [
            _statement(each, tables[each.table], by_version)
            for each in every
            if each.active
            and not each.external
            and each.table in tables
            and (stopped or each.wanted == WantedState.RUNNING)
        ]
        found = self.access.positions(asked)
        return {name: found[name] for name in self.project.built if name in found}

    def act(self, verb: str, tables: Iterable[TableName]) -> tuple[ActOutcome, ...]:
        """Stop or start statements as an operator does, and return their outcomes."""
        names = tuple(tables)
        agent = self.operations.agent
        return agent.act(verb, names, confirm=agent.confirmation(verb, names).text)

    def wait_for_batch(self, progress: ProgressCallback, *, seconds: float) -> bool:
        """Wait until a statement has a batch that has begun and not ended. Returns False if none has in `seconds`."""
        began = time.monotonic()
        while (elapsed := time.monotonic() - began) < seconds:
            if any(each.planned != each.batch for each in self.positions().values()):
                return True
            progress(WaitProgress("waiting for a batch", elapsed, READ_USUAL_S))
            time.sleep(POLL_S / 4)
        return False

    def kill_server(self, progress: ProgressCallback) -> None:
        """Kill its own server, and wait until the agent has started another one and filled its catalog."""
        killed = self.server_process()
        assert killed is not None and self._server is None, "it has a server of its own"
        os.kill(killed.pid, signal.SIGKILL)
        began = time.monotonic()
        while self.server_process() in (None, killed):
            if (elapsed := time.monotonic() - began) > agent_process.POOL_S:
                raise PoolUnreachable("the killed server was not started again", remedy="headgate logs agent")
            progress(WaitProgress("the killed server starts again", elapsed, agent_process.POOL_USUAL_S))
            time.sleep(POLL_S)
        agent_process.wait_for_pool(self.place, progress)

    def _all_run(self) -> bool:
        lines = self.operations.snapshot().serving
        return all(line.state == State.RUNNING for line in lines if line.table in self.project.built)

    def refuse_failed(self) -> None:
        """Raise StatementFailed if a statement has failed, for the first one upstream."""
        failed = {line.table: line for line in self.operations.snapshot().serving if line.state == State.FAILED}
        for name in self.project.built:
            if (line := failed.get(name)) is not None:
                first = line.error.strip().splitlines()[0] if line.error.strip() else ""
                raise StatementFailed(f"{name} failed ({line.error_class or 'no class'}): {first}", table=name)

    def end(self, progress: ProgressCallback) -> Teardown:
        """End its processes, delete everything of it, and check that nothing is left."""
        access = self._access
        if access is not None and (self._server is None or not access.in_step):
            access.close()
            access = None
        try:
            found = tear_down(self.folder, self.record, self._environ, progress, access)
        finally:
            if access is not None:
                access.close()
        if not os.path.lexists(self.folder / "project"):
            os.close(self._lock)
        return found


def _pool(declared: Pool, request: EphemeralRequest) -> dict[str, Any]:
    """Return the pool of an ephemeral environment as a value of headgate.yml."""
    conf = settings_of_meaning(declared.conf)
    if declared.url is None:
        conf = dict(declared.conf)
    pool: dict[str, Any] = {"name": "tests", "conf": conf | dict(request.conf)}
    if request.server is not None:
        return {**pool, "url": request.server.url, **request.server.security}
    own = pool if declared.url or declared.master else {**pool, "cores": declared.cores, "memory": declared.memory}
    return own if request.cores is None else {**own, "cores": request.cores}


def _write(folder: Path, record: EphemeralRecord, texts: Mapping[str, str]) -> int:
    """Write the record, then the project, and return the descriptor of the locked file. A failure leaves no folder."""
    made, lock = False, -1
    try:
        folder.mkdir(parents=True, mode=0o700)
        made = True
        lock = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        write_record(folder, record)
        for path, text in texts.items():
            file = folder / "project" / path
            file.parent.mkdir(parents=True, exist_ok=True)
            if is_jar(path):
                copy_jar(Path(record.branch, path), text, file)
            else:
                file.write_text(text, encoding="utf-8")
    except (OSError, HeadgateError) as error:
        if made:
            shutil.rmtree(folder, ignore_errors=True)
        with suppress(OSError):
            folder.parent.rmdir()
        if lock >= 0:
            os.close(lock)
        if isinstance(error, HeadgateError):
            raise
        remedy = "free space there, or set HEADGATE_HOME"
        if made and os.path.lexists(folder):
            remedy = f"{remedy}; delete {folder}, which is incomplete"
        raise HeadgateError(f"{folder} cannot be written: {error.strerror}", remedy=remedy) from error
    return lock


def _reuse_jars(base: Path, home: Path) -> None:
    """Link the jars that were downloaded for the environment on which this one is based."""
    if (base / _JARS).is_dir() and not (home / _JARS).exists():
        shutil.copytree(base / _JARS, home / _JARS, copy_function=_linked)


_JARS = "connectors"


def _linked(source: str, target: str) -> str:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
    return target


def _statement(
    deployment: Deployment, table: Table, by_version: Mapping[tuple[TableName, int], Deployment]
) -> dict[str, Any]:
    """Return what is needed to read a statement's position; sources are numbered as in its text, as Spark does."""
    versions = {binding.parent: binding.version for binding in deployment.bindings if binding.streamed}
    reads = [read.table for read in table.parsed.reads if read.streaming] if table.parsed else []
    sources = []
    for ordinal, name in enumerate(reads):
        parent = by_version.get((name, versions.get(name, 0)))
        sources.append([ordinal, name, parent.folder if parent else "", parent.stored_as if parent else ""])
    return {
        "table": deployment.table,
        "version": deployment.version,
        "checkpoint": deployment.checkpoint,
        "stateful": deployment.stateful,
        "sources": sources,
    }
