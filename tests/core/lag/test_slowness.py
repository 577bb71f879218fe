"""Why a statement is slow: the part of its batches that dominates, and no reason for a statement that keeps up."""

from dataclasses import replace

import pytest

from core.lag.slowness import BatchTimes, Slowness, slowness_of, slowness_text, why_slow
from core.text.sentence import Fact
from pipelines.spark_connect.query_progress import query_progress_from_json

PHASES = ("queryPlanning", "latestOffset", "addBatch", "walCommit")
KIND_BY_PHASE = dict(zip(PHASES, ("PLANNING", "READING", "COMPUTING", "COMMITTING"), strict=True))


def batch(ms: int, **durations: int) -> BatchTimes:
    return BatchTimes(ms, durations)


def reason(
    *batches: BatchTimes, trigger_s: float = 1.0, behind_s: float | None = 90.0, cores: int | None = 2
) -> Fact[Slowness] | None:
    return why_slow(batches, trigger_s=trigger_s, bound_s=30.0, behind_s=behind_s, cores=cores)


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
    short, long = batch(900, addBatch=900), batch(1900, addBatch=1900)
    assert reason(short, short, behind_s=5.0) is None
    assert reason(short, short, long, behind_s=5.0) is None, "one long batch of three"
    assert reason(short, long, behind_s=5.0) is None
    assert reason(long, behind_s=5.0) is None, "a first batch"
    assert reason(long, long, behind_s=5.0, trigger_s=0.0) is None, "without an interval, every batch is at once"
    assert reason(long, long, behind_s=5.0) is not None
    assert reason(short, short, behind_s=None) is None
    assert reason() is None


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
    held = BatchTimes(5000, {"addBatch": 4800}, state_rows=12_000_000, state_commit_ms=40_000, state_tasks=200)
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
        1268, durations, state_rows=18_220, state_update_ms=100, state_commit_ms=1770, state_tasks=2
    )
    assert reason(found, trigger_s=1.0) == Slowness.STATE_COMMITS.of(part_s=0.9, batch_s=1.3, rows=18_220)


def test_a_trigger_that_ran_no_batch_has_no_times() -> None:
    assert query_progress_from_json({"durationMs": {"latestOffset": 3, "triggerExecution": 5}}).times is None
