"""A drain and a lost pool on real servers: one that the agent starts, and one that it only reaches.

Takes about three minutes on two cores.
"""

import json
import os
import signal
import threading
from collections.abc import Iterator

import pytest
import tiny_project
from tiny_project import FIRST_COMPILER, alive, until

from core.project.model import Pool
from pipelines.local_pool.connect_server import LocalPool
from tests.drills.test_named_pools import ONE, POOL, TwoPools, landing

pytestmark = [pytest.mark.spark, pytest.mark.drill, pytest.mark.long]

ONE_POOL = tiny_project.HEAD


@pytest.fixture(scope="module")
def with_far(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoPools]:
    """An environment with the local pool `small`, and `far`, whose server the test manages."""
    root = tmp_path_factory.mktemp("headgate")
    far = LocalPool(
        root / "far", Pool("far", cores=1, memory="1g", conf=(("spark.driver.extraJavaOptions", FIRST_COMPILER),))
    )
    far.start()
    far.ready()
    token = f"${{file:{root / 'far' / 'pool.token'}}}"
    with pytest.MonkeyPatch.context() as patch:
        pools = f"    pools:\n      small: {ONE}\n      far: {{url: '{far.url}', token: '{token}'}}"
        patch.setattr(tiny_project, "HEAD", ONE_POOL.replace(f"    pool:{POOL}", pools))
        found = TwoPools(root, {"HEADGATE_MEASURE_S": "1"}, yml={"marked": "pool: far\n"})
        found.write()
        found.land(200)
        found.done("up")
        pids = [found.agent_pid(), found.pid_of("small"), far.pid or 0]
        try:
            assert found.apply(found.plan("--all")).returncode == 0
            until(found.is_exact, 90, "all rows are in both tables")
            yield found
        finally:
            found.run("down", "--confirm", "")
            far.end()
            for pid in filter(None, pids):
                if alive(pid):
                    os.kill(pid, signal.SIGKILL)
                    pytest.fail(f"process {pid} was left")


def drained(two: TwoPools, *words: str) -> str:
    """Drain a pool by a plan, while rows land; return what the plan prints."""
    over = threading.Event()
    thread = landing(two, over)
    try:
        plan = json.loads(two.done("pool", "drain", *words, "--json"))
        assert [step["do"] for step in plan["steps"]] == ["restart"], plan["steps"]
        two.done("apply", plan["hash"][:12], "--confirm", plan["submitted"]["confirm"])
    finally:
        over.set()
        thread.join()
    return str(plan["submitted"]["confirm"])


def test_a_pool_is_drained_and_taken_into_use_again(with_far: TwoPools) -> None:
    kept = with_far.started("kept")
    drained(with_far, "far")
    assert with_far.started("marked")[0] == "small" and with_far.started("kept") == kept
    until(with_far.is_exact, 90, "each row is in both tables once")
    pools = {pool["name"]: pool for pool in json.loads(with_far.done("pool", "list", "--json"))["pools"]}
    assert pools["far"]["cordoned_by"] and pools["far"]["statements"]["wanted"] == 0
    assert with_far.run("plan", "marked").returncode == 3, "its file still names the cordoned pool"
    with_far.done("pool", "uncordon", "far")
    assert with_far.apply(with_far.plan("marked")).returncode == 0, "it moves back, as its file says"
    assert with_far.started("marked")[0] == "far"
    until(with_far.is_exact, 90, "each row is in both tables once")


def test_statements_of_a_lost_pool_go_on_elsewhere_once_it_is_stated_to_be_gone(with_far: TwoPools) -> None:
    with_far.land(50)
    far = LocalPool(with_far.root / "far", Pool("far"))
    assert with_far.run("pool", "drain", "far", "--lost").returncode == 3, "it answers"
    assert far.pid is not None
    os.kill(far.pid, signal.SIGKILL)
    until(lambda: with_far.states_of_pools()["far"] not in ("up", "starting"), 120, "the agent has noticed it")

    def is_unknown() -> bool:
        return with_far.ledger("SELECT state FROM deployment WHERE \"table\" = 'marked'") == [("unknown",)]

    until(is_unknown, 60, "nobody knows whether the statement runs")
    assert drained(with_far, "far", "--lost") == "nothing runs in far"
    assert with_far.started("marked")[0] == "small"
    until(with_far.is_exact, 90, "each row is in both tables once")
    said = with_far.ledger("SELECT summary FROM event WHERE summary LIKE '%has stated that nothing runs there%'")
    assert len(said) == 1
