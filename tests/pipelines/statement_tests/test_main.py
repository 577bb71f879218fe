"""The process that runs cases leaves neither server nor folder, even if its caller is killed."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from core.sql.python_jobs import PythonJob
from core.statement_tests.request import CaseRequest, settings_of_meaning
from pipelines.demo.event_simulation import FOLDER
from pipelines.local_pool.process_locks import process_start
from pipelines.python_jobs.job_environments import JobEnvironments
from pipelines.python_jobs.job_faults import JobFault
from pipelines.statement_tests.__main__ import Packages

ASKER = """
import json, subprocess, sys
child = subprocess.Popen([sys.executable, "-I", "-m", "pipelines.statement_tests", sys.argv[1]], stdin=subprocess.PIPE,
                         stdout=subprocess.PIPE, start_new_session=True)
child.stdin.write(sys.stdin.buffer.readline())
child.stdin.flush()
for line in child.stdout:
    print(line.decode(), end="", flush=True)
sys.stdin.buffer.read()
"""


def request() -> CaseRequest:
    found = (path for path in FOLDER.rglob("*") if path.suffix in (".sql", ".yml", ".csv"))
    texts = {path.relative_to(FOLDER).as_posix(): path.read_text() for path in found}
    tests = {path: text for path, text in texts.items() if "/tests/" in path and path.startswith("pipelines/")}
    cases = tuple(sorted(path for path in tests if path.endswith(".yml")))
    declaring = {path: text for path, text in texts.items() if path not in tests}
    return CaseRequest(declaring, tests, cases, settings=settings_of_meaning(()))


def started(folder: Path) -> "subprocess.Popen[str]":
    asker = subprocess.Popen(
        [sys.executable, "-c", ASKER, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert asker.stdin is not None
    asker.stdin.write(json.dumps(request().as_json()) + "\n")
    asker.stdin.flush()
    return asker


def server(folder: Path) -> tuple[int, str]:
    record = json.loads((folder / "pool.json").read_text())
    return record["pid"], record["started"]


def until(condition: Callable[[], object]) -> None:
    ends_at = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < ends_at, "server or folder is left"
        time.sleep(0.1)


@pytest.mark.spark
@pytest.mark.drill
def test_a_server_ends_with_a_caller_that_is_killed(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    asker = started(folder)
    assert asker.stdout is not None
    for line in asker.stdout:
        assert '"error"' not in line and '"done"' not in line, line
        if "fct_kitchen_load" in line:
            break
    pid, began = server(folder)
    assert process_start(pid) == began
    os.kill(asker.pid, signal.SIGKILL)
    asker.wait()
    until(lambda: process_start(pid) != began and not folder.exists())


def test_each_list_of_packages_is_installed_once_and_one_that_cannot_be_is_a_fault_of_its_jobs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[str, ...]] = []

    def python_for(self: JobEnvironments, requirements: tuple[str, ...], file: str, cancelled: object) -> object:
        asked.append(requirements)
        return "/python" if requirements == ("numpy",) else JobFault.REQUIREMENTS.of(file=file, message="none found")

    monkeypatch.setattr(JobEnvironments, "python_for", python_for)
    plain, numbers, unknown = (PythonJob("a", (), "", packages) for packages in ((), ("numpy",), ("nowhere",)))
    packages = Packages("/python")
    for _ in range(2):
        list(packages.install([plain, numbers, unknown]))
    assert asked == [("numpy",), ("nowhere",)]
    assert packages.fault([plain, numbers]) is None
    assert str(packages.fault([numbers, unknown])) == "the requirements of job.a.py cannot be installed: none found"
    assert list(Packages("").install([numbers])) == [], "the build of the job refuses it"
