"""`python -I -m pipelines.statement_tests FOLDER`: runs test cases on a separate Spark server.

The request is read from stdin as one line of JSON, and the answers are written to stdout as lines of JSON. The end of
stdin means that the caller is gone: the server is then stopped and FOLDER deleted.
"""

import json
import os
import shutil
import sys
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from core.model.errors import HeadgateError, InvalidProject, PoolUnreachable
from core.model.names import TableName
from core.ports.spark import never
from core.project.manifest_head import MANIFEST_PATH
from core.project.model import Pool, Table
from core.project_reader.loader import read_tables
from core.project_reader.manifest import read_manifest
from core.project_reader.parse_cache import ParseCache
from core.project_reader.revision_reader import read_revision
from core.sql.metadata_columns import without_metadata
from core.sql.python_declarations import registered_functions
from core.sql.python_jobs import PythonJob, python_job_of
from core.statement_tests.case import StatementCase
from core.statement_tests.case_reader import read_cases
from core.statement_tests.case_writer import first_case, written_case
from core.statement_tests.request import CaseOutcome, CaseRequest, CaseResult, request_from_json
from core.text.sentence import Fact
from pipelines.local_pool.connect_server import LocalPool
from pipelines.python_jobs.job_environments import JobEnvironments
from pipelines.python_jobs.job_faults import JobFault, job_refused
from pipelines.spark_connect.session import Session
from pipelines.statement_tests.case_runner import CaseRunner
from pipelines.statement_tests.stream_trial import TrialStatement
from pipelines.storage.jar_store import JarFiles

END_S = 10.0
"""Maximum wait, in seconds, for stdin to close after the last answer."""

_MEMORY = "1g"


class CaseServer:
    """A Spark server for the test cases of one request, in a separate folder. It is restarted after a crash."""

    def __init__(self, folder: Path, settings: dict[str, str]) -> None:
        conf = {**settings, "spark.sql.runSQLOnFiles": "false"}
        self._pool = LocalPool(folder, Pool(name="tests", cores=2, memory=_MEMORY, conf=tuple(conf.items())))
        self._lock = threading.Lock()
        self._closed = False

    def session(self) -> Session:
        """Open a new session, and start the server first if it is not running."""
        try:
            with self._lock:
                if self._closed:
                    raise PoolUnreachable("the process that requested the tests is gone")
                self._pool.start()
        except OSError as error:
            raise HeadgateError(f"Spark cannot be started: {error.strerror}", remedy="free some disk space") from error
        self._pool.ready()
        session = Session(self._pool.url, self._pool.token, str(uuid.uuid4()))
        session.attach()
        return session

    @property
    def closed(self) -> bool:
        """Whether the server has been stopped for good."""
        return self._closed

    def end(self) -> None:
        """End the server if it is running."""
        self._pool.end()

    def close(self) -> None:
        """Stop the server, even while it starts, and prevent another start."""
        # Set before the lock is free, because it also ends builds of jobs.
        self._closed = True
        with self._lock:
            self._pool.end()


class Packages:
    """Installs the packages of jobs, each list once, so that no time limit of a case includes it."""

    def __init__(self, folder: str, cancelled: Callable[[], bool] = never) -> None:
        """Use a folder of environments; it is empty if packages cannot be installed, which builds of jobs report.

        Once `cancelled` returns True, an installation ends with Busy.
        """
        self._cancelled = cancelled
        self.environments = JobEnvironments(Path(folder)) if folder else None
        self._faults: dict[tuple[str, ...], Fact[JobFault] | None] = {}

    def install(self, jobs: Iterable[PythonJob]) -> Iterator[str]:
        """Install what the jobs need, and yield a message before each installation."""
        for job in jobs:
            if job.requirements and self.environments is not None and job.requirements not in self._faults:
                yield f"installing the packages of {job.function}"
                made = self.environments.python_for(job.requirements, f"job.{job.function}.py", self._cancelled)
                self._faults[job.requirements] = made if isinstance(made, Fact) else None

    def fault(self, jobs: Iterable[PythonJob]) -> Fact[JobFault] | None:
        """Return why the packages of one of the jobs could not be installed; None if all were."""
        return next((fault for job in jobs if (fault := self._faults.get(job.requirements))), None)


def answers(request: CaseRequest, server: CaseServer, folder: Path) -> Iterator[dict[str, Any]]:
    """Yield progress messages and each case's result or, for a recording request, the recorded case."""
    tables = _tables(request)
    cases, _ = read_cases(request.tests, tables)
    wanted = {path: place for place, path in enumerate(request.cases)}
    chosen = sorted((case for case in cases if case.path in wanted), key=lambda case: wanted[case.path])
    yield {"doing": "Spark is starting"}
    packages = Packages(request.packages, lambda: server.closed)
    runner = _runner(request, server, folder, tables, packages)
    if request.record:
        table = TableName(request.record)
        jobs = _jobs(request, table, tables)
        yield from ({"doing": doing} for doing in packages.install(jobs))
        if (fault := packages.fault(jobs)) is not None:
            raise job_refused(fault)
        yield {"doing": f"running {table}"}
        case = first_case(tables[table], tables)
        yield {"recorded": written_case(case, runner.record(case), tables)}
        return
    for case in chosen:
        jobs = _jobs(request, case.table, tables)
        yield from ({"doing": doing} for doing in packages.install(jobs))
        yield {"doing": case.label}
        try:
            if (fault := packages.fault(jobs)) is not None:
                result = CaseResult(case.path, case.table, case.name, CaseOutcome.ERROR, job_refused(fault).sentence)
            else:
                result = _result(request, runner, case, tables)
        except PoolUnreachable as error:
            summary = f"its Spark server ended or went silent ({error.summary}); another one runs the next case"
            result = CaseResult(case.path, case.table, case.name, CaseOutcome.ERROR, summary)
            server.end()
            runner = _runner(request, server, folder, tables, packages)
        yield {"result": result.as_json()}


def _result(
    request: CaseRequest, runner: CaseRunner, case: StatementCase, tables: dict[TableName, Table]
) -> CaseResult:
    if not request.old:
        return runner.run(case)
    defaults = read_manifest(request.texts.get(MANIFEST_PATH), []).defaults
    old = read_revision(case.table, request.old[case.table], defaults)
    if old is None or old.parsed is None:
        return runner.upgrade(case, None)
    ddl = without_metadata(old.ddl) if old.settings.metadata else old.ddl
    functions = registered_functions(old.parsed.select, old.texts.functions)
    return runner.upgrade(case, TrialStatement(ddl, old.parsed, functions))


def _tables(request: CaseRequest) -> dict[TableName, Table]:
    manifest = read_manifest(request.texts.get(MANIFEST_PATH), [])
    variables = manifest.variables_of(request.environment)
    return read_tables(request.texts, manifest.defaults, ParseCache(), variables, manifest.metadata_by_product)


def _jobs(request: CaseRequest, table: TableName, tables: dict[TableName, Table]) -> tuple[PythonJob, ...]:
    """Return the job of a table and, for an upgrade, the old one, if they are jobs in Python."""
    new, old = tables[table].dml, request.old.get(table)
    found = []
    for text in (new.text if new else "", old.dml if old else ""):
        # The upgrade from a damaged old text is skipped later.
        with suppress(InvalidProject):
            found.append(python_job_of(text))
    return tuple(job for job in found if job is not None)


def _runner(
    request: CaseRequest, server: CaseServer, folder: Path, tables: dict[TableName, Table], packages: Packages
) -> CaseRunner:
    return CaseRunner(
        server.session(),
        folder,
        tables,
        case_s=request.case_s,
        packages=packages.environments,
        cancelled=lambda: server.closed,
        jars=JarFiles(request.jars),
    )


def main() -> int:
    """Answer one request. Returns 0 even if a test case fails, because the caller interprets the results."""
    folder = Path(sys.argv[1])
    request = request_from_json(json.loads(sys.stdin.readline()))
    server = CaseServer(folder, dict(request.settings))
    watcher = threading.Thread(target=_end_with_asker, args=(server, folder), daemon=True)
    watcher.start()
    try:
        for answer in answers(request, server, folder):
            print(json.dumps(answer), flush=True)
        print(json.dumps({"done": True}), flush=True)
    except HeadgateError as error:
        print(json.dumps({"error": error.as_json()}), flush=True)
    except OSError as error:
        summary = f"{error.filename or folder} cannot be written: {error.strerror}"
        print(json.dumps({"error": HeadgateError(summary, remedy="free some disk space").as_json()}), flush=True)
    finally:
        server.close()
        # If the caller is gone, the watcher removes the folder and must be able to finish.
        watcher.join(END_S)
    return 0


def _end_with_asker(server: CaseServer, folder: Path) -> None:
    sys.stdin.read()
    server.close()
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
