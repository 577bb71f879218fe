"""Attempts of a confined process to leave its folder, in real processes without Spark."""

import ctypes
import json
import os
import platform
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from core.ports.spark import never
from pipelines.python_jobs import confinement, job_builder
from pipelines.python_jobs.job_builder import JobLimits, ProcessEnd, run_confined

LANDLOCK = ctypes.CDLL(None).syscall(444, None, 0, 1) if sys.platform == "linux" else 0
"""Version of Landlock in this kernel."""
confinable = pytest.mark.skipif(LANDLOCK < 6 or platform.machine() != "x86_64", reason="this kernel cannot confine")

ATTEMPTS = """
import importlib.util, json, os, socket, subprocess, sys
given = json.loads(sys.argv[1])
spec = importlib.util.spec_from_file_location("confinement", given["confinement"])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
lacking = module.confine(readable=[sys.prefix, sys.base_prefix, "/usr", "/lib", "/lib64"], writable=[given["mine"]],
                         port=given["port"])
def fork_twice():
    if os.fork() == 0:
        os.setsid()
        os.fork()
        os._exit(0)
def udp():
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", 9))
def thread():
    import threading
    done = []
    running = threading.Thread(target=lambda: done.append(1))
    running.start()
    running.join()
    assert done
attempts = {
    "write": lambda: open(given["project"] + "/x", "w"), "read": lambda: open(given["project"] + "/ledger.db").read(),
    "remove": lambda: os.remove(given["project"] + "/ledger.db"), "mode": lambda: os.chmod(given["project"], 0o777),
    "list": lambda: os.listdir(given["project"]), "fork": fork_twice, "program": lambda: subprocess.run(["/bin/true"]),
    "socket": lambda: socket.socket(socket.AF_UNIX).connect(given["socket"]), "udp": udp,
    "other port": lambda: socket.create_connection(("127.0.0.1", given["other"]), 1),
    "kill": lambda: os.kill(given["pid"], 0), "environment": lambda: open("/proc/%s/environ" % given["pid"]).read(),
    "proxy port": lambda: socket.create_connection(("127.0.0.1", given["port"]), 1), "thread": thread,
    "own folder": lambda: open(given["mine"] + "/y", "w").write("y"), "own pid": lambda: os.kill(os.getpid(), 0),
}
possible = []
for name, attempt in attempts.items():
    try:
        attempt()
        possible.append(name)
    except OSError:
        pass
print(json.dumps([possible, lacking]))
"""


@confinable
def test_a_confined_process_reaches_only_its_folder_and_its_proxy(tmp_path: Path) -> None:
    project, mine = tmp_path / "project", tmp_path / "mine"
    for each in (project, mine):
        each.mkdir()
    (project / "ledger.db").write_text("secret")
    with socket.socket(socket.AF_UNIX) as agent, socket.socket() as proxy, socket.socket() as other:
        agent.bind(f"{tmp_path}/agent.sock")
        agent.listen()
        for each in (proxy, other):
            each.bind(("127.0.0.1", 0))
            each.listen()
        given = {"confinement": confinement.__file__, "mine": str(mine), "project": str(project), "pid": os.getpid(),
                 "port": proxy.getsockname()[1], "other": other.getsockname()[1],
                 "socket": f"{tmp_path}/agent.sock"}  # fmt: skip
        done = subprocess.run(
            [sys.executable, "-I", "-c", ATTEMPTS, json.dumps(given)], capture_output=True, text=True, timeout=30
        )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [["proxy port", "thread", "own folder", "own pid"], []]
    assert (project / "ledger.db").read_text() == "secret" and [*project.iterdir()] == [project / "ledger.db"]


def ran(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    program: str,
    limits: JobLimits,
    cancelled: Callable[[], bool] = never,
) -> tuple[ProcessEnd, str]:
    """Run a program as the process of a job; return how it ended, and its log."""
    (tmp_path / "program.py").write_text(program)
    monkeypatch.setattr(job_builder, "_PROGRAM", tmp_path / "program.py")
    folder = tmp_path / "headgate-job-x"
    folder.mkdir()
    end = run_confined(folder, sys.executable, tmp_path / "log", limits, cancelled)
    return end, (tmp_path / "log").read_text("utf-8", "replace")


def test_a_process_that_prints_for_ever_ends_with_a_bounded_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    end, text = ran(tmp_path, monkeypatch, "while True: print('x' * 1000)", JobLimits(output=100_000))
    assert end.talkative and not end.late and end.code == -signal.SIGKILL
    assert 100_000 < len(text) < 400_000


def test_a_hanging_process_ends_with_those_that_left_its_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = (
        "import os, time\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork() == 0:\n"
        f"        open('{tmp_path}/headgate-job-x/started', 'w')\n"
        f"        open('{tmp_path}/escaped', 'w').write(str(os.getpid()))\n"
        "        time.sleep(100)\n"
        "    os._exit(0)\n"
        f"while not (os.path.exists('{tmp_path}/escaped') and os.path.getsize('{tmp_path}/escaped')): pass\n"
        "os.close(1); os.close(2)\n"
        "time.sleep(100)\n"
    )
    end, _ = ran(tmp_path, monkeypatch, program, JobLimits(seconds=1))
    assert end.late
    escaped = Path(f"/proc/{(tmp_path / 'escaped').read_text()}/stat")
    ends_at = time.monotonic() + 10
    while escaped.exists() and escaped.read_text().split()[2] != "Z":
        assert time.monotonic() < ends_at, "a descendant of the job's process is still running"


def test_the_process_has_no_variables_descriptors_and_input_of_the_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", "secret")
    program = (
        "import os, sys\n"
        "print(sorted(os.environ), sorted(map(int, os.listdir('/proc/self/fd')))[:-1], sys.stdin.read(), os.getcwd())\n"
    )
    with open(tmp_path / "ledger.db", "w") as ledger:
        os.set_inheritable(ledger.fileno(), True)
        end, text = ran(tmp_path, monkeypatch, program, JobLimits())
    names = ["GRPC_ENABLE_FORK_SUPPORT", "HEADGATE_JOB", "HOME", "LANG", "PATH", "SPARK_CONNECT_MODE_ENABLED", "TMPDIR"]
    assert (end.code, text.splitlines()[-1]) == (0, f"{names} [0, 1, 2]  {tmp_path}/headgate-job-x")


@confinable
def test_code_that_does_not_compile_is_reported_by_the_confined_process(tmp_path: Path) -> None:
    request = {
        "code": "def a(\n",
        "function": "a",
        "file": "job.a.py",
        "paths": [],
        "port": 1,
        "limits": {"NOFILE": 64},
        "parent": os.getpid(),
    }
    (tmp_path / "request.json").write_text(json.dumps(request))
    assert run_confined(tmp_path, sys.executable, tmp_path / "log", JobLimits()).code == 0
    found = json.loads((tmp_path / "result.json").read_text())
    assert found == {"fault": "SYNTAX", "line": 1, "message": "'(' was never closed", "unconfined": []}


def test_a_process_at_its_limit_of_cpu_is_distinguished_from_one_that_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = (
        "import importlib.util\n"
        f"spec = importlib.util.spec_from_file_location('confinement', {confinement.__file__!r})\n"
        "module = importlib.util.module_from_spec(spec)\n"
        "spec.loader.exec_module(module)\n"
        "module.limit({'CPU': 1})\n"
        "while True: pass\n"
    )
    assert ran(tmp_path, monkeypatch, program, JobLimits())[0].code == -signal.SIGXCPU


def test_a_cancelled_build_ends_at_once_although_its_code_has_closed_its_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = tmp_path / "headgate-job-x/begun"
    program = f"import os, time\nos.close(1); os.close(2)\nopen({str(begun)!r}, 'w')\ntime.sleep(100)\n"
    end, _ = ran(tmp_path, monkeypatch, program, JobLimits(seconds=50), begun.exists)
    assert end.cancelled and not end.late and end.code == -signal.SIGKILL


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can confine")
@pytest.mark.parametrize(("version", "machine"), [(LANDLOCK, platform.machine()), (3, "x86_64"), (-1, "aarch64")])
def test_what_cannot_be_prevented_is_known_without_confining_the_process(
    version: int, machine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(confinement, "_landlock_version", lambda: version)
    monkeypatch.setattr(platform, "machine", lambda: machine)
    expected = ("access to files", "connections") if version < 1 else ("connections",) if version < 4 else ()
    assert confinement.unpreventable() == (*expected, *(() if machine == "x86_64" else ("new processes",)))
    subprocess.run([sys.executable, "-c", ""], check=True)


@confinable
def test_the_prediction_is_what_a_process_that_is_confined_reports() -> None:
    code = f"import sys; sys.path.insert(0, {str(Path(confinement.__file__).parent)!r}); import confinement; "
    code += "said = confinement.unpreventable(); print(said == confinement.confine(readable=[], writable=[], port=1))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "True\n"
