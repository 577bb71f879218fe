"""What the ResourceManager of Hadoop 3.4.2 says about applications, in a process of its own. Takes ten seconds.

In the process of a mini cluster, its REST API does not answer, because the web interfaces of several daemons share
one filter there.
"""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from kafka_broker import jars_of
from mini_hdfs import ARTIFACTS
from tiny_project import until

from core.observed.cluster_manager import ManagerWord
from pipelines.agent.pool.cluster_managers import YarnManager
from pipelines.demo.servers import java_program
from pipelines.local_pool.detached_servers import free_port

pytestmark = [pytest.mark.drill, pytest.mark.long]

ADDRESSES = ("address", "scheduler.address", "resource-tracker.address", "admin.address", "webapp.address")
QUEUES = {"root.queues": "default", "root.default.capacity": "100"}


def write_settings(path: Path, values: dict[str, str]) -> None:
    lines = (f"<property><name>{name}</name><value>{value}</value></property>" for name, value in values.items())
    path.write_text(f"<configuration>{''.join(lines)}</configuration>")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("manager")
    places = {f"yarn.resourcemanager.{name}": f"127.0.0.1:{free_port()}" for name in ADDRESSES}
    user = {
        "hadoop.http.staticuser.user": "root",
        "hadoop.http.filter.initializers": "org.apache.hadoop.http.lib.StaticUserWebFilter",
    }
    write_settings(folder / "core-site.xml", user)
    write_settings(folder / "yarn-site.xml", places)
    queues = {f"yarn.scheduler.capacity.{name}": value for name, value in QUEUES.items()}
    write_settings(folder / "capacity-scheduler.xml", queues)
    jars = ":".join(f"{jars_of(artifact)}/*" for artifact in ARTIFACTS)
    main = "org.apache.hadoop.yarn.server.resourcemanager.ResourceManager"
    opened = ["--add-opens", "java.base/java.lang=ALL-UNNAMED"]
    with open(folder / "log", "wb") as log:
        words = [java_program(), "-Xmx300m", f"-Djava.io.tmpdir={folder}", *opened, "-cp", f"{folder}:{jars}", main]
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=folder)
    found = f"http://{places['yarn.resourcemanager.webapp.address']}"
    try:
        until(lambda: answers(found), 120, "it answers")
        yield found
    finally:
        process.kill()
        process.wait()


def answers(page: str) -> bool:
    try:
        ask(page, "/info")
        return True
    except OSError:
        return False


def ask(page: str, path: str, method: str = "GET", body: object = None) -> bytes:
    content = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    with urlopen(Request(f"{page}/ws/v1/cluster{path}", content, headers, method=method), timeout=10) as answer:
        return bytes(answer.read())


def test_an_application_runs_then_is_killed_and_another_one_is_not_known(page: str) -> None:
    manager = YarnManager(page)
    id = json.loads(ask(page, "/apps/new-application", "POST"))["application-id"]
    command = {"commands": {"command": "true"}}
    asked = {"application-id": id, "application-type": "SPARK", "am-container-spec": command}
    ask(page, "/apps", "POST", asked | {"resource": {"memory": 256, "vCores": 1}})
    until(lambda: manager.word(id).kind is ManagerWord.RUNS, 30, "it is listed")
    assert f"or with yarn application -kill {id}, " in str(manager.word(id).remedy)
    figures = manager.figures(id)
    assert figures.application is not None and (figures.alive, figures.application.has_ended) == (0, False)
    ask(page, f"/apps/{id}/state", "PUT", {"state": "KILLED"})
    until(lambda: manager.word(id).kind is ManagerWord.ENDED, 30, "it has ended")
    assert f"{id} is KILLED since 20" in str(manager.word(id))
    ended = manager.figures(id).application
    assert ended is not None and (ended.containers, ended.cores, ended.memory_mib) == (0, 0, 0)
    assert manager.word(id.replace("_0001", "_0002")).kind is ManagerWord.UNKNOWN
