"""A drain and a lost pool on real servers: one that the agent starts, and one on a cluster that it only reaches.

Takes about three minutes on two cores.
"""

import json
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import tiny_project
from tiny_project import FIRST_COMPILER, alive, until

from core.project.model import Pool
from pipelines.local_pool.connect_server import LocalPool
from pipelines.local_pool.standalone_cluster import StandaloneCluster
from tests.drills.test_named_pools import ONE, POOL, TwoPools, landing

pytestmark = [pytest.mark.spark, pytest.mark.drill, pytest.mark.long]

ONE_POOL = tiny_project.HEAD


@pytest.fixture(scope="module")
def with_far(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoPools]:
    """An environment with the local pool `small`, and `far`, whose server and standalone cluster the test manages."""
    root = tmp_path_factory.mktemp("headgate")
    cluster = StandaloneCluster(root / "cluster")
    try:
        cluster.up({"workers": 1, "cores": 1, "memory": "768m"}, lambda text: None)
        page = cluster.status()["master_ui"]
        conf = (("spark.driver.extraJavaOptions", FIRST_COMPILER), ("spark.driver.memory", "1g"))
        on_cluster = Pool("far", cores=1, memory="768m", conf=conf, master=cluster.status()["master"], master_ui=page)
        far = LocalPool(root / "far", on_cluster)
        far.start()
        far.ready()
        token = f"${{file:{root / 'far' / 'pool.token'}}}"
        with deployed(root, f"{{url: '{far.url}', token: '{token}', master_ui: '{page}'}}") as found:
            yield found
        far.end()
    finally:
        cluster.down()


@contextmanager
def deployed(root: Path, far: str) -> Iterator[TwoPools]:
    """Deploy a project, one of whose statements runs in the pool `far`, which headgate.yml declares like this."""
    with pytest.MonkeyPatch.context() as patch:
        pools = f"    pools:\n      small: {ONE}\n      far: {far}"
        patch.setattr(tiny_project, "HEAD", ONE_POOL.replace(f"    pool:{POOL}", pools))
        found = TwoPools(root, {"HEADGATE_MEASURE_S": "1"}, yml={"marked": "pool: far\n"})
        found.write()
        found.land(200)
        found.done("up")
        pids = [found.agent_pid(), found.pid_of("small")]
        try:
            assert found.apply(found.plan("--all")).returncode == 0
            until(found.is_exact, 90, "all rows are in both tables")
            yield found
        finally:
            found.run("down", "--confirm", "")
            for pid in pids:
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


def word_about_far(two: TwoPools) -> dict[str, Any]:
    """Return what is said about the pool `far` while it does not answer; empty while it does."""
    pools = json.loads(two.done("pool", "list", "--json"))["pools"]
    (far,) = (pool for pool in pools if pool["name"] == "far")
    return dict((far["lost"] or {}).get("word") or {})


def given_up(two: TwoPools) -> str:
    """Drain the lost pool `far` once its application has ended, and return what the event of the move says."""
    until(lambda: word_about_far(two).get("kind") == "ended", 120, "the manager says that the application has ended")

    def is_unknown() -> bool:
        return two.ledger("SELECT state FROM deployment WHERE \"table\" = 'marked'") == [("unknown",)]

    until(is_unknown, 60, "nobody knows whether the statement runs")
    assert drained(two, "far", "--lost") == "nothing runs in far"
    assert two.started("marked")[0] == "small"
    until(two.is_exact, 90, "each row is in both tables once")
    ((said,),) = two.ledger("SELECT summary FROM event WHERE summary LIKE '%has stated that nothing runs there%'")
    return str(said)


def application_of_far(two: TwoPools) -> dict[str, Any]:
    """Return the application of the pool `far`, as the manager of its cluster describes it beside Spark's executors."""
    found: dict[str, Any] = {}

    def is_described() -> bool:
        # On a busy machine, a first answer may take longer than whoever looks waits for it.
        work = json.loads(two.done("pool", "show", "far", "--json"))["work"]
        found.update((work["cluster"] or {}).get("application") or {})
        return bool(found)

    until(is_described, 60, "the manager describes the application")
    return found


def test_statements_of_a_lost_pool_go_on_elsewhere_once_it_is_stated_to_be_gone(with_far: TwoPools) -> None:
    with_far.land(50)
    far = LocalPool(with_far.root / "far", Pool("far"))
    assert with_far.run("pool", "drain", "far", "--lost").returncode == 3, "it answers"
    assert application_of_far(with_far)["state"] == "RUNNING"
    assert far.pid is not None
    os.kill(far.pid, signal.SIGSTOP)
    until(lambda: word_about_far(with_far).get("kind") == "runs", 120, "the master says that the application runs")
    refused = with_far.run("pool", "drain", "far", "--lost")
    assert refused.returncode == 3 and "is RUNNING" in refused.stderr
    os.kill(far.pid, signal.SIGKILL)
    assert "is FINISHED since" in given_up(with_far)
