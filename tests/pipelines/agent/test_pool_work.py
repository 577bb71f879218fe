"""What the agent reads from the REST APIs of its pools, and how rarely."""

import threading
from dataclasses import dataclass, field
from functools import partial

import pytest

from core.model.errors import PoolUnreachable
from core.model.names import TableName
from core.observed.spark_work import ClusterFigures, Executor, ServerHeap, StageTimes, WorkOfPool, stage_times
from pipelines.agent import pool_work
from pipelines.agent.pool.cluster_managers import StandaloneManager
from pipelines.agent.pool_work import KEPT_S, MOST_AT_ONCE, PoolWork
from pipelines.spark_connect.spark_ui import SparkUi
from tests.core.observed.test_spark_work import STAGE
from tests.support.fake_master import fake_master, worker
from tests.support.fake_spark_ui import fake_spark_ui

EXECUTOR = Executor("driver", "h", 2, 1, 40_000, 3_000, 812_000_000)
STAGES = tuple(filter(None, (stage_times([STAGE], 7),)))


@dataclass
class Ui:
    asked: list[str] = field(default_factory=list)
    fault: str = ""

    def executors(self) -> tuple[Executor, ...]:
        self.asked.append("executors")
        if self.fault:
            raise PoolUnreachable(self.fault)
        return (EXECUTOR,)

    def heap(self) -> ServerHeap | None:
        return ServerHeap(5, 10)

    def stages(self, run_id: str) -> tuple[StageTimes, ...]:
        self.asked.append(run_id)
        if self.fault:
            raise PoolUnreachable(self.fault)
        return STAGES


def work_of(ui: Ui | None, now: list[float] | None = None) -> PoolWork:
    clock = now if now is not None else [100.0]
    return PoolWork({"local": lambda: ui}, monotonic=lambda: clock[0])  # type: ignore[arg-type, return-value]  # A double.


def key(n: int) -> tuple[TableName, int]:
    return TableName(f"t{n}"), 1


def test_only_slow_statements_are_asked_about_and_only_a_few_at_once() -> None:
    ui, now = Ui(), [100.0]
    work = work_of(ui, now)
    work.round()
    assert ui.asked == []
    slow = {key(n): ("local", f"r{n}") for n in range(MOST_AT_ONCE + 2)}
    work.put_slow(slow)
    work.round()
    assert ui.asked == [f"r{n}" for n in range(MOST_AT_ONCE)]
    now[0] += 10
    work.round()
    assert sorted(set(ui.asked)) == [f"r{n}" for n in range(MOST_AT_ONCE + 2)], "the others had their turn"
    assert work.stages(key(0), "r0") == STAGES
    assert work.stages(key(0), "r1") == (), "of another run of the query"


def test_a_statement_that_is_slow_no_more_is_forgotten() -> None:
    work = work_of(Ui())
    work.put_slow({key(0): ("local", "r0")})
    work.round()
    work.put_slow({})
    assert work.stages(key(0), "r0") == ()


def test_a_pool_that_is_not_read_leaves_no_old_stages() -> None:
    ui = Ui()
    work = work_of(ui)
    work.put_slow({key(0): ("local", "r0")})
    work.round()
    ui.fault = "refuses"
    work.round()
    assert work.stages(key(0), "r0") == ()


def test_executors_are_read_once_for_all_who_look() -> None:
    ui, now = Ui(), [100.0]
    work = work_of(ui, now)
    assert work.of_pool("local") == work.of_pool("local") == WorkOfPool((EXECUTOR,), heap=ServerHeap(5, 10))
    assert ui.asked == ["executors"]
    now[0] += KEPT_S
    ui.fault = "h gave no answer within 3 s"
    assert work.of_pool("local") == WorkOfPool(unread="h gave no answer within 3 s")


def test_nobody_waits_long_for_a_pool_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_work, "LOOK_S", 0.05)
    with fake_spark_ui() as server:
        server.hangs = threading.Event()
        work = PoolWork({"local": lambda: SparkUi(server.url)})
        assert "no answer within 0.0" in work.of_pool("local").unread


def test_a_pool_without_a_rest_api_says_so() -> None:
    assert work_of(None).of_pool("local").unread == "the agent cannot read Spark's REST API there"


def test_the_master_of_a_cluster_is_asked_too() -> None:
    with fake_master() as master:
        master.workers = [worker(cores=4), worker("h2", "DEAD")]
        ask = partial(StandaloneManager(master.page).figures, "")
        work = PoolWork({"local": lambda: None}, clusters={"local": ask})
        assert work.of_pool("local").cluster == ClusterFigures("ALIVE", 1, 1, 4, 4, 0)
        master.body = b"no"
        lost = PoolWork({"local": lambda: None}, clusters={"local": ask}).of_pool("local")
    assert lost.cluster is None and "is not the web interface" in lost.cluster_unread
