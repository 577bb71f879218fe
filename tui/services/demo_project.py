"""The demo project: child processes of `pipelines.demo` copy the sample, generate events and close time windows."""

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.model.errors import HeadgateError
from core.model.names import trigger_s
from core.model.states import State, WantedState
from core.observed.versions import StatementLine
from tui.agent_client import os_processes
from tui.agent_client.agent_process import ProgressCallback, WaitProgress
from tui.agent_client.spark_side_process import last_answer
from tui.project_folder.environment_selection import SelectedEnvironment
from tui.services.environment_service import EnvironmentService
from tui.services.teardown import DEMO_FILE, GENERATOR, event_folders, find_generator

if TYPE_CHECKING:
    from core.project.model import Project

CHANGES = ("comment", "column", "filter", "window", "rename", "function", "code")

CHILD_S = 120.0
SERVERS_S = 1800.0
"""Timeout for the start of a scenario's servers with the download of their jars, in seconds."""

MEASURE_S = 3600.0
"""Timeout for the measurement of one scenario, in seconds."""

GENERATOR_S = 60.0
"""Timeout for the generator's start, in seconds.

A start usually takes 1 s, but 10 s were too short on a busy machine.
"""

ROWS_USUAL_S = 120.0
ROUND_USUAL_S = 40.0

QUIET_S = 3.0
"""A round ends after this many seconds without a batch or lag. The last round waits one trigger interval longer."""

_CLONE = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class SettledRound:
    """A round of closing events, which advance watermarks past open windows, once all statements have processed it."""

    number: int
    took_s: float
    closed_when_watermark_reaches: str


def default_folder(cwd: str, scenario: int | None = None) -> str:
    """Return the demo folder that contains `cwd`, or else the path of a new demo folder.

    If a scenario is requested, folders of other demos are ignored. A new folder is `headgate-demo`, or
    `headgate-scenario-N`, in `cwd`, or next to the clone of Headgate if `cwd` is inside the clone.
    """
    here = Path(cwd).resolve()
    for folder in (here, *here.parents):
        if (folder / DEMO_FILE).is_file() and scenario in (None, scenario_of(str(folder))):
            return str(folder)
    inside = here == _CLONE or _CLONE in here.parents
    return str((_CLONE.parent if inside else here) / (f"headgate-scenario-{scenario}" if scenario else "headgate-demo"))


def copy_sample(
    folder: str, environ: Mapping[str, str], *, format: str = "", scenario: int | None = None
) -> dict[str, Any]:
    """Copy the sample project with its tables in `format`, or a scenario, unless the folder already contains a copy.

    Raises Refused if the folder contains anything else.
    """
    words = ["--scenario", str(scenario)] if scenario else ["--format", format] if format else []
    return run_demo_child(["--copy", folder, *words], environ)


def scenario_of(folder: str) -> int | None:
    """Return the number of the scenario in a folder; None if it contains the sample without a database, or no demo."""
    with suppress(OSError, ValueError, AttributeError):
        number = json.loads(Path(folder, DEMO_FILE).read_text()).get("scenario")
        return number if isinstance(number, int) else None
    return None


def start_servers(folder: str, environ: Mapping[str, str], progress: ProgressCallback) -> list[str]:
    """Start the servers of a scenario that are not running, and return their names.

    The first start downloads their jars, which takes minutes. Raises HeadgateError if a server cannot be started.
    """
    words = ["--start-servers", "--project", folder]
    return list(run_demo_child(words, environ, seconds=SERVERS_S, progress=progress)["started"])


def run_demo_child(
    words: list[str],
    environ: Mapping[str, str],
    *,
    seconds: float = CHILD_S,
    progress: ProgressCallback | None = None,
) -> dict[str, Any]:
    """Run `pipelines.demo` with the arguments `words` and return its JSON answer. An error in the answer is raised.

    `progress` is called several times a second with a description of what the child is waiting for.
    """
    return last_answer(GENERATOR, words, environ, task="the demo", seconds=seconds, progress=progress)


def start_generator(
    place: SelectedEnvironment,
    environ: Mapping[str, str],
    *,
    rate: float | None,
    log: str,
    work: Sequence[str] = (),
) -> bool:
    """Start the generator. Returns False if it was already running.

    `work` contains the arguments for a scenario's application, which changes the scenario's database. Raises
    HeadgateError if the generator exits immediately, or does not start in time.
    """
    if find_generator(place) is not None:
        return False
    command = os_processes.module_command(GENERATOR, *event_folders(place), *work)
    if rate is not None:
        command += ["--rate", str(rate)]
    started = os_processes.start_detached(command, environ, log)
    ends_at = time.monotonic() + GENERATOR_S
    while find_generator(place) is None:
        if started.poll() is not None:
            raise HeadgateError("the generator exited immediately", remedy=f"see its log: {log}")
        if time.monotonic() > ends_at:
            raise HeadgateError(
                f"the generator has not started within {GENERATOR_S:.0f} s", remedy=f"see its log: {log}"
            )
        time.sleep(0.02)
    return True


def wait_for_rows(
    operations: EnvironmentService,
    expected: frozenset[str],
    *,
    tell: Callable[[StatementLine], None],
    progress: ProgressCallback,
    seconds: float,
) -> None:
    """Wait until all `expected` tables have processed rows.

    `tell` is called once for each table. Raises HeadgateError if a statement fails, or after `seconds`.
    """
    began = time.monotonic()
    told: set[str] = set()
    version = -1
    while True:
        lines = [line for line in operations.snapshot().serving if not line.external]
        for line in lines:
            if has_processed(line) and line.table not in told:
                told.add(line.table)
                tell(line)
        waiting = sorted(expected - told)
        if not waiting:
            return
        failed = [line for line in lines if line.table in waiting and line.state == State.FAILED]
        elapsed = time.monotonic() - began
        if failed:
            raise HeadgateError(f"{failed[0].table} failed: {failed[0].error_class}", remedy="headgate events")
        if elapsed > seconds:
            names = ", ".join(waiting[:5])
            raise HeadgateError(f"no rows after {elapsed:.0f} s in {names}", remedy="headgate ls, headgate events")
        detail = f"{len(expected) - len(waiting)} of {len(expected)}, waiting for {waiting[0]}"
        progress(WaitProgress("rows in every statement", elapsed, ROWS_USUAL_S, detail))
        version = operations.wait_for_change(version, 0.5)


def has_processed(line: StatementLine) -> bool:
    """True if a running statement has committed a batch. Spark commits no batch before there are input rows."""
    return line.state == State.RUNNING and line.batch is not None and line.committed_at is not None


def rounds_of(project: "Project") -> int:
    """Return how many closing rounds are needed: one more than the most stateful statements in any chain."""
    depth: dict[str, int] = {}

    def measure(name: str) -> int:
        if name not in depth:
            table = project.tables.get(name)  # type: ignore[call-overload]  # A str that may not be a TableName.
            parsed = table.parsed if table else None
            depth[name] = 0
            if parsed is not None:
                parents = [measure(read.table) for read in parsed.reads if read.streaming]
                depth[name] = max(parents, default=0) + parsed.stateful
        return depth[name]

    return max((measure(name) for name in project.tables), default=0) + 1


def settle_round(
    operations: EnvironmentService,
    environ: Mapping[str, str],
    progress: ProgressCallback,
    *,
    last: bool,
    seconds: float,
) -> SettledRound:
    """Write one round of closing events and wait until all statements have processed it.

    Only the last round waits for longer than the longest trigger interval. All earlier rounds may overlap, because they
    advance the same watermarks. Raises HeadgateError if the round cannot be written, or is not processed within
    `seconds`.
    """
    began = time.monotonic()
    answer = run_demo_child(["--settle", *event_folders(operations.place), "--rounds", "1"], environ)
    landed_at = time.time()
    landed = answer["rounds"][0]
    quiet_s = longest_trigger_s(operations) + QUIET_S if last else QUIET_S
    what = f"closing round {landed['number']}"
    wait_for_quiet(operations, landed_at, progress, quiet_s=quiet_s, seconds=seconds, what=what)
    return SettledRound(int(landed["number"]), time.monotonic() - began, str(landed["closed_when_watermark_reaches"]))


def wait_for_quiet(
    operations: EnvironmentService,
    since: float,
    progress: ProgressCallback,
    *,
    quiet_s: float,
    seconds: float,
    what: str,
) -> None:
    """Wait until all statements have caught up and no statement has committed a batch for `quiet_s` seconds.

    A statement has caught up if its lag, measured after `since`, is zero. Raises HeadgateError after `seconds`.
    """
    began = quiet_from = time.monotonic()
    before: tuple[tuple[str, int | None], ...] = ()
    while True:
        lines = tuple(
            line for line in operations.snapshot().serving if not line.external and line.wanted == WantedState.RUNNING
        )
        batches = tuple((line.table, line.batch) for line in lines)
        behind = [line for line in lines if not _is_settled(line, since)]
        now = time.monotonic()
        if behind or batches != before:
            quiet_from, before = now, batches
        elif now - quiet_from >= quiet_s:
            return
        if now - began > seconds:
            names = ", ".join(f"{line.table} ({line.state}, lag {line.lag_rows})" for line in behind[:4])
            raise HeadgateError(
                f"not settled after {seconds:.0f} s: {names or 'batches are still running'}", remedy="headgate lag"
            )
        detail = f"{len(behind)} behind" if behind else "quiet"
        progress(WaitProgress(what, now - began, ROUND_USUAL_S, detail))
        time.sleep(0.25)


def not_closed(operations: EnvironmentService, reached: str) -> list[str]:
    """Return the stateful statements whose watermark is below `reached`, so that their windows may still be open."""
    measured = {(m.table, m.version): m for m in operations.reader.measurements()}
    found = []
    for d in operations.reader.deployments():
        if d.active and d.stateful and d.wanted == WantedState.RUNNING:
            measurement = measured.get((d.table, d.version))
            if measurement and measurement.watermark and measurement.watermark < reached:
                found.append(f"{d.table} (watermark {measurement.watermark})")
    return sorted(found)


def longest_trigger_s(operations: EnvironmentService) -> float:
    """Return the longest trigger interval of all deployed statements, in seconds; 10 if none is deployed."""
    return max((trigger_s(d.trigger) for d in operations.reader.deployments()), default=10.0)


def is_demo_folder(folder: str) -> bool:
    """True if a folder contains a copy of the demo."""
    return os.path.isfile(os.path.join(folder, DEMO_FILE))


def _is_settled(line: StatementLine, since: float) -> bool:
    behind = line.lag_rows if line.lag_rows is not None else line.lag_files
    return line.state == State.RUNNING and behind == 0 and line.at is not None and line.at >= since
