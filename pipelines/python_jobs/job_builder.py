"""Builds the plans of jobs: runs a job's code in a confined process, and checks the plan that the process returns."""

import base64
import json
import logging
import os
import selectors
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pyspark.sql.connect.dataframe import DataFrame
from pyspark.sql.connect.plan import SQL

from core.ipc.environment_paths import JOB_BUILDS
from core.model.errors import Busy, EngineRefused, PoolUnreachable
from core.ports.spark import BuiltJob, never
from core.sql.python_jobs import PythonJob
from core.text.escaping import escape_control_characters
from core.text.sentence import Fact
from pipelines.local_pool.process_locks import processes_with
from pipelines.python_jobs.analysis_proxy import TOKEN_HEADER, ProxyRecord, analysis_proxy
from pipelines.python_jobs.job_environments import JobEnvironments
from pipelines.python_jobs.job_faults import JobFault, job_refused
from pipelines.python_jobs.plan_checks import (
    PLAN_BYTES,
    fault_of_nodes,
    fault_of_streams,
    keeps_processor_state,
    read_relation,
)
from pipelines.spark_connect.session import USER, Session
from pipelines.spark_connect.streaming_queries import ROCKSDB, WORKER_PYTHON, BuiltPlan

log = logging.getLogger(__name__)

ANALYSIS_S = 20.0
"""Deadline, in seconds, of Spark's analysis of a finished plan."""
LOG_BYTES = 1 << 20
"""Size at which the log of a statement's job is renamed before the next build, in bytes."""
_PROGRAM = Path(__file__).with_name("job_process.py")
_MARK = "HEADGATE_JOB"
"""Environment variable with the marker of a job's process, which its descendants inherit."""
_LOOKS_S = 0.2
"""Seconds between two looks at whether the code of a job has begun."""
_KEPT_BYTES = 64 << 20
"""Total size of the built plans that are kept for the next start, in bytes."""


@dataclass(frozen=True, slots=True)
class JobLimits:
    """What the process of a job may use."""

    seconds: float = 20.0
    memory: int = 1 << 30
    """Private memory, in bytes; importing Spark's client takes 170 MB of it."""
    output: int = 256 << 10
    """Bytes that the code may print."""

    @property
    def by_name(self) -> Mapping[str, int]:
        """The limits that the kernel enforces, by the name of its resource."""
        return {
            "DATA": self.memory,
            "CPU": int(self.seconds) + 1,
            "FSIZE": 4 * PLAN_BYTES,
            "NOFILE": 256,
            "CORE": 0,
        }


@dataclass
class JobBuilder:
    """Implements `core.ports.spark.Jobs` for one session of the pool. Thread-safe."""

    session: Session
    logs: Path
    """Folder with one log for each statement; the folder of builds is beside it."""
    environments: JobEnvironments | None
    """Environments that the pool's Python can use; None for a pool that may run on another machine."""
    limits: JobLimits = JobLimits()
    _built: dict[tuple[object, ...], BuiltJob] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _turns: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(2))
    """Allows two processes at a time, so that a recovery of many jobs does not make all of them late."""

    def build(
        self,
        job: PythonJob,
        *,
        name: str,
        table: str,
        columns: tuple[tuple[str, str], ...],
        cancelled: Callable[[], bool] = never,
        file: str = "",
    ) -> BuiltJob:
        """Return the checked plan of a job whose rows have the given columns, as (name, type).

        Errors name `file`, or `job.<table>.py` if it is empty. A plan is built again only if the job or the columns of
        its inputs have changed. Raises EngineRefused with an error class HEADGATE_JOB_…, PoolUnreachable, or Busy if
        another process has killed that of the job, or if the build was cancelled.
        """
        inputs = tuple(self._analysed(DataFrame(SQL(f"SELECT * FROM {each.sql}"), self.session.spark))
                       for each in job.inputs)  # fmt: skip
        key = (job, name, columns, inputs)
        with self._lock:
            if (known := self._built.get(key)) is not None:
                return known
        file = file or f"job.{table}.py"
        python = self._python(job, file, cancelled)
        with self._turn(file, cancelled):
            built = self._build(job, name, file, columns, python=python, cancelled=cancelled)
        with self._lock:
            self._built[key] = built
            while sum(len(each.relation) + len(each.each_batch) for each in self._built.values()) > _KEPT_BYTES:
                self._built.pop(next(iter(self._built)))
        return built

    @contextmanager
    def _turn(self, file: str, cancelled: Callable[[], bool]) -> Iterator[None]:
        while not self._turns.acquire(timeout=_LOOKS_S):
            if cancelled():
                raise _cancelled(file)
        try:
            yield
        finally:
            self._turns.release()

    def _python(self, job: PythonJob, file: str, cancelled: Callable[[], bool]) -> str:
        """Return the Python that has the requirements of a job. Raises EngineRefused if there can be none, or Busy."""
        if not job.requirements:
            return sys.executable
        if self.environments is None:
            raise job_refused(JobFault.REMOTE.of(file=file))
        python = self.environments.python_for(job.requirements, file, cancelled)
        if isinstance(python, Fact):
            raise job_refused(python)
        return python

    def _build(
        self,
        job: PythonJob,
        name: str,
        file: str,
        columns: tuple[tuple[str, str], ...],
        *,
        python: str,
        cancelled: Callable[[], bool],
    ) -> BuiltJob:
        with analysis_proxy(self.session, lambda relation: fault_of_nodes(relation, job, file)) as record:
            found = self._result(job, name, file, record, python=python, cancelled=cancelled)
        relation = read_relation(found.relation, file)
        if isinstance(relation, Fact):
            raise job_refused(relation)
        fault = fault_of_nodes(relation, job, file) or fault_of_streams(relation, job, file)
        if fault is not None:
            raise job_refused(fault)
        if (fault := self._fault_of_rows(found.relation, job, file, columns)) is not None:
            raise job_refused(fault)
        settings: tuple[tuple[str, str], ...] = (ROCKSDB,) if keeps_processor_state(relation) else ()
        if job.requirements:
            settings += ((WORKER_PYTHON, python),)
        return BuiltJob(found.relation, found.each_batch, settings)

    def _fault_of_rows(
        self, relation: bytes, job: PythonJob, file: str, columns: tuple[tuple[str, str], ...]
    ) -> Fact[JobFault] | None:
        frame = DataFrame(BuiltPlan(relation), self.session.spark)
        try:
            streams = self.session.call(ANALYSIS_S, lambda: frame.isStreaming)
            schema = self.session.call(ANALYSIS_S, lambda: frame.schema)
        except EngineRefused as error:
            raise EngineRefused(
                f"{file}: {error.summary}", remedy=error.remedy, error_class=error.error_class
            ) from error
        if not streams:
            return JobFault.BATCH.of(file=file, function=job.function)
        if job.writes_batches:
            return None
        returned: dict[str, str] = {}
        for each in schema.fields:
            if each.name in returned:
                return JobFault.COLUMN_TWICE.of(file=file, function=job.function, column=each.name)
            returned[each.name] = each.dataType.simpleString()
        return _fault_of_columns(returned, self._declared(columns), job, file)

    def _declared(self, columns: tuple[tuple[str, str], ...]) -> dict[str, str]:
        found: dict[str, str] = {}
        for name, type in columns:
            parsed: Any = self.session.call(ANALYSIS_S, self.session.spark._parse_ddl, type)
            found[name] = parsed.simpleString()
        return found

    def _analysed(self, frame: DataFrame) -> str:
        return self.session.call(ANALYSIS_S, lambda: frame.schema.json())

    def _result(
        self,
        job: PythonJob,
        name: str,
        file: str,
        record: ProxyRecord,
        *,
        python: str,
        cancelled: Callable[[], bool],
    ) -> "_Result":
        builds = self.logs.with_name(JOB_BUILDS)
        builds.mkdir(mode=0o700, exist_ok=True)
        folder = Path(tempfile.mkdtemp(dir=builds))
        try:
            url = f"sc://127.0.0.1:{record.port}/;session_id={self.session.session_id};user_id={USER}"
            request = {
                "code": job.code,
                "function": job.function,
                "file": file,
                "inputs": [[each.parameter, each.sql] for each in job.inputs],
                "spark": job.takes_spark,
                "each_batch": job.writes_batches,
                "url": f"{url};{TOKEN_HEADER}={record.token}",
                "port": record.port,
                "paths": [],
                "limits": self.limits.by_name,
                "parent": os.getpid(),
            }
            (folder / "request.json").write_text(json.dumps(request), encoding="utf-8")
            place = self._log(name)
            ran = run_confined(folder, python, place, self.limits, cancelled)
            return _read_result(folder, job, file, ran, record, limits=self.limits, place=place)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _log(self, name: str) -> Path:
        self.logs.mkdir(mode=0o750, exist_ok=True)
        place = self.logs / f"{name}.log"
        with suppress(OSError):
            if place.stat().st_size > LOG_BYTES:
                os.replace(place, f"{place}.1")
        return place


@dataclass(frozen=True, slots=True)
class _Result:
    relation: bytes
    each_batch: bytes


@dataclass(frozen=True, slots=True)
class ProcessEnd:
    """How the process of a job ended."""

    code: int
    """Exit code, negative for a signal."""
    printed: int
    """Bytes that it printed."""
    late: bool = False
    talkative: bool = False
    """Whether it was killed because it printed too much."""
    cancelled: bool = False


def _cancelled(file: str) -> Busy:
    return Busy(f"the build of the plan of {file} was cancelled", remedy="start it again")


def run_confined(
    folder: Path, python: str, place: Path, limits: JobLimits, cancelled: Callable[[], bool] = never
) -> ProcessEnd:
    """Run the process of a job on a folder with its request, until its end or a limit; no process of it remains.

    It is also killed when `cancelled` returns True. What it prints is appended to the log `place`.
    """
    marker = folder.name
    environment = {"PATH": os.defpath, "LANG": "C.UTF-8", "HOME": str(folder), "TMPDIR": str(folder), _MARK: marker,
                   "SPARK_CONNECT_MODE_ENABLED": "1", "GRPC_ENABLE_FORK_SUPPORT": "false"}  # fmt: skip
    command = [python, "-I", str(_PROGRAM), str(folder)]
    with subprocess.Popen(
        command, env=environment, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, start_new_session=True, close_fds=True, umask=0o077,
    ) as process:  # fmt: skip
        try:
            end = _copy_output(process, place, folder / "started", limits, cancelled)
        finally:
            _kill(process, marker)
        code = process.wait()
    return replace(end, code=code)


def _copy_output(
    process: "subprocess.Popen[bytes]",
    place: Path,
    started: Path,
    limits: JobLimits,
    cancelled: Callable[[], bool],
) -> ProcessEnd:
    """Copy the output to the log until the process ends, a limit is reached, or the build is cancelled.

    The time counts from when the file `started` exists, or else from three limits after the start of the process.
    Returns the end without its exit code.
    """
    assert process.stdout is not None
    printed, ends_at, began = 0, time.monotonic() + 4 * limits.seconds, False
    os.set_blocking(process.stdout.fileno(), False)
    with open(place, "ab") as file, selectors.DefaultSelector() as waiting:
        file.write(f"--- {time.strftime('%Y-%m-%d %H:%M:%S')} process {process.pid}\n".encode())
        waiting.register(process.stdout, selectors.EVENT_READ)
        while printed <= limits.output:
            if not began and started.exists():
                began, ends_at = True, min(ends_at, time.monotonic() + limits.seconds)
            left = ends_at - time.monotonic()
            if left <= 0:
                return ProcessEnd(0, printed, late=True)
            if cancelled():
                return ProcessEnd(0, printed, cancelled=True)
            if not waiting.get_map():
                # The process has closed its output, and may go on.
                with suppress(subprocess.TimeoutExpired):
                    process.wait(min(left, _LOOKS_S))
                    return ProcessEnd(0, printed)
                continue
            if not waiting.select(min(left, _LOOKS_S)):
                continue
            if read := process.stdout.read(64 << 10):
                printed += len(read)
                file.write(read)
            else:
                waiting.unregister(process.stdout)
    return ProcessEnd(0, printed, talkative=True)


def _kill(process: "subprocess.Popen[bytes]", marker: str) -> None:
    if process.poll() is None:
        with suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
    # Where the kernel cannot prevent new processes, they may have left the group.
    for pid in processes_with(_MARK, marker):
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def _read_result(
    folder: Path, job: PythonJob, file: str, ran: ProcessEnd, record: ProxyRecord, *, limits: JobLimits, place: Path
) -> _Result:
    if ran.cancelled:
        raise _cancelled(file)
    if record.unreachable:
        raise PoolUnreachable(f"the pool did not answer while the plan of {file} was built", remedy="try again")
    found = _result_file(folder)
    if ran.late:
        raise job_refused(JobFault.TIME.of(file=file, limit=limits.seconds))
    if ran.talkative:
        raise job_refused(JobFault.OUTPUT.of(file=file, limit=limits.output))
    if not found and ran.code == -signal.SIGKILL:
        raise Busy(f"the process that builds the plan of {file} was killed", remedy="try again")
    if not found:
        raise job_refused(_fault_of_end(file, ran, limits, place))
    if lacking := found.get("unconfined"):
        log.warning("%s: this machine cannot prevent what a job does to: %s", file, ", ".join(map(str, lacking)))
    if fault := found.get("fault"):
        raise job_refused(_fault_named(str(fault), found, job, file=file, record=record, limits=limits))
    try:
        return _Result(base64.b64decode(found["relation"]), base64.b64decode(found["each_batch"]))
    except (KeyError, ValueError, TypeError):
        raise job_refused(JobFault.ENDED.of(file=file, how="its result is damaged", log=str(place))) from None


def _result_file(folder: Path) -> dict[str, Any]:
    """Return what the process has written; empty if it is no JSON object in a regular file."""
    try:
        opened = os.open(folder / "result.json", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return {}
    with os.fdopen(opened, "rb") as file:
        if not stat.S_ISREG(os.fstat(opened).st_mode):
            return {}
        text = file.read(4 * PLAN_BYTES)
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _fault_of_end(file: str, ran: ProcessEnd, limits: JobLimits, place: Path) -> Fact[JobFault]:
    if ran.code == -signal.SIGXCPU:
        return JobFault.TIME.of(file=file, limit=limits.seconds)
    how = f"signal {signal.Signals(-ran.code).name}" if ran.code < 0 else f"exit code {ran.code}"
    return JobFault.ENDED.of(file=file, how=how, log=str(place))


def _fault_named(
    code: str, found: Mapping[str, Any], job: PythonJob, *, file: str, record: ProxyRecord, limits: JobLimits
) -> Fact[JobFault]:
    shown = {key: escape_control_characters(str(found.get(key, "")))[:400] for key in ("message", "type", "module")}
    line = found.get("line") if isinstance(found.get("line"), int) else 0
    match JobFault.__members__.get(code):
        case JobFault.SYNTAX:
            return JobFault.SYNTAX.of(file=file, line=line, message=shown["message"])
        case JobFault.IMPORT:
            return JobFault.IMPORT.of(file=file, line=line, module=shown["module"])
        case JobFault.NO_FUNCTION:
            return JobFault.NO_FUNCTION.of(file=file, function=job.function)
        case JobFault.NO_FRAME:
            return JobFault.NO_FRAME.of(file=file, function=job.function, type=shown["type"])
        case JobFault.MEMORY:
            return JobFault.MEMORY.of(file=file, limit=limits.memory)
        case JobFault.DENIED:
            return JobFault.DENIED.of(file=file, line=line, type=shown["type"], message=shown["message"])
    if record.faults:
        return record.faults[0]
    if record.refused:
        return JobFault.ACTION.of(file=file, line=line, call=record.refused[-1])
    return JobFault.RAISED.of(file=file, line=line, type=shown["type"], message=shown["message"])


def _fault_of_columns(
    returned: Mapping[str, str], declared: Mapping[str, str], job: PythonJob, file: str
) -> Fact[JobFault] | None:
    """Return the first difference between the columns of a plan and those of the table; None if there is none."""
    for column, type in declared.items():
        if column not in returned:
            return JobFault.COLUMN_MISSING.of(file=file, function=job.function, column=column)
        if returned[column] != type:
            return JobFault.COLUMN_TYPE.of(
                file=file, function=job.function, column=column, type=returned[column], declared=type
            )
    extra = next((column for column in returned if column not in declared), None)
    return None if extra is None else JobFault.COLUMN_EXTRA.of(file=file, function=job.function, column=extra)
