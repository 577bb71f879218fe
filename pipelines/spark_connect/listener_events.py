"""Receives query events from the server, so that progress need not be requested.

A server accepts one listener per session and does not notice that a client has died. A listener that an earlier client
left behind is therefore removed first.
"""

import json
import logging
import threading
import time
from collections.abc import Mapping
from typing import Any

import pyspark.sql.connect.proto as pb2
from pyspark.sql.connect.session import SparkSession

from pipelines.spark_connect.session import endless

log = logging.getLogger(__name__)

_PROGRESS = pb2.StreamingQueryEventType.QUERY_PROGRESS_EVENT
_IDLE = pb2.StreamingQueryEventType.QUERY_IDLE_EVENT

_ADDED_S = 2.0
"""Longest wait, in seconds, for the server to confirm the listener.

Events are received even without this confirmation.
"""


class ListenerEvents:
    """The latest progress of every query run, and the time of its last event. A daemon thread receives the events."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._lock = threading.Lock()
        self._starting = threading.Lock()
        self._progress: dict[str, Mapping[str, Any]] = {}
        self._heard: dict[str, float] = {}
        self._thread: threading.Thread | None = None
        self._listening = threading.Event()

    @property
    def alive(self) -> bool:
        """True while events are received; False before `listen` and after the connection breaks."""
        return self._thread is not None and self._thread.is_alive() and self._listening.is_set()

    def listen(self, *, alone: bool) -> None:
        """Start receiving events, unless they are already being received.

        Earlier progress must be requested separately. Pass `alone` if no earlier client can have left a listener. No
        listener is then removed, because removing a missing listener logs an error on the server. If there was a
        listener after all, the next call removes it.
        """
        if self.alive or not self._starting.acquire(blocking=False):
            return
        try:
            self._start(alone)
        finally:
            self._starting.release()

    def progress(self, run_id: str) -> Mapping[str, Any] | None:
        """Return the last known progress of a query run as decoded JSON; None if unknown."""
        with self._lock:
            return self._progress.get(run_id)

    def put(self, run_id: str, progress: Mapping[str, Any]) -> None:
        """Record progress that was requested from the server, unless newer progress is known."""
        with self._lock:
            known = self._progress.get(run_id)
            if known is None or str(progress.get("timestamp")) > str(known.get("timestamp")):
                self._progress[run_id] = progress
                self._heard[run_id] = time.monotonic()

    def silence_s(self, run_id: str) -> float:
        """Return the seconds since a run's last event or, if it had none, since the first call for this run."""
        with self._lock:
            now = time.monotonic()
            return now - self._heard.setdefault(run_id, now)

    def restart_silence(self) -> None:
        """Restart every run's silence at zero, after a period in which no events could be received."""
        with self._lock:
            self._heard.clear()

    def forget_other_runs(self, run_ids: frozenset[str]) -> None:
        """Forget all runs that are not in `run_ids`."""
        with self._lock:
            self._progress = {run_id: value for run_id, value in self._progress.items() if run_id in run_ids}
            self._heard = {run_id: at for run_id, at in self._heard.items() if run_id in run_ids}

    def _start(self, alone: bool) -> None:
        if not alone or self._thread is not None:
            self._spark.client.execute_command(_bus("remove_listener_bus_listener"))
        # Each thread has its own flag, so that a hanging thread cannot set that of its successor.
        self._listening = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(self._listening,), name="events", daemon=True)
        self._thread.start()
        self._listening.wait(_ADDED_S)

    def _run(self, listening: threading.Event) -> None:
        """Receive events until the stream ends. A second listener in the same session would hang (Spark 4.2.0)."""
        try:
            with endless():
                for result in self._spark.client.execute_command_as_iterator(_bus("add_listener_bus_listener")):
                    response = result["streaming_query_listener_events_result"]
                    if response.HasField("listener_bus_listener_added"):
                        listening.set()
                    for event in response.events:
                        self._take(event)
        except Exception as error:
            # Errors end here: the next caller of `listen` finds this thread dead and starts a new one.
            log.info("the listener stopped: %s", str(error).splitlines()[0] if str(error) else type(error).__name__)
        finally:
            listening.clear()

    def _take(self, event: Any) -> None:
        if event.event_type not in (_PROGRESS, _IDLE):
            return
        body = json.loads(event.event_json)
        # The event wraps the progress (Spark 4.2.0).
        said = body.get("progress", body)
        with self._lock:
            self._heard[said["runId"]] = time.monotonic()
            if event.event_type == _PROGRESS:
                self._progress[said["runId"]] = said


def _bus(name: str) -> Any:
    command = pb2.Command()
    setattr(command.streaming_query_listener_bus_command, name, True)
    return command
