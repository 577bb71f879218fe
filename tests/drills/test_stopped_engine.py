"""A Spark Connect server whose SparkContext has stopped while its process lives: reported, replaced, and resumed."""

import os
import signal
import subprocess
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest
import tiny_project
from tiny_project import Tiny, alive, tiny_that_runs, until

from core.model.errors import PoolUnreachable
from core.project.model import Pool
from pipelines.local_pool.connect_server import LocalPool
from pipelines.local_pool.java_and_spark import find_java
from pipelines.spark_connect.session import Session

pytestmark = [pytest.mark.spark, pytest.mark.drill, pytest.mark.long]

STOP = 'object Stop { def now(): String = { org.apache.spark.SparkContext.getOrCreate().stop(); "stopped" } }'
NOTICED_S = 20.0
"""Seconds within which the useless server must be gone."""


def compiled(folder: Path) -> Path:
    """Return a folder with a class that stops the SparkContext, compiled by Spark's own Scala compiler."""
    folder.mkdir()
    (folder / "Stop.scala").write_text(STOP)
    jars = f"{Path(pyspark.__file__).parent}/jars/*"
    command = [find_java().path, "-cp", jars, "scala.tools.nsc.Main", "-usejavacp", "-d", str(folder)]
    subprocess.run([*command, str(folder / "Stop.scala")], check=True, timeout=120)
    return folder


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tiny]:
    classes = compiled(tmp_path_factory.mktemp("stop") / "classes")
    conf = f"conf: {{spark.driver.extraClassPath: '{classes}', "
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiny_project, "HEAD", tiny_project.HEAD.replace("conf: {", conf))
        with tiny_that_runs(tmp_path_factory.mktemp("headgate"), landed=50) as found:
            assert found.apply(found.plan("--all")).returncode == 0
            until(lambda: states(found) == {"kept": "running", "marked": "running"}, 60, "both run")
            yield found


def states(tiny: Tiny) -> dict[str, str]:
    return {table: row["state"] for table, row in tiny.statements().items() if table != "landed"}


def stop_context(tiny: Tiny) -> None:
    """Stop the SparkContext from inside, as an error in one of Spark's threads would.

    The caller sees a stopped engine or, if the agent on a busy machine has already ended the server, none.
    """
    server = LocalPool(tiny.home(), Pool())
    session = Session(server.url, server.token, str(uuid.uuid4()))
    try:
        session.call(20, session.attach)
        with pytest.raises(PoolUnreachable):
            session.call(20, lambda: session.spark.sql("SELECT reflect('Stop', 'now')").collect())
    finally:
        session.close()


def replaced(tiny: Tiny, pid: int) -> float:
    """Return the seconds until the server was gone, and assert that nothing is reported as running without a pool."""
    began = time.monotonic()
    until(lambda: not alive(pid), NOTICED_S, "the server that runs nothing is ended")
    gone_s = time.monotonic() - began
    assert tiny.pool()[0] != "up"
    until(lambda: "running" not in states(tiny).values(), 5, "nothing is said to run while there is no pool")
    until(lambda: tiny.pool()[0] == "up", 90, "a new server is up")
    assert tiny.pool_pid() != pid
    return gone_s


def test_statements_continue_from_their_checkpoints_on_another_server(tiny: Tiny) -> None:
    pid = tiny.pool_pid()
    stop_context(tiny)
    print(f"the server was gone after {replaced(tiny, pid):.1f} s")
    tiny.land(10)
    until(lambda: tiny.ids("marked", 1) == list(range(1, tiny.landed + 1)), 90, "every row is there once")
    until(lambda: states(tiny) == {"kept": "running", "marked": "running"}, 30, "both run")
    assert not tiny.ledger("SELECT * FROM event WHERE summary LIKE '%→ failed%'")
    assert "is ended: the pool answers but cannot run anything" in (tiny.home() / "agent.log").read_text()


def test_a_stop_during_the_restart_wins(tiny: Tiny) -> None:
    pid = tiny.pool_pid()
    stop_context(tiny)
    asked = tiny.run("stop", "marked", "--confirm", "yes")
    assert asked.returncode in (0, 4), asked.stdout + asked.stderr
    replaced(tiny, pid)
    until(lambda: states(tiny) == {"kept": "running", "marked": "stopped"}, 60, "what was stopped is not started")


def test_the_next_agent_replaces_a_server_that_stopped_unobserved(tiny: Tiny) -> None:
    pid, agent = tiny.pool_pid(), tiny.agent_pid()
    os.kill(agent, signal.SIGKILL)
    until(lambda: not alive(agent), 10, "the agent is dead")
    stop_context(tiny)
    tiny.run("up")
    until(lambda: not alive(pid), NOTICED_S, "the server that runs nothing is ended")
    until(lambda: states(tiny) == {"kept": "running", "marked": "stopped"}, 120, "what is wanted running runs")
