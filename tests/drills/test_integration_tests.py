"""headgate test --integration on real Spark: on a shared server, with a wrong row, after kill -9 and after Ctrl-C."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
from tiny_project import Tiny, alive, tiny_that_runs, until

from core.project.ephemeral import PREFIX, RECORD_FILE
from tui.services.table_client import SparkServer, TableClient

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
    """Return the folders of ephemeral environments."""
    return sorted((tiny.root / "home").glob("ephemeral/*"))


def names(tiny: Tiny) -> tuple[str, ...]:
    """Return the names of ephemeral environments in the catalog of the shared server."""
    port = json.loads((tiny.home() / "pool.json").read_text())["port"]
    with closing(TableClient({"HEADGATE_HOME": str(tiny.root / "home")})) as access:
        access.use_server(SparkServer(f"sc://127.0.0.1:{port}", (tiny.home() / "pool.token").read_text()))
        return access.names(PREFIX)


def processes(tiny: Tiny) -> list[str]:
    """Return the processes whose arguments lead to an ephemeral environment."""
    found = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            words = place.read_bytes().decode(errors="replace")
            found += [words] if str(tiny.root / "home/ephemeral") in words else []
    return found


def agent_pid(tiny: Tiny) -> int:
    """Return the process id of the agent of an ephemeral environment; 0 if there is none."""
    for lock in (tiny.root / "home").glob("ephemeral/*/home/*/*/agent.lock"):
        with suppress(OSError, ValueError):
            return int(lock.read_text())
    return 0


def begun(tiny: Tiny, *words: str) -> subprocess.Popen[str]:
    """Begin an integration test on the shared server."""
    command = [str(Path(sys.executable).with_name("headgate")), "test", "--integration", *words, "--pool", "dev"]
    environ = {**os.environ, "HEADGATE_HOME": str(tiny.root / "home")}
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=tiny.folder, env=environ, stdout=pipe, stderr=pipe, text=True)


MOMENTS: dict[str, Callable[[Tiny], object]] = {
    "recorded": lambda tiny: [each for each in left(tiny) if (each / RECORD_FILE).is_file()],
    "agent": agent_pid,
    "names": lambda tiny: [*(tiny.root / "home").glob("ephemeral/*/data/checkpoints/*")],
    "rows": lambda tiny: [*(tiny.root / "home").glob("ephemeral/*/data/**/commits/0")],
    "ending": lambda tiny: (pid := MET.get("agent") or agent_pid(tiny)) and MET.update(agent=pid) is None
    and not alive(pid),
}  # fmt: skip
"""When a command is killed: its environment is recorded, its agent runs, its tables are in the catalog, and so on."""
MET: dict[str, int] = {}


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


@pytest.mark.parametrize("moment", MOMENTS)
def test_what_a_killed_command_leaves_is_deleted_by_the_next_one(tiny: Tiny, moment: str) -> None:
    MET.clear()
    killed = begun(tiny, "marked")
    until(lambda: MOMENTS[moment](tiny), 120, moment, every_s=0.02)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    assert len(left(tiny)) == 1 and left(tiny)[0].name in tiny.run("doctor").stdout
    assert names(tiny) or moment not in ("names", "rows")
    agent = agent_pid(tiny)
    assert alive(agent) == (moment in ("agent", "names", "rows"))
    done = tiny.run("test", "--integration", "marked", "--pool", "dev")
    assert done.returncode == 0 and "left by a command that was killed" in done.stderr, done.stderr
    assert not (agent and alive(agent)) and not processes(tiny)
    assert not left(tiny) and not names(tiny)


def test_an_interrupt_deletes_everything_while_statements_run(tiny: Tiny) -> None:
    interrupted = begun(tiny, "marked")
    until(lambda: MOMENTS["rows"](tiny), 120, "rows were written", every_s=0.02)
    agent = agent_pid(tiny)
    assert alive(agent)
    interrupted.send_signal(signal.SIGINT)
    interrupted.send_signal(signal.SIGINT)
    _, said = interrupted.communicate(timeout=120)
    assert interrupted.returncode == 130, said
    assert "is gone: no process" in said and "left by" not in said
    assert not alive(agent) and not left(tiny) and not names(tiny) and not processes(tiny)


def test_a_killed_server_changes_no_row_and_older_checkpoints_are_refused(tiny: Tiny) -> None:
    done = tiny.run("test", "--integration", "--scenario", "restart,recovery", "marked", "--pool", "dev", "--json")
    results = json.loads(done.stdout)["results"]
    assert [each["outcome"] for each in results] == ["passed"] * 2, done.stderr
    assert results[0]["fact"]["sentence"].endswith("after the server was killed when a batch had begun")
    assert results[1]["fact"]["statements"] == 2 and not left(tiny)
