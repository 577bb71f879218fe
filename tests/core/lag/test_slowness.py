"""Why a statement is slow: the part of its batches that dominates, and no reason for a statement that keeps up."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from core.lag.slowness import BatchTimes, Slowness, is_slow, slowness_of, slowness_text, why_slow
from core.observed.spark_work import StageTimes
from core.text.sentence import Fact
from pipelines.spark_connect.query_progress import query_progress_from_json

PHASES = ("queryPlanning", "latestOffset", "addBatch", "walCommit")
KIND_BY_PHASE = dict(zip(PHASES, ("PLANNING", "READING", "COMPUTING", "COMMITTING"), strict=True))


def batch(ms: int, **durations: int) -> BatchTimes:
    return BatchTimes(7, ms, durations)


def reason(
    *batches: BatchTimes,
    trigger_s: float = 1.0,
    cores: int | None = 2,
    stages: Sequence[StageTimes] = (),
    in_python: bool = False,
) -> Fact[Slowness] | None:
    return why_slow(batches, trigger_s=trigger_s, cores=cores, stages=stages, in_python=in_python)


@pytest.mark.parametrize("phase", PHASES)
def test_the_phase_that_takes_most_of_a_batch_is_the_reason(phase: str) -> None:
    found = reason(batch(4100, **dict.fromkeys(PHASES, 100) | {phase: 3800}))
    kind = Slowness[KIND_BY_PHASE[phase]]
    assert found == kind.of(share=93, part_s=3.8, batch_s=4.1)
    assert "93% of a batch, 3.8 of 4.1 s on average" in str(found)


def test_a_reason_is_an_average_of_the_batches_and_not_the_newest_one() -> None:
    computing, committing = batch(4000, addBatch=3900), batch(4000, walCommit=3900)
    assert reason(computing, computing, committing) == Slowness.COMPUTING.of(share=65, part_s=2.6, batch_s=4.0)


def test_a_statement_that_keeps_up_with_its_trigger_is_not_slow() -> None:
    def slow(*ms: int, behind_s: float | None = 5.0, trigger_s: float = 1.0) -> bool:
        return is_slow([batch(each) for each in ms], trigger_s=trigger_s, bound_s=30.0, behind_s=behind_s)

    assert not slow(900, 900)
    assert not slow(900, 900, 1900), "one long batch of three"
    assert not slow(900, 1900)
    assert not slow(1900), "a first batch"
    assert slow(1900, 1900)
    assert not slow(1900, 1900, trigger_s=0.0), "without an interval, every batch is at once"
    assert not slow(900, 900, behind_s=None)
    assert slow(900, behind_s=31.0)
    assert not slow(behind_s=31.0), "nothing is known yet"


def test_a_statement_whose_batches_are_limited_waits_for_its_trigger() -> None:
    found = reason(batch(400, addBatch=390), trigger_s=10.0)
    assert found == Slowness.TRIGGER.of(batch_s=0.4, trigger_s=10.0)
    assert str(found).endswith("a batch takes 0.4 s on average, and the trigger starts one every 10 s")


def test_parts_of_about_the_same_length_are_listed() -> None:
    found = reason(batch(3000, queryPlanning=1100, addBatch=1000, walCommit=800))
    assert str(found) == ("no part of a batch of 3 s dominates: planning 37%, computing 33%, committing 27%")


def test_durations_that_spark_does_not_report_give_no_reason() -> None:
    assert reason(batch(4000)) is None


def test_state_is_the_reason_only_if_it_is_most_of_the_work_whichever_tasks_ran_at_once() -> None:
    held = BatchTimes(7, 5000, {"addBatch": 4800}, state_rows=12_000_000, state_commit_ms=40_000, state_tasks=200)
    assert reason(held, cores=16) == Slowness.STATE_COMMITS.of(part_s=2.5, batch_s=5.0, rows=12_000_000)
    assert "12M rows" in str(reason(held, cores=16))
    kind_of = {cores: found.kind for cores in (None, 32, 1) if (found := reason(held, cores=cores)) is not None}
    assert kind_of == {None: Slowness.COMPUTING, 32: Slowness.COMPUTING, 1: Slowness.COMPUTING}, (
        "too many cores to know, and more time of tasks than one core has"
    )
    updated = replace(held, state_update_ms=70_000)
    assert reason(updated, cores=16) == Slowness.STATE_UPDATES.of(part_s=4.4, batch_s=5.0, rows=12_000_000)


@pytest.mark.parametrize(
    "found",
    [
        Slowness.NO_PART.of(batch_s=3.0, parts=("planning 40%", "computing 35%")),
        Slowness.PLANNING.of(share=60, part_s=2.5, batch_s=4.1),
    ],
)
def test_a_reason_is_restored_from_its_text(found: Fact[Slowness]) -> None:
    assert slowness_of(slowness_text(found)) == found


@pytest.mark.parametrize(
    "text", ["", "no JSON", "[]", "{}", '{"kind":"moon","sentence":""}', '{"kind":"planning","sentence":""}']
)
def test_a_reason_that_is_unknown_here_is_left_out(text: str) -> None:
    assert slowness_of(text) is None


COMPUTING = batch(10_000, addBatch=9_500)
STAGE = StageTimes(
    batch=7, tasks=200, began_ms=1_000, ended_ms=10_000, waited_ms=10, run_ms=17_000, cpu_ms=16_000, gc_ms=400,
    shuffle_wait_ms=100, spilled=0, moved=40_000_000, reads=False, writes=True, rows=2_000_000, longest_ms=120,
    most_rows=12_000,
)  # fmt: skip
"""A stage on two cores whose 200 tasks compute all the time."""


def in_tasks(in_python: bool = False, **fields: int | bool) -> Fact[Slowness] | None:
    return reason(COMPUTING, stages=(replace(STAGE, **fields),), in_python=in_python)  # type: ignore[arg-type]  # Fields of the caller.


def test_tasks_that_compute_give_no_other_reason_than_the_work() -> None:
    found = in_tasks()
    assert found is not None and found.kind is Slowness.COMPUTING


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({"waited_ms": 6_300}, Slowness.CORES.of(share=70)),
        (
            {"longest_ms": 8_000, "run_ms": 16_000, "most_rows": 1_001_000},
            Slowness.SKEW.of(tasks=200, ratio=199, rows_ratio=199),
        ),
        ({"longest_ms": 8_000, "run_ms": 16_000}, Slowness.LONG_TASK.of(tasks=200, ratio=199)),
        ({"longest_ms": 8_000, "tasks": 1, "run_ms": 8_000}, None),
        ({"spilled": 30_000_000}, Slowness.SPILL.of(spilled=30_000_000)),
        ({"spilled": 3_000_000}, None),
        ({"spilled": 900_000, "moved": 1_000_000}, None),
        ({"gc_ms": 5_000}, Slowness.GARBAGE.of(share=29)),
        ({"cpu_ms": 4_000}, Slowness.WRITING.of(share=74)),
        ({"cpu_ms": 4_000, "reads": True}, Slowness.WAITING.of(share=74)),
        ({"cpu_ms": 4_000, "writes": False}, Slowness.WAITING.of(share=74)),
        ({"cpu_ms": 7_000}, None),
        ({"ended_ms": 3_000}, Slowness.DRIVER.of(share=79)),
    ],
)
def test_stages_tell_what_the_work_of_spark_is(fields: dict[str, int | bool], found: Fact[Slowness] | None) -> None:
    told = in_tasks(**fields)
    assert told is not None
    assert told == found if found is not None else told.kind is Slowness.COMPUTING


def test_two_tasks_are_compared_with_each_other() -> None:
    found = in_tasks(tasks=2, longest_ms=8_900, run_ms=9_100, rows=1_000_000, most_rows=995_000)
    assert found == Slowness.SKEW.of(tasks=2, ratio=44, rows_ratio=199)
    assert str(found) == (
        "the rows are skewed: one of 2 tasks takes 44 times as long as the others on average, with 199 times their rows"
    )


def test_a_slow_store_is_found_beside_stages_that_only_read() -> None:
    read = replace(STAGE, reads=True, writes=False, run_ms=500, cpu_ms=200, gc_ms=0, began_ms=900, ended_ms=1_000)
    found = reason(COMPUTING, stages=(read, replace(STAGE, cpu_ms=2_000)))
    assert found == Slowness.WRITING.of(share=83)


def test_code_in_python_is_not_taken_for_a_slow_store() -> None:
    assert in_tasks(cpu_ms=4_000, in_python=True) == Slowness.WAITING.of(share=74)


def test_stages_of_other_batches_do_not_show_what_lies_between_tasks() -> None:
    found = in_tasks(ended_ms=3_000, batch=6)
    assert found is not None and found.kind is Slowness.COMPUTING


def test_stages_do_not_matter_if_most_of_a_batch_is_not_the_work_of_spark() -> None:
    committing = batch(10_000, walCommit=9_000, addBatch=900)
    found = reason(committing, stages=(replace(STAGE, spilled=1 << 30),))
    assert found is not None and found.kind is Slowness.COMMITTING


# Spark 4.2.0, a stateful aggregation on two cores; identifiers are shortened.
EVENT = {
    "id": "0a8", "runId": "2a1", "name": "oven_load@v4", "timestamp": "2026-11-21T01:22:47.000Z", "batchId": 7,
    "batchDuration": 1268,
    "durationMs": {
        "addBatch": 1081, "commitOffsets": 31, "getBatch": 0, "latestOffset": 19, "queryPlanning": 52,
        "triggerExecution": 1268, "walCommit": 77,
    },
    "stateOperators": [
        {
            "operatorName": "stateStoreSave", "numRowsTotal": 18_220, "numRowsUpdated": 210, "allUpdatesTimeMs": 95,
            "numRowsRemoved": 12, "allRemovalsTimeMs": 5, "commitTimeMs": 1770, "memoryUsedBytes": 2_400_000,
            "numRowsDroppedByWatermark": 0, "numShufflePartitions": 2, "numStateStoreInstances": 2,
        }
    ],
    "sources": [{"numInputRows": 220}],
}  # fmt: skip


def test_a_progress_event_gives_the_times_of_its_batch() -> None:
    found = query_progress_from_json(EVENT).times
    durations = {name: ms for name, ms in EVENT["durationMs"].items() if name != "triggerExecution"}  # type: ignore[attr-defined]  # A part of EVENT.
    assert found == BatchTimes(
        7, 1268, durations, state_rows=18_220, state_update_ms=100, state_commit_ms=1770, state_tasks=2
    )
    assert reason(found, trigger_s=1.0) == Slowness.STATE_COMMITS.of(part_s=0.9, batch_s=1.3, rows=18_220)


def test_a_trigger_that_ran_no_batch_has_no_times() -> None:
    assert query_progress_from_json({"durationMs": {"latestOffset": 3, "triggerExecution": 5}}).times is None
