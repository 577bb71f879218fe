"""Two real local pools in one environment: a chain across both, moves by editing yml, and kills of servers and agent.

Takes about four minutes on two cores.
"""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
import tiny_project
from tiny_project import FIRST_COMPILER, Tiny, alive, until

pytestmark = [pytest.mark.spark, pytest.mark.drill, pytest.mark.long]

ONE = f"{{cores: 1, memory: 1g, conf: {{spark.driver.extraJavaOptions: '{FIRST_COMPILER}'}}}}"
POOL = tiny_project.HEAD.partition("    pool:")[2].partition("\n")[0]
HEAD = tiny_project.HEAD.replace(f"    pool:{POOL}", f"    pools: {{small: {ONE}, large: {ONE}}}")


@dataclass
class TwoPools(Tiny):
    """A project whose environment has the pools `small` and `large`."""

    def pool_pid(self) -> int:
        return self.pid_of("small")

    def pid_of(self, pool: str) -> int:
        """Return the process id of a pool's server."""
        return int(json.loads((self.home() / "pools" / pool / "pool.json").read_text())["pid"])

    def states_of_pools(self) -> dict[str, str]:
        return {str(name): str(state) for name, state in self.ledger("SELECT name, state FROM pool")}

    def name(self, table: str, pool: str) -> None:
        """Write the yml of a table, which names a pool."""
        self.yml = {**self.yml, table: f"pool: {pool}\n"}
        self.write()

    def started(self, table: str) -> tuple[str, str, int]:
        """Return where a table's statement was last started, its run id, and its number of restarts."""
        columns = "json_extract(pool, '$.name'), run_id, restarts"
        ((pool, run, restarts),) = self.ledger(f'SELECT {columns} FROM deployment WHERE "table" = ?', table)
        return str(pool), str(run), int(str(restarts))

    def is_exact(self) -> bool:
        """True once both tables have each landed row once."""
        wanted = list(range(1, self.landed + 1))
        return all(self.ids(table, 1) == wanted for table in ("kept", "marked"))


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoPools]:
    root = tmp_path_factory.mktemp("headgate")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiny_project, "HEAD", HEAD)
        found = TwoPools(root, {"HEADGATE_MEASURE_S": "1"}, yml={"marked": "pool: large\n"})
        found.write()
        found.land(200)
        found.done("up")
        pids = [found.agent_pid(), found.pid_of("small"), found.pid_of("large")]
        try:
            assert found.apply(found.plan("--all")).returncode == 0
            until(found.is_exact, 90, "all rows are in both tables")
            yield found
        finally:
            pids += [found.agent_pid(), found.pid_of("small"), found.pid_of("large")]
            found.run("down", "--confirm", "")
            for pid in pids:
                if alive(pid):
                    os.kill(pid, signal.SIGKILL)
                    pytest.fail(f"process {pid} was left")


def landing(two: TwoPools, over: threading.Event) -> threading.Thread:
    """Land files until `over` is set."""

    def land() -> None:
        while not over.wait(0.3):
            two.land(10)

    thread = threading.Thread(target=land)
    thread.start()
    return thread


def test_a_chain_runs_across_two_pools(two: TwoPools) -> None:
    assert [two.started(table)[0] for table in ("kept", "marked")] == ["small", "large"]
    pools = json.loads(two.done("pool", "list", "--json"))["pools"]
    assert [(pool["name"], pool["state"], pool["statements"]["running"]) for pool in pools] == [
        ("small", "up", 1), ("large", "up", 1),
    ]  # fmt: skip
    assert "marked@v1" in two.done("pool", "show", "large")
    for table in ("kept", "marked"):
        assert len(json.loads(two.done("peek", table, "-n", "5", "--json"))["rows"]) == 5


def test_a_statement_moves_and_no_row_is_lost_or_doubled(two: TwoPools) -> None:
    over, other = threading.Event(), two.started("kept")
    thread = landing(two, over)
    try:
        for pool in ("small", "large"):
            two.name("marked", pool)
            plan = two.plan("marked")
            assert [(step["do"], step["table"]) for step in plan["steps"]] == [("restart", "marked")]
            assert two.apply(plan).returncode == 0
            assert two.started("marked")[0] == pool
            assert two.run("plan", "marked", "--exit-code").returncode == 0, "it is where it is declared"
    finally:
        over.set()
        thread.join()
    until(two.is_exact, 90, "each row is in both tables once")
    assert two.started("kept") == other, "the statement of the other pool went on"


def test_a_killed_server_leaves_the_other_pool_alone(two: TwoPools) -> None:
    kept, pid = two.started("kept"), two.pid_of("large")
    two.land(50)
    os.kill(pid, signal.SIGKILL)
    until(lambda: two.states_of_pools()["large"] != "up", 60, "the agent has seen that the server is gone")
    assert two.states_of_pools()["small"] == "up"
    until(lambda: set(two.states_of_pools().values()) == {"up"}, 120, "another server is up")
    two.land(50)
    until(two.is_exact, 90, "each row is in both tables once")
    assert two.started("kept") == kept and two.pid_of("large") != pid


def test_a_frozen_pool_delays_no_stop_in_the_other(two: TwoPools) -> None:
    # While a statement starts in a new session, a pool that does not answer counts as starting.
    until(lambda: two.statements()["marked"]["state"] == "running", 60, "its statement has started")
    pid = two.pid_of("large")
    os.kill(pid, signal.SIGSTOP)
    try:
        until(lambda: two.states_of_pools()["large"] == "silent", 60, "it is noticed")
        found = json.loads(two.done("stop", "kept", "--yes", "--json"))
        (outcome,) = found["statements"] if "statements" in found else found["outcomes"]
        assert outcome["outcome"] == "stopped" and outcome["took_ms"] < 3_000
        two.done("start", "kept", "--yes")
    finally:
        os.kill(pid, signal.SIGCONT)
    until(lambda: set(two.states_of_pools().values()) == {"up"}, 60, "it answers again")
    two.land(20)
    until(two.is_exact, 90, "each row is in both tables once")


@pytest.mark.parametrize(
    "point", ["move begins marked", "move stopped marked", "move proved marked", "move record marked"]
)
def test_an_agent_that_is_killed_during_a_move_leaves_one_query(point: str, two: TwoPools) -> None:
    to = "small" if two.started("marked")[0] == "large" else "large"
    two.done("down", "--keep-pool")
    two.done("up", HEADGATE_FAULT_AT=point)
    two.land(30)
    two.name("marked", to)
    plan = two.plan("marked")
    two.apply(plan)
    until(lambda: not alive(two.agent_pid()), 60, "the agent dies at the point")
    two.done("up")
    until(lambda: not two.ledger("SELECT 1 FROM run WHERE ended_at IS NULL"), 120, "the run ends")
    assert two.ledger("SELECT state FROM run ORDER BY started_at DESC LIMIT 1") == [("done",)]
    assert two.started("marked")[0] == to
    two.land(30)
    until(two.is_exact, 90, "each row is in both tables once")
    doubles = two.ledger("SELECT summary FROM event WHERE summary LIKE '%was active in the pool%'")
    assert not doubles, doubles


def test_a_server_that_is_killed_during_a_move_from_it_refuses_or_completes_the_move(two: TwoPools) -> None:
    old = two.started("marked")[0]
    two.name("marked", "small" if old == "large" else "large")
    plan = two.plan("marked")
    confirm = two.confirmation(plan)
    command = [str(Path(sys.executable).with_name("headgate")), "apply", plan["hash"][:12], "--confirm", confirm]
    environ = {**os.environ, "HEADGATE_HOME": str(two.root / "home"), **two.environ}
    applying = subprocess.Popen(
        command, cwd=two.folder, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    with suppress(OSError):
        os.kill(two.pid_of(old), signal.SIGKILL)
    two.land(30)
    assert applying.wait(180) == 0, "the server is started again, and proves that nothing runs there"
    until(two.is_exact, 90, "each row is in both tables once")
    until(lambda: set(two.states_of_pools().values()) == {"up"}, 120, "both pools are up")
