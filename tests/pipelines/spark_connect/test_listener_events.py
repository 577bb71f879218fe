"""What is retained of events, without a server: the newest progress, and when a run last sent an event."""

import json
from types import SimpleNamespace
from typing import Any

import pyspark.sql.connect.proto as pb2
import pytest

from pipelines.spark_connect import listener_events
from pipelines.spark_connect.listener_events import ListenerEvents

PROGRESS = pb2.StreamingQueryEventType.QUERY_PROGRESS_EVENT
IDLE = pb2.StreamingQueryEventType.QUERY_IDLE_EVENT
TERMINATED = pb2.StreamingQueryEventType.QUERY_TERMINATED_EVENT


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The clock, as a list whose only item is the time."""
    clock = [100.0]
    monkeypatch.setattr(listener_events.time, "monotonic", lambda: clock[0])
    return clock


def event(kind: int, body: dict[str, Any]) -> Any:
    return SimpleNamespace(event_type=kind, event_json=json.dumps(body))


def test_progress_and_idleness_end_a_silence_and_nothing_else_does(now: list[float]) -> None:
    heard = ListenerEvents(None)  # type: ignore[arg-type]  # Nothing is asked of a server here.
    assert heard.silence_s("r") == 0.0
    now[0] = 140.0
    heard._take(event(TERMINATED, {"runId": "r"}))
    assert heard.silence_s("r") == 40.0
    heard._take(event(IDLE, {"runId": "r", "timestamp": "2026-01-01T00:00:00.000Z"}))
    assert (heard.silence_s("r"), heard.progress("r")) == (0.0, None)
    now[0] = 145.0
    heard._take(event(PROGRESS, {"progress": {"runId": "r", "batchId": 7}}))
    now[0] = 150.0
    assert (heard.silence_s("r"), heard.progress("r")) == (5.0, {"runId": "r", "batchId": 7})


def test_a_progress_that_was_asked_for_counts_only_where_it_is_newer(now: list[float]) -> None:
    heard = ListenerEvents(None)  # type: ignore[arg-type]  # As above.
    old, new = ({"batchId": n, "timestamp": f"2026-01-01T00:00:0{n}.000Z"} for n in (1, 2))
    for asked, seconds, silence, known in ((old, 10.0, 0.0, old), (old, 20.0, 10.0, old), (new, 30.0, 0.0, new),
                                           (old, 40.0, 10.0, new)):  # fmt: skip
        now[0] = seconds
        heard.put("r", asked)
        assert (heard.silence_s("r"), heard.progress("r")) == (silence, known)


def test_silence_while_nobody_could_hear_is_restarted_and_runs_that_are_gone_are_forgotten(now: list[float]) -> None:
    heard = ListenerEvents(None)  # type: ignore[arg-type]  # As above.
    heard.put("r", {"timestamp": "1"})
    now[0] = 200.0
    heard.restart_silence()
    assert heard.silence_s("r") == 0.0 and heard.progress("r") is not None
    heard.forget_other_runs(frozenset())
    now[0] = 300.0
    assert heard.silence_s("r") == 0.0 and heard.progress("r") is None
