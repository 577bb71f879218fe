"""Answers of Spark's REST API as values."""

import json
from typing import Any

import pytest

from core.observed.spark_work import (
    ClusterFigures,
    Executor,
    ServerHeap,
    StageTimes,
    WorkOfPool,
    executors_of,
    heap_of,
    stage_times,
    stages_by_batch,
    work_of_pool,
)

# Parts of answers of Spark 4.2.0 that are read.
EXECUTOR: dict[str, Any] = {
    "id": "driver", "hostPort": "127.0.0.1:38001", "isActive": True, "totalCores": 2, "activeTasks": 1,
    "totalDuration": 40_000, "totalGCTime": 3_000, "peakMemoryMetrics": {"JVMHeapMemory": 812_000_000},
}  # fmt: skip
JOB: dict[str, Any] = {
    "jobId": 9, "description": "a@v1\nid = 0a8\nrunId = r1\nbatch = 7", "jobGroup": "r1", "status": "SUCCEEDED",
    "stageIds": [12, 11],
}  # fmt: skip
STAGE: dict[str, Any] = {
    "status": "COMPLETE", "stageId": 12, "attemptId": 0, "numTasks": 2, "numCompleteTasks": 2,
    "submissionTime": "2026-11-28T23:10:01.000GMT", "firstTaskLaunchedTime": "2026-11-28T23:10:01.250GMT",
    "completionTime": "2026-11-28T23:10:05.000GMT", "executorRunTime": 5_000, "executorCpuTime": 4_000_000_000,
    "jvmGcTime": 200, "shuffleFetchWaitTime": 30, "shuffleWriteTime": 70_000_000, "diskBytesSpilled": 5,
    "inputBytes": 1, "shuffleReadBytes": 2, "shuffleWriteBytes": 3, "inputRecords": 0, "shuffleReadRecords": 90,
    "outputBytes": 9, "outputRecords": 3,
    "taskMetricsDistributions": {
        "executorRunTime": [3_500.0], "inputMetrics": {"recordsRead": [0.0]},
        "shuffleReadMetrics": {"readRecords": [80.0]},
    },
}  # fmt: skip


def test_executors_that_are_alive_come_with_those_of_most_cores_first() -> None:
    driver = EXECUTOR | {"totalCores": 0, "totalDuration": 0, "peakMemoryMetrics": None}
    dead, other = EXECUTOR | {"id": "1", "isActive": False}, EXECUTOR | {"id": "2"}
    found = executors_of([driver, dead, other])
    assert [each.id for each in found] == ["2", "driver"]
    assert found[0] == Executor("2", "127.0.0.1", 2, 1, 40_000, 3_000, 812_000_000)
    assert (found[0].gc_share, found[1].gc_share, found[1].heap_peak) == (0.075, None, None)


def metrics(live: int, limit: int, generation: str = "Tenured-Gen") -> dict[str, Any]:
    """Return what `/metrics/json` answers, with the gauges of two parts of the heap."""
    pools = {
        f"local-1.driver.jvm.pools.{generation}": {"used-after-gc": live, "max": limit, "used": live + 1},
        "local-1.driver.jvm.pools.Eden-Space": {"used-after-gc": 0, "max": 5, "used": 3},
    }
    gauges = {f"{pool}.{name}": {"value": value} for pool, found in pools.items() for name, value in found.items()}
    return {"version": "4.0.0", "gauges": gauges | {"local-1.driver.jvm.heap.max": {"value": 9}}}


@pytest.mark.parametrize("generation", ["Tenured-Gen", "G1-Old-Gen", "PS-Old-Gen"])
def test_the_heap_of_a_server_is_short_when_little_is_left_after_a_collection(generation: str) -> None:
    heap = heap_of(metrics(900, 1000, generation))
    assert heap == ServerHeap(900, 1000) and heap.shortage is None
    full = heap_of(metrics(693_000_000, 699_000_000, generation))
    assert full is not None and full.shortage is not None
    assert "693 MB of the 699 MB" in str(full.shortage)


def test_a_server_without_an_old_generation_or_a_limit_reports_no_heap() -> None:
    assert heap_of({"gauges": {}}) is None
    assert heap_of(metrics(5, 10, "ZGC-Old")) is None
    assert heap_of(metrics(5, -1)) is None
    for other in ([], {"gauges": []}, {"gauges": {"a.jvm.pools.G1-Old-Gen.max": {"value": "<html>"}}}):
        with pytest.raises(ValueError, match="not the metrics"):
            heap_of(other)


@pytest.mark.parametrize("heap", [None, ServerHeap(1, 2)])
@pytest.mark.parametrize("cluster", [None, ClusterFigures("ALIVE", 3, 1, 8, 2, 1)])
def test_the_work_of_a_pool_is_restored_from_its_json(cluster: ClusterFigures | None, heap: ServerHeap | None) -> None:
    found = WorkOfPool(executors_of([EXECUTOR]), "late", cluster, "unread", heap)
    assert work_of_pool(json.loads(json.dumps(found.as_json()))) == found
    with pytest.raises(ValueError, match="not the work of a pool"):
        work_of_pool({"executors": []})


def test_stages_are_found_by_the_batches_of_one_run_from_the_newest_on() -> None:
    older = JOB | {"description": "a@v1\nid = 0a8\nrunId = r1\nbatch = 6", "stageIds": [3]}
    second = JOB | {"stageIds": [13, 11]}
    others = (JOB | {"jobGroup": "r2"}, JOB | {"status": "FAILED"}, JOB | {"description": "init"})
    assert stages_by_batch([older, JOB, second, *others], "r1") == {7: (11, 12, 13), 6: (3,)}
    assert [*stages_by_batch([older, JOB], "r1")] == [7, 6]


def test_the_times_of_a_stage_are_those_of_its_last_attempt() -> None:
    failed = STAGE | {"attemptId": 0, "status": "FAILED"}
    assert stage_times([STAGE | {"attemptId": 1}, failed], 7) == StageTimes(
        batch=7, tasks=2, began_ms=1795907401000, ended_ms=1795907405000, waited_ms=250, run_ms=5_000, cpu_ms=4_000,
        gc_ms=200, shuffle_wait_ms=100, spilled=5, moved=6, reads=False, writes=True, rows=90, longest_ms=3_500,
        most_rows=80,
    )  # fmt: skip


def test_a_stage_that_did_not_succeed_has_no_times() -> None:
    skipped = {"attemptId": 0, "status": "SKIPPED"}
    assert stage_times([skipped], 7) is None
    assert stage_times([STAGE, {"attemptId": 1, "status": "ACTIVE"}], 7) is None


@pytest.mark.parametrize("document", [None, 5, "text", [5], {"error": "no"}])
def test_other_documents_are_refused(document: Any) -> None:
    for read in (executors_of, lambda found: stages_by_batch(found, "r"), lambda found: stage_times(found, 1)):
        with pytest.raises(ValueError, match="not "):
            read(document)
