"""headgate test --integration on real Spark: on a shared server, with a wrong row, and after kill -9."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tiny_project import Tiny, alive, tiny_that_runs, until

pytestmark = [pytest.mark.spark, pytest.mark.drill, pytest.mark.long]

CASE = """given:
  - landed: [{id: 1, kind: x}, {id: 2, kind: y}]
  - landed: [{id: 3}]
expect:
  marked: [{id: 1, kind: X}, {id: 2, kind: Y}, {id: 3}]
"""


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tiny]:
    with tiny_that_runs(tmp_path_factory.mktemp("headgate"), landed=0) as found:
        cases = found.folder / "pipelines/facts/p/integration"
        cases.mkdir()
        (cases / "marked.yml").write_text(CASE)
        (cases / "wrong.yml").write_text(CASE.replace("kind: Y", "kind: Z").replace("marked:", "kept:"))
        yield found


def left(tiny: Tiny) -> list[Path]:
    return sorted((tiny.root / "home").glob("ephemeral/*"))


def test_a_case_passes_a_wrong_one_shows_its_rows_and_nothing_is_left(tiny: Tiny) -> None:
    done = tiny.run("test", "--integration", "--pool", "dev", "--json")
    found = json.loads(done.stdout)
    assert done.returncode == 1, done.stderr
    results = {each["name"]: each for each in found["results"]}
    assert results["p/marked"]["outcome"] == "passed"
    wrong = results["p/wrong"]
    assert (wrong["outcome"], wrong["table"], wrong["difference"]["missing"]) == ("failed", "kept", 2)
    assert all(not each["left"] and each["server"] for each in found["environments"]) and not left(tiny)
    assert tiny.statements()["kept"]["state"] == "absent", "nothing of the shared environment was touched"


def test_what_a_killed_command_leaves_is_deleted_by_the_next_one(tiny: Tiny) -> None:
    command = [str(Path(sys.executable).with_name("headgate")), "test", "--integration", "marked", "--pool", "dev"]
    environ = {**os.environ, "HEADGATE_HOME": str(tiny.root / "home")}
    killed = subprocess.Popen(command, cwd=tiny.folder, env=environ, stderr=subprocess.DEVNULL)
    until(lambda: any(each.glob("home/*/*/agent.lock") for each in left(tiny)), 60, "an agent has begun")
    lock = next(left(tiny)[0].glob("home/*/*/agent.lock"))
    until(lambda: lock.read_text().strip(), 60, "the agent has its lock")
    agent = int(lock.read_text())
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    assert alive(agent) and len(left(tiny)) == 1
    assert left(tiny)[0].name in tiny.run("doctor").stdout
    done = tiny.run("test", "--integration", "marked", "--pool", "dev")
    assert done.returncode == 0 and "left by a command that was killed" in done.stderr, done.stderr
    assert not alive(agent) and not left(tiny)


def test_a_killed_server_changes_no_row(tiny: Tiny) -> None:
    done = tiny.run("test", "--integration", "--scenario", "restart,recovery", "marked", "--pool", "dev", "--json")
    assert [each["outcome"] for each in json.loads(done.stdout)["results"]] == ["passed"] * 2, done.stderr
