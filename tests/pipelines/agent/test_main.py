"""The agent as a program: what it refuses before it creates anything."""

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from ledger_rows import deployment_row, environment_row, pool_row
from live_project import until

from core.model.errors import InvalidProject
from pipelines.agent import __main__ as agent_main
from pipelines.agent.__main__ import LogLines
from pipelines.agent.requests.caller_roles_and_policy import record_first
from state.ledger import LedgerReader, create_or_open
from state.migrations import SCHEMA_VERSION
from tests.core.project_reader.test_loader import MANIFEST
from tui.agent_client.agent_process import find_agent_process, is_listening
from tui.agent_client.socket_client import AgentClient
from tui.project_folder.environment_selection import select_environment


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("folder", "data", "said"),
    [("a%20b", "data", "%20"), ("plain", "../moved%2Faway", "%2F"), ("${x}", "data", "{")],
    ids=["of the project", "named in headgate.yml", "braces"],
)
def test_a_data_folder_that_spark_would_misread_is_refused(folder: str, data: str, said: str, tmp_path: Path) -> None:
    project = tmp_path / folder
    project.mkdir()
    (project / "headgate.yml").write_text(MANIFEST.replace("dev: {}", f"dev: {{data: '{data}'}}"))
    command = [sys.executable, "-m", "pipelines.agent", "--project", str(project), "--env", "dev"]
    home = tmp_path / "home"
    environ = {**os.environ, "HEADGATE_HOME": str(home)}
    found = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60)
    assert found.returncode != 0 and "which Spark takes for something else; move the project" in found.stderr
    assert f"has {said} in its name" in found.stderr
    assert not home.exists()


@pytest.mark.parametrize(
    ("pools", "said"),
    [
        ("{pool: {cores: 1}, pools: {small: {}, large: {}}}", "pools must be left out beside pool"),
        ("{pool: {url: 'sc://spark:15002', token: geheim}}", "pool.token must be a reference to a secret"),
        ("{pools: {small: {}, Small: {cores: x}}}", ", and 1 more problem of its pools; "),
    ],
)
def test_pools_with_errors_are_refused(pools: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "headgate.yml").write_text(MANIFEST.replace("dev: {}", f"dev: {pools}"))
    with pytest.raises(InvalidProject) as refused:
        agent_main._declared(tmp_path, "dev")
    assert said in f"{refused.value.summary}; {refused.value.remedy}" and refused.value.exit_code == 2
    assert "headgate.yml:" in refused.value.summary and "geheim" not in str(refused.value)


def test_errors_elsewhere_in_headgate_yml_do_not_keep_the_agent_from_its_pools(tmp_path: Path) -> None:
    (tmp_path / "headgate.yml").write_text(MANIFEST.replace("dev: {}", "dev: {}\n  prod: {pool: {cores: x}}"))
    assert agent_main._declared(tmp_path, "dev")[1].pool.cores == 2


def test_foreign_text_does_not_start_a_second_line_of_the_log() -> None:
    try:
        raise ValueError("two\n\x1b[2J")
    except ValueError:
        failed = sys.exc_info()
    record = logging.LogRecord("a", logging.INFO, "", 0, "%s", ("one\nINFO all is well\u202e\udce9",), failed)
    first, *below = LogLines("%(levelname)s %(message)s").format(record).split("\n")
    assert first == r"INFO one\x0aINFO all is well\u202e\xe9"
    assert below[0] == "Traceback (most recent call last):" and below[-1] == r"\x1b[2J"


SERVED = MANIFEST.replace("dev: {}", "dev: {pool: {name: away, url: 'sc://127.0.0.1:9'}}")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of two megabytes, which only root may mount."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "none", str(disk)], capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def fill(disk: Path) -> Path:
    filling = disk / "filling"
    with suppress(OSError), open(filling, "wb", buffering=0) as file:
        while True:
            file.write(b"x" * 512)
    return filling


@pytest.mark.sampled
@pytest.mark.parametrize("was_killed", [False, True], ids=["ended", "killed"])
def test_an_agent_that_starts_on_a_full_disk_takes_stops_and_recovers(
    was_killed: bool, small_disk: Path, tmp_path: Path
) -> None:
    (tmp_path / "headgate.yml").write_text(SERVED)
    environ = {**os.environ, "HEADGATE_HOME": str(small_disk / "home")}
    place = select_environment(environ, str(tmp_path))
    facts = environment_row(
        project_id=place.project_id,
        project=place.project,
        environment=place.environment,
        pools=(pool_row(state="off"),),
    )
    before = create_or_open(Path(place.where.ledger), facts)
    before.put_deployment(deployment_row("a", folder=f"{place.data}/t", checkpoint=f"{place.data}/c"))
    record_first(before, str(tmp_path), place.environment, 1.0)
    Path(place.where.lock).write_text("1")
    if not was_killed:
        before.close()
    filling = fill(small_disk)
    command = [sys.executable, "-m", "pipelines.agent", "--project", str(tmp_path), "--env", "dev"]
    # If this were a pipe, it would be full after 64 kB of messages about failures to log.
    with open(tmp_path / "output", "w") as output:
        agent = subprocess.Popen(command, env=environ, stdout=output, stderr=subprocess.STDOUT)
    client = AgentClient(place.where.socket, ledger=SCHEMA_VERSION)
    try:
        until(lambda: is_listening(client) or agent.poll() is not None, 60, "the agent listens")
        assert agent.poll() is None, (tmp_path / "output").read_text()
        said = client.call("stop", {"tables": ["a"]}, confirm="yes", line="headgate stop a")
        assert [found["table"] for found in said["statements"]] == ["a"]
        found = find_agent_process(place)
        assert found is not None and found.pid == agent.pid
        filling.unlink()
        with LedgerReader(Path(place.where.ledger)) as reader:
            until(lambda: reader.facts().agent_pid == agent.pid, 30, "the ledger names the agent")
            until(lambda: reader.deployments()[0].wanted == "stopped", 30, "the ledger has the stop")
    finally:
        agent.terminate()
        agent.wait(60)
        if was_killed:
            before.close()
