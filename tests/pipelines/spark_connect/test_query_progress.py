"""Decoding of progress events."""

from dataclasses import replace

from pipelines.spark_connect.query_progress import InputRate, QueryProgress, query_progress_from_json

EVENT = {
    "id": "0a81314b", "runId": "2a1658c7", "name": "t@v1", "timestamp": "2026-11-21T01:22:47.000Z", "batchId": 1,
    "batchDuration": 268,
    "durationMs": {"triggerExecution": 268, "queryPlanning": 9, "addBatch": 149, "walCommit": 36},
    "eventTime": {"watermark": "2026-11-21T01:20:00.000Z"},
    "stateOperators": [
        {"numRowsTotal": 5, "memoryUsedBytes": 100, "numRowsDroppedByWatermark": 1},
        {"numRowsTotal": 7, "memoryUsedBytes": 50, "numRowsDroppedByWatermark": 0},
    ],
    "sources": [
        {"numInputRows": 100, "inputRowsPerSecond": 10.5, "processedRowsPerSecond": 300.0, "latestOffset": None},
        {"numInputRows": 20, "inputRowsPerSecond": 2.0, "processedRowsPerSecond": 60.0},
    ],
    "sink": {"description": "FileSink", "numOutputRows": -1},
}  # fmt: skip


def test_a_progress_event_becomes_values() -> None:
    assert query_progress_from_json(EVENT) == QueryProgress(
        batch=1,
        at="2026-11-21T01:22:47.000Z",
        in_rows=120,
        in_rows_s=12.5,
        out_rows_s=360.0,
        batch_ms=268,
        durations={"queryPlanning": 9, "addBatch": 149, "walCommit": 36},
        watermark="2026-11-21T01:20:00.000Z",
        state_rows=12,
        state_bytes=150,
        dropped_by_watermark=1,
    )


def test_values_missing_from_sparks_answer_are_none_and_not_zero() -> None:
    assert query_progress_from_json({}) == QueryProgress()


def test_rates_of_a_first_batch_are_unknown() -> None:
    first = {"sources": [{"numInputRows": 3, "inputRowsPerSecond": float("nan")}], "eventTime": None, "sink": None}
    assert query_progress_from_json(first) == QueryProgress(in_rows=3)


def test_the_input_rate_before_the_first_batch_with_rows_is_unknown_and_not_zero() -> None:
    read = {"numInputRows": 535, "inputRowsPerSecond": 0.0, "processedRowsPerSecond": 107.0}
    none = {"numInputRows": 0, "inputRowsPerSecond": 0.0, "processedRowsPerSecond": 0.0}
    first = query_progress_from_json({"sources": [read, none]})
    assert (first.in_rows, first.in_rows_s, first.out_rows_s) == (535, None, 107.0)
    waited = query_progress_from_json({"sources": [none, none]})
    assert (waited.in_rows_s, waited.out_rows_s) == (0.0, 0.0)


def test_the_epoch_is_no_watermark() -> None:
    assert query_progress_from_json({"eventTime": {"watermark": "1970-01-01T00:00:00.000Z"}}).watermark == ""


def trigger(batch: int, second: int, rows: int, *, executed: bool = True) -> QueryProgress:
    """Return the progress of a trigger; Spark's rate is per second since the previous trigger, a second before."""
    found = {"addBatch": 200} if executed else {"latestOffset": 3}
    at = f"2026-11-28T00:00:{second:02}.000Z"
    return QueryProgress(batch=batch, at=at, in_rows=rows, in_rows_s=float(rows), out_rows_s=9.0, durations=found)


def test_rows_arrive_in_the_time_since_the_batch_before_though_triggers_found_none_meanwhile() -> None:
    rate = InputRate()
    assert rate.rows_s(trigger(4, 0, 2)) == 2.0, "the batch before is unknown"
    assert [rate.rows_s(trigger(5, 10, 1)), rate.rows_s(trigger(5, 10, 1))] == [0.1, 0.1]
    assert rate.rows_s(trigger(6, 20, 0, executed=False)) == 0.0
    assert rate.rows_s(trigger(6, 30, 4)) == 0.2
    assert rate.rows_s(trigger(7, 31, 0)) == 0.0, "a batch for the watermark"
    assert rate.rows_s(trigger(8, 35, 10)) == 2.0
    assert rate.rows_s(trigger(10, 40, 3)) == 3.0, "batch 9 was not seen"
    assert rate.rows_s(replace(trigger(11, 39, 3), in_rows_s=None)) is None, "the clock was set back"
