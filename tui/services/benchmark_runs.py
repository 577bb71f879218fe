"""Runs benchmarks in ephemeral environments, and puts together their results."""

import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from core.bench.request import BenchKind, BenchRequest, BenchSide, BenchSource
from core.bench.result import BenchResult, Figure, FigureKind, figure_from_json, trial_from_json
from core.model.errors import HeadgateError, Refused
from core.model.names import TableName
from core.project.ephemeral import Teardown
from core.project.model import Pool
from core.project_reader.ephemeral_project import TRIGGER
from core.sql.kafka_topics import VALUE_FORMAT, ValueFormat
from tui.agent_client import agent_process
from tui.agent_client.agent_process import ProgressCallback, WaitProgress
from tui.project_folder.git_objects import run_git
from tui.services import benchmarks
from tui.services.benchmarks import BenchTables
from tui.services.environment_service import EnvironmentService
from tui.services.ephemeral_environment import (
    EphemeralEnvironment,
    EphemeralRequest,
    ephemeral_environment,
)
from tui.services.table_client import SparkServer

START_S = 90.0
"""Usual time in seconds from the start of the environment until every statement has processed input twice."""


@dataclass(frozen=True, slots=True)
class BenchOrder:
    """A benchmark that is to be run."""

    kind: BenchKind
    tables: BenchTables
    purpose: str
    """The command, for the record of the environment."""
    settings: Mapping[str, Any]
    """Fields of `BenchRequest` that differ from their defaults."""
    samples: Mapping[TableName, str] = field(default_factory=dict)
    """Files with sample rows, by source."""
    cores: int | None = None
    since: str = ""
    """The git reference of the old texts; empty unless old and new texts are compared."""
    texts: Mapping[str, str] | None = None
    """The project's files by path; None for those in the project folder."""
    server: SparkServer | None = None
    """The server to use; None for one of its own."""
    conf: Mapping[str, str] = field(default_factory=dict)
    """Settings of Spark that differ from those of the declared pool."""

    def expected_s(self, longest_trigger_s: float) -> tuple[float, float]:
        """Return how long it takes at least, and with many statements and long watermarks, in seconds."""
        repeat = int(self.settings["repeat"])
        if self.kind is BenchKind.STARTUP:
            return repeat * 1.5 * START_S, repeat * 5 * START_S
        if self.kind is BenchKind.COMPARE:
            return 2 * START_S + repeat * 20.0, 3 * START_S + repeat * 60.0
        window_s = float(self.settings["window_s"])
        if self.kind is BenchKind.SCALE:
            measuring = window_s + 3 * longest_trigger_s
        elif self.kind is BenchKind.LATENCY:
            measuring = self.settings["probes"] * longest_trigger_s * 0.62 + window_s + 4 * longest_trigger_s
        else:
            measuring = 6 * (window_s + longest_trigger_s) * max(1, len(self.settings["record_bytes"]))
        return START_S + repeat * measuring, 2 * START_S + repeat * measuring * 2.5


@dataclass(frozen=True, slots=True)
class Reports:
    """How a running benchmark reports."""

    progress: ProgressCallback
    trial: Callable[[Mapping[str, Any]], None]
    """Called with each rate that was tried, as an object."""
    say: Callable[[str], None]


def run_benchmark(operations: EnvironmentService, order: BenchOrder, reports: Reports) -> BenchResult:
    """Measure tables in an ephemeral environment, which is deleted afterwards.

    Raises Refused if the tables cannot be isolated, and HeadgateError if a statement or a process fails.
    """
    started_at = time.time()
    answers: dict[str, Any] = {}
    with measured_environment(operations, order, reports) as environment:
        request = request_of(operations, order, environment)
        for answer in answers_of(request, environment, reports):
            answers |= answer
        pool = environment.operations.project().environments[environment.record.name].pool
    return result_of(operations, order, request, answers, pool, started_at=started_at)


def run_comparison(
    operations: EnvironmentService, order: BenchOrder, old_texts: Mapping[str, str], reports: Reports
) -> BenchResult:
    """Measure old and new texts in alternating pairs, in two ephemeral environments on one server."""
    started_at = time.time()
    answers: dict[str, Any] = {}
    with measured_environment(operations, order, reports) as new:
        old_order = replace(order, texts=old_texts, server=new.server)
        with measured_environment(operations, old_order, reports) as old:
            known = _places(old)
            streamed = [each for each in order.tables.streamed if each in known]
            sources = _sources(operations, order, streamed, _places(new))
            request = BenchRequest(
                kind=order.kind,
                statements=benchmarks.deployed_statements(new.operations),
                sources=sources,
                static=_sources(operations, order, order.tables.static, {}),
                old=BenchSide(benchmarks.deployed_statements(old.operations), known),
                **order.settings,
            )
            for answer in answers_of(request, new, reports):
                answers |= answer
                old.refuse_failed()
        pool = new.operations.project().environments[new.record.name].pool
    return result_of(operations, order, request, answers, pool, started_at=started_at)


START, SERVER_KILLED, AGENT_KILLED = "start", "server killed", "agent killed"
"""Moments from which `run_startup` measures."""


def run_startup(operations: EnvironmentService, order: BenchOrder, reports: Reports) -> BenchResult:
    """Measure how long statements take until rows, after the start of everything and after kills."""
    started_at = time.time()
    found: list[Mapping[str, Any]] = []
    figures: list[Figure] = []
    for repetition in range(1, int(order.settings["repeat"]) + 1):
        began = time.time()
        with measured_environment(operations, order, reports) as environment:
            deployed_s = time.time() - began
            figures.append(Figure(FigureKind.STARTUP, "deployed", "", repetition, deployed_s))
            found.append(_first_rows(operations, order, environment, reports, (START, began, repetition)))
            server = environment.server_process()
            assert server is not None, "it has a server of its own"
            os.kill(server.pid, signal.SIGKILL)
            found.append(_first_rows(operations, order, environment, reports, (SERVER_KILLED, time.time(), repetition)))
            figures.append(_agent_restart(environment, reports, repetition))
            pool = environment.operations.project().environments[environment.record.name].pool
    for each in found:
        figures += map(figure_from_json, each["result"]["figures"])
    answers = {**found[0], "result": {**found[0]["result"], "figures": [asdict(each) for each in figures]}}
    request = BenchRequest(order.kind, (), (), **order.settings)
    return result_of(operations, order, request, answers, pool, started_at=started_at)


def _first_rows(
    operations: EnvironmentService,
    order: BenchOrder,
    environment: EphemeralEnvironment,
    reports: Reports,
    moment: tuple[str, float, int],
) -> Mapping[str, Any]:
    phase, since, repetition = moment
    request = request_of(operations, order, environment)
    request = replace(request, since=since, phase=phase, repetition=repetition)
    answers: dict[str, Any] = {}
    for answer in answers_of(request, environment, reports):
        answers |= answer
    return answers


def _agent_restart(environment: EphemeralEnvironment, reports: Reports, repetition: int) -> Figure:
    """Kill the agent, start another one, and return how long it took until that one answered."""
    place, operations = environment.place, environment.operations
    agent = agent_process.find_agent_process(place)
    assert agent is not None, "it runs"
    began = time.time()
    os.kill(agent.pid, signal.SIGKILL)
    agent_process.ensure_running(place, operations.client, operations.environ, progress=reports.progress)
    return Figure(FigureKind.STARTUP, AGENT_KILLED, "", repetition, time.time() - began)


def result_of(
    operations: EnvironmentService,
    order: BenchOrder,
    request: BenchRequest,
    answers: Mapping[str, Any],
    pool: Pool,
    *,
    started_at: float,
) -> BenchResult:
    """Put together a result from what the child process has answered."""
    result, load = answers["result"], answers["load"]
    notes = _notes(order, request, load)
    about_systems = {"stand_ins": list(order.tables.stand_ins), "partitions": answers["partitions"]}
    revision, dirty = _revision(operations.place.folder)
    return BenchResult(
        kind=str(order.kind),
        project=operations.place.project,
        environment=operations.place.environment,
        started_at=started_at,
        took_s=time.time() - started_at,
        revision=revision,
        dirty=dirty,
        machine=answers["machine"],
        parameters={**_parameters(order, request, pool), **{name: of for name, of in about_systems.items() if of}},
        figures=tuple(map(figure_from_json, result["figures"])),
        trials=tuple(map(trial_from_json, result["trials"])),
        stages=tuple((table, source) for table, source in result["stages"]),
        notes=(*notes, *result["notes"]),
    )


def _notes(order: BenchOrder, request: BenchRequest, load: Mapping[str, Any]) -> Iterator[str]:
    """Yield what a reader has to know about the rows that were written."""
    if stand_ins := order.tables.stand_ins:
        yield f"files stood for {', '.join(stand_ins)}, so the figures do not contain the database"
    if made_up := sorted(table for table, each in load.items() if each["made_up"]):
        yield f"rows of {', '.join(made_up)} were made up from the declaration: --sample gives real ones"
    raw = [
        each.table
        for each in request.sources
        if each.options.get(VALUE_FORMAT, "").lower() == ValueFormat.RAW or "_content" in dict(each.columns)
    ]
    if kept := sorted(set(raw).difference(made_up)):
        yield f"the values of {', '.join(kept)} are those of the sample: keys and times in them do not change"


@contextmanager
def measured_environment(
    operations: EnvironmentService, order: BenchOrder, reports: Reports
) -> Iterator[EphemeralEnvironment]:
    """Yield an ephemeral environment in which the statements of a benchmark run, and delete it in any case."""
    if operations.place.protected:
        raise Refused(f"{operations.place.title} is not benchmarked", remedy="name another environment with --env")

    def ended(found: Teardown) -> None:
        reports.say(found.words())

    request = EphemeralRequest(
        order.tables.measured,
        order.purpose,
        server=order.server,
        trigger=TRIGGER if order.kind is BenchKind.COMPARE else None,
        texts=order.texts,
        cores=order.cores,
        measure_s="",
        conf=order.conf,
        keeps_partitions=True,
    )
    with ephemeral_environment(operations, request, reports.progress, ended=ended) as environment:
        _seed(operations, order, environment, reports)
        environment.deploy(reports.progress)
        yield environment


def _seed(
    operations: EnvironmentService, order: BenchOrder, environment: EphemeralEnvironment, reports: Reports
) -> None:
    """Write the rows of static sides, before the statements that read them are started."""
    if order.tables.static:
        static = _sources(operations, order, order.tables.static, environment.project.sources)
        request = BenchRequest(BenchKind.SEED, (), (), static=static)
        for _ in answers_of(request, environment, reports):
            pass


def refuse_sizes(operations: EnvironmentService, order: BenchOrder) -> None:
    """Raise UsageError if records cannot be filled up to the sizes of a benchmark, before anything is created."""
    if sizes := order.settings.get("record_bytes"):
        sources = _sources(operations, order, order.tables.streamed, {})
        request = BenchRequest(BenchKind.SIZES, (), sources, record_bytes=sizes)
        for _ in benchmarks.run_child(request, operations.environ):
            pass


def request_of(operations: EnvironmentService, order: BenchOrder, environment: EphemeralEnvironment) -> BenchRequest:
    """Return the request to measure what runs in an environment."""
    sources = _sources(operations, order, order.tables.streamed, _places(environment))
    static = _sources(operations, order, order.tables.static, {})
    statements = benchmarks.deployed_statements(environment.operations)
    return BenchRequest(order.kind, statements, sources, static, **order.settings)


def _sources(
    operations: EnvironmentService, order: BenchOrder, tables: Iterable[TableName], places: Mapping[TableName, str]
) -> tuple[BenchSource, ...]:
    return benchmarks.bench_sources(operations, tables, places, order.samples, order.tables.compared)


def _places(environment: EphemeralEnvironment) -> dict[TableName, str]:
    """Return the folder of each source, or the location of its topics."""
    topics = {name: ddl.location for name, ddl in environment.project.topics.items()}
    return {**environment.project.sources, **topics}


def answers_of(request: BenchRequest, environment: EphemeralEnvironment, reports: Reports) -> Iterator[dict[str, Any]]:
    """Yield the answers of the child process other than its progress, which is reported."""
    began = time.monotonic()
    environ = environment.operations.environ
    agent = agent_process.find_agent_process(environment.place)
    request = replace(
        request,
        place=str(environment.folder),
        home=environment.place.where.home,
        agent=agent.pid if agent is not None else 0,
    )
    with closing(benchmarks.run_child(request, environ)) as answers:
        for answer in answers:
            if "doing" in answer:
                reports.progress(WaitProgress(answer["doing"], time.monotonic() - began, 0.0, answer["detail"]))
                environment.refuse_failed()
            elif "trial" in answer:
                reports.trial(answer["trial"])
            else:
                yield answer


def _parameters(order: BenchOrder, request: BenchRequest, pool: Pool) -> dict[str, Any]:
    if order.kind is BenchKind.COMPARE:
        known = {"tables": list(order.tables.measured), "since": order.since, "pairs": request.repeat}
        return {**known, "rows": request.probe_rows, "cores": pool.cores, "memory": pool.memory}
    if order.kind is BenchKind.STARTUP:
        known = {"tables": list(order.tables.measured), "repetitions": request.repeat}
        return {**known, "cores": pool.cores, "memory": pool.memory}
    shown = {
        "tables": list(order.tables.measured),
        "repetitions": request.repeat,
        "rate": request.rate,
        "window_s": request.window_s,
        "record_bytes": list(request.record_bytes),
        "cores": pool.cores,
        "memory": pool.memory,
    }
    if order.kind is BenchKind.SCALE:
        return shown
    if order.kind is BenchKind.LATENCY:
        return {**shown, "probes": request.probes, "probe_rows": request.probe_rows}
    return {**shown, "precision": request.precision, "most": request.most}


def _revision(folder: str) -> tuple[str, bool]:
    """Return the commit of a project, empty if it is not in git, and whether files differ from it."""
    try:
        code, head, _ = run_git(folder, "rev-parse", "HEAD")
        status = run_git(folder, "status", "--porcelain", "--", ".") if code == 0 else (1, b"", "")
    except (HeadgateError, OSError):
        return "", False
    return (head.decode("ascii", "replace").strip() if code == 0 else ""), bool(status[1].strip())
