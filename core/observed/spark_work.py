"""What the executors of a pool do, and how the tasks of a batch ran, as Spark's REST API describes it (4.2.0).

A document that is something else raises ValueError.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from core.text.sentence import Fact, FactKind

_BATCH = re.compile(r"\bbatch = ([0-9]+)")


@dataclass(frozen=True, slots=True)
class Executor:
    """An executor of a pool. Times and tasks are totals since it started."""

    id: str
    """Spark's id; `driver` for the server itself, which runs tasks only if the pool has no cluster."""
    host: str
    cores: int
    """Cores for tasks; 0 for the server of a pool on a cluster."""
    active_tasks: int
    ran_ms: int
    """Milliseconds that tasks ran, summed over tasks; of the server, those since its start (`AppStatusStore.scala`)."""
    gc_ms: int
    """Milliseconds of `ran_ms` in which the executor collected garbage."""
    heap_peak: int | None = None
    """Most bytes of heap that it used; None until it has reported them."""

    @property
    def gc_share(self) -> float | None:
        """The share of `ran_ms` that garbage collection took; None if nothing has run."""
        return min(1.0, self.gc_ms / self.ran_ms) if self.ran_ms else None


class HeapShortage(FactKind):
    """What is wrong with the memory of a pool's server."""

    NEARLY_FULL = (
        "the memory of the pool's server is nearly full: {live:size} of the {limit:size} for old objects stay in use "
        "after a garbage collection",
        "raise memory: of the pool in headgate.yml, then headgate down and headgate up; or start fewer statements in "
        "an hour, because Spark keeps each stopped query for so long",
    )


@dataclass(frozen=True, slots=True)
class ServerHeap:
    """The part of a server's heap for old objects, in bytes."""

    live: int
    """Bytes that stayed in use after the latest garbage collection of that part; 0 before the first one."""
    limit: int

    @property
    def shortage(self) -> Fact[HeapShortage] | None:
        """Why the server is about to spend its time on garbage collections, or to fail; None if it is not."""
        is_short = self.live > _MOST_LIVE * self.limit
        return HeapShortage.NEARLY_FULL.of(live=self.live, limit=self.limit) if is_short else None


_MOST_LIVE = 0.9
"""Share of the old generation in use above which batches took two to four times as long (1 GB, Spark 4.2.0)."""

_OLD_GENERATION = re.compile(r"\.jvm\.pools\.(?:Tenured|G1-Old|PS-Old)-Gen\.(used-after-gc|max)\Z")


def heap_of(document: Any) -> ServerHeap | None:
    """Read the answer of `/metrics/json` (`JvmSource.scala`, 4.2.0); None if it does not describe an old generation."""
    try:
        gauges = document["gauges"].items()
        found = {of[1]: int(gauge["value"]) for name, gauge in gauges if (of := _OLD_GENERATION.search(name))}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ValueError("not the metrics of a server") from error
    return ServerHeap(found["used-after-gc"], found["max"]) if len(found) == 2 and found["max"] > 0 else None


@dataclass(frozen=True, slots=True)
class StageTimes:
    """A finished stage of a batch. Sums are over its tasks, which run at the same time."""

    batch: int
    tasks: int
    began_ms: int
    """When it was submitted, in epoch milliseconds."""
    ended_ms: int
    waited_ms: int
    """Milliseconds from then until its first task started."""
    run_ms: int
    """Sum of the milliseconds that tasks ran."""
    cpu_ms: int
    """Part of `run_ms` in which tasks had a processor."""
    gc_ms: int
    shuffle_wait_ms: int
    """Part of `run_ms` in which tasks waited for rows of another stage, or wrote rows for one."""
    spilled: int
    """Bytes that tasks wrote to disk because memory was short."""
    moved: int
    """Bytes that tasks read as input, read from other stages, and wrote for others."""
    reads: bool
    """Whether it reads input rows, and not only those of other stages."""
    writes: bool
    """Whether it writes rows of a table."""
    rows: int
    """Rows that tasks read, as input and from other stages."""
    longest_ms: int
    """Milliseconds that the longest task ran."""
    most_rows: int
    """Rows that the task with the most rows read."""


def executors_of(document: Any) -> tuple[Executor, ...]:
    """Read the answer of `/executors`: the executors that are alive, with those of most cores first."""
    try:
        found = tuple(
            Executor(
                id=str(each["id"]),
                host=str(each["hostPort"]).rpartition(":")[0],
                cores=int(each["totalCores"]),
                active_tasks=int(each["activeTasks"]),
                ran_ms=int(each["totalDuration"]),
                gc_ms=int(each["totalGCTime"]),
                heap_peak=(each.get("peakMemoryMetrics") or {}).get("JVMHeapMemory"),
            )
            for each in document
            if each["isActive"]
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ValueError("not a list of executors") from error
    return tuple(sorted(found, key=lambda each: (-each.cores, each.id)))


ENDED = frozenset({"FINISHED", "FAILED", "KILLED"})
"""States of an application that has ended, in the words of both managers."""


@dataclass(frozen=True, slots=True)
class ManagedApplication:
    """An application as the manager of its cluster describes it."""

    id: str
    state: str
    """`RUNNING`, one of `ENDED`, or another state before it runs."""
    ended_at: float | None = None
    """When it ended, in epoch seconds of the manager's clock; None if it has not, or nobody says when."""
    containers: int | None = None
    """Number of its containers on YARN, with that of its master; None if the manager does not count them."""
    cores: int = 0
    memory_mib: int = 0
    """Memory of all its containers on YARN, or of each executor on a standalone cluster."""

    @property
    def has_ended(self) -> bool:
        return self.state in ENDED


@dataclass(frozen=True, slots=True)
class ClusterFigures:
    """The cluster of a pool, as its manager counts it: a standalone master, or YARN's ResourceManager."""

    status: str
    """`ALIVE`, or another word while the master accepts nothing; empty on YARN."""
    alive: int
    """Number of workers or nodes that are alive; the cores are theirs."""
    gone: int
    """Number of other workers or nodes that the manager still lists."""
    cores: int
    free_cores: int
    applications: int
    application: ManagedApplication | None = None
    """That of the pool's server; None if its id is not known, or the manager does not know it."""
    on_yarn: bool = False


@dataclass(frozen=True, slots=True)
class WorkOfPool:
    """What a pool really does at a moment."""

    executors: tuple[Executor, ...] = ()
    unread: str = ""
    """Why the executors are not known, as a clause; empty if they are."""
    cluster: ClusterFigures | None = None
    """The cluster of the pool; None if it has none, or if its master does not describe it."""
    cluster_unread: str = ""
    """Why the cluster is not known, as a clause; empty if it is, or if the pool has none."""
    heap: ServerHeap | None = None
    """The heap of the pool's server; None if it does not report it."""

    def as_json(self) -> dict[str, Any]:
        """Return a JSON object, from which `work_of_pool` restores the value."""
        return asdict(self)


def work_of_pool(given: Mapping[str, Any]) -> WorkOfPool:
    """Restore a value from the output of `WorkOfPool.as_json`. Raises ValueError for any other object."""
    try:
        cluster, heap = given["cluster"], given.get("heap")
        return WorkOfPool(
            tuple(Executor(**each) for each in given["executors"]),
            str(given["unread"]),
            None if cluster is None else _figures(cluster),
            str(given["cluster_unread"]),
            None if heap is None else ServerHeap(**heap),
        )
    except (KeyError, TypeError) as error:
        raise ValueError("not the work of a pool") from error


def _figures(given: Mapping[str, Any]) -> ClusterFigures:
    of = given.get("application")
    return ClusterFigures(**{**given, "application": None if of is None else ManagedApplication(**of)})


def stages_by_batch(document: Any, run_id: str) -> dict[int, tuple[int, ...]]:
    """Read the answer of `/jobs`: ids of stages by the batch of a query's run, from the newest batch on."""
    found: dict[int, set[int]] = {}
    try:
        for each in document:
            if each.get("jobGroup") == run_id and each["status"] == "SUCCEEDED":
                batch = _BATCH.search(str(each.get("description", "")))
                if batch is not None:
                    found.setdefault(int(batch[1]), set()).update(int(stage) for stage in each["stageIds"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ValueError("not a list of jobs") from error
    return {batch: tuple(sorted(found[batch])) for batch in sorted(found, reverse=True)}


def stage_times(document: Any, batch: int) -> StageTimes | None:
    """Read the answer of `/stages/ID?withSummaries=true&quantiles=1.0`; None if the last attempt did not succeed.

    A stage whose result another job had already computed did not run.
    """
    try:
        last = max(document, key=lambda each: int(each["attemptId"]))
        if last["status"] != "COMPLETE":
            return None
        most = last.get("taskMetricsDistributions") or {}
        began_ms, input_rows = _epoch_ms(last["submissionTime"]), int(last["inputRecords"])
        return StageTimes(
            batch=batch,
            tasks=int(last["numCompleteTasks"]),
            began_ms=began_ms,
            ended_ms=_epoch_ms(last["completionTime"]),
            waited_ms=max(0, _epoch_ms(last["firstTaskLaunchedTime"]) - began_ms),
            run_ms=int(last["executorRunTime"]),
            cpu_ms=int(last["executorCpuTime"]) // 1_000_000,
            gc_ms=int(last["jvmGcTime"]),
            shuffle_wait_ms=int(last["shuffleFetchWaitTime"]) + int(last["shuffleWriteTime"]) // 1_000_000,
            spilled=int(last["diskBytesSpilled"]),
            moved=sum(int(last[name]) for name in ("inputBytes", "shuffleReadBytes", "shuffleWriteBytes")),
            reads=input_rows > 0,
            writes=int(last["outputBytes"]) > 0 or int(last["outputRecords"]) > 0,
            rows=input_rows + int(last["shuffleReadRecords"]),
            longest_ms=_largest(most.get("executorRunTime")),
            most_rows=max(
                _largest((most.get("inputMetrics") or {}).get("recordsRead")),
                _largest((most.get("shuffleReadMetrics") or {}).get("readRecords")),
            ),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ValueError("not the attempts of a stage") from error


def _largest(values: Sequence[float] | None) -> int:
    return int(values[-1]) if values else 0


def _epoch_ms(text: str) -> int:
    """Return a time such as `2026-11-28T23:10:11.123GMT` in epoch milliseconds. Raises ValueError for other texts."""
    return round(datetime.fromisoformat(text.replace("GMT", "+00:00")).timestamp() * 1000)
