"""Scenarios of the demo on real servers, started and ended by the commands that a user types."""

import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from tempfile import mkdtemp

import pytest
from live_project import alive, until
from scenario_folder import ScenarioFolder

from pipelines.local_pool.process_locks import processes_with

pytestmark = [pytest.mark.spark, pytest.mark.drill, pytest.mark.long]


@pytest.fixture
def scenario(request: pytest.FixtureRequest) -> Iterator[ScenarioFolder]:
    root = Path(mkdtemp(prefix="headgate-scenario-"))
    root.chmod(0o755)
    found = ScenarioFolder(root, {"HEADGATE_MEASURE_S": "1"}, number=request.param)
    try:
        yield found
    finally:
        if found.folder.is_dir():
            found.down()
        shutil.rmtree(root)


@pytest.mark.parametrize("scenario", [3], indirect=True)
def test_a_killed_database_is_started_again_and_down_ends_every_process(scenario: ScenarioFolder) -> None:
    assert scenario.begin()["statements"] == 1
    until(lambda: scenario.count() > 0, 60, "there are pizzas to bake")
    killed = scenario.servers()["PostgreSQL"]
    os.kill(killed, signal.SIGKILL)
    until(lambda: not alive(killed), 10, "the database is dead")
    scenario.begin()
    marker = json.loads((scenario.folder / "servers/servers.json").read_text())["marker"]
    before, pids = scenario.count(), {*scenario.servers().values(), scenario.agent_pid(), scenario.pool_pid()}
    until(lambda: scenario.count() > before, 60, "there are more pizzas to bake")
    assert killed not in pids and processes_with("HEADGATE_SERVER", marker)
    assert "PostgreSQL" in scenario.done("down", "--json")
    assert not [pid for pid in pids if alive(pid)] and not processes_with("HEADGATE_SERVER", marker)


@pytest.mark.parametrize("scenario", [6], indirect=True)
def test_servers_that_were_killed_are_started_again_and_nothing_else_is(scenario: ScenarioFolder) -> None:
    scenario.begin()
    before = scenario.servers()
    assert [*before] == ["PostgreSQL", "Kafka", "Kafka Connect"]
    os.kill(before["Kafka"], signal.SIGKILL)
    os.kill(before["Kafka Connect"], signal.SIGKILL)
    until(lambda: not alive(before["Kafka Connect"]), 10, "the worker is dead")
    scenario.begin()
    after, tickets = scenario.servers(), scenario.count()
    assert {name for name in after if after[name] != before[name]} == {"Kafka", "Kafka Connect"}
    until(lambda: scenario.count() > tickets, 120, "there are more pizzas to bake")


@pytest.mark.parametrize("scenario", range(1, 7), indirect=True)
def test_each_scenario_shows_what_its_way_can_show(scenario: ScenarioFolder) -> None:
    """Streams of whole states are exact and a view is never wrong, but lookups after fast changes are wrong."""
    words = ("--scenario", str(scenario.number), "--transactions", "150", "--json")
    (found,) = json.loads(scenario.done("demo", "compare", str(scenario.root / "all"), *words))["scenarios"]
    print(found)
    assert found["states"] > 80 and found["p50_s"] > 0
    if scenario.number in (4, 5, 6):
        assert (found["right"], found["later"], found["wrong"], found["missed"]) == (found["states"], 0, 0, 0)
    elif scenario.number == 3:
        assert found["wrong"] > 0
    else:
        assert found["missed"] > 0 and found["right"] > 0
    assert scenario.number != 2 or found["wrong"] == 0
    assert not list(scenario.root.glob("all/*")), "the folder of the scenario is deleted"
