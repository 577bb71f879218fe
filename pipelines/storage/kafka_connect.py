"""Whether topics are filled: their connectors, as Kafka Connect reports them (KIP-26, Kafka 4.1), and their silence.

A topic that nothing fills looks like one in which nothing happens: its readers keep up with it. Debezium retries for
ever while its database is down, and Kafka Connect reports it as RUNNING meanwhile (3.5.0).
"""

import http.client
import json
import socket
import threading
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from core.model.names import TableName, trigger_s
from core.model.states import TableFaultKind
from core.ports.storage import TableFault
from core.text.escaping import escape_control_characters
from core.text.secret_masking import mask_secrets
from core.text.wording import clipped
from pipelines.storage.kafka_clients import ANSWER_S

_LARGEST = 1_000_000
"""Maximum size of an answer, in bytes."""
_LONGEST = 300
"""Maximum length of a task's error in a fault, in characters."""
_LONGEST_STATE = 40


def fault_of_connector(url: str) -> TableFault | None:
    """Return why a connector fills no topic now; None if it and all its tasks are running.

    `url` is `http://host:8083/connectors/NAME`. The call takes at most a few seconds and raises no error: a worker
    that does not answer is a fault as well.
    """
    place = urlsplit(url)
    name = place.path.rpartition("/")[2]
    about = f"connector {name} at {place.netloc}"
    try:
        status, found = _status_of(url)
    except (OSError, OverflowError, http.client.HTTPException) as error:
        why = getattr(error, "strerror", None) or str(error) or type(error).__name__
        return _fault(f"Kafka Connect, which runs {about}, does not answer: {why}", "start it again")
    if status == 404:
        return _fault(f"there is no {about}", "create it, or correct connector in the yml of the table")
    try:
        states = [("", found["connector"]), *((f"task {task['id']} of ", task) for task in found["tasks"])]
        wrong = [(what, _shown(each["state"], _LONGEST_STATE), str(each.get("trace") or "")) for what, each in states]
    except (LookupError, TypeError, AttributeError):
        return _fault(f"{about} has no status (HTTP {status})", "correct connector in the yml of the table")
    if len(wrong) == 1:
        return _fault(f"{about} has no task", "see the log of Kafka Connect")
    # A failed task says more than the state of its connector.
    wrong = sorted((each for each in wrong if each[1] != "RUNNING"), key=lambda each: each[1] != "FAILED")
    for what, state, trace in wrong:
        words = f"{what}{about} is {state}"
        restart = f"POST {url}/restart?includeTasks=true"
        if state == "FAILED":
            first = _shown(trace.strip().partition("\n")[0], _LONGEST)
            cause = f": {first}" if first else ""
            return _fault(f"{words}{cause}", f"correct the cause, then {restart}")
        if state in ("PAUSED", "STOPPED"):
            return _fault(words, f"resume it: PUT {url}/resume")
        return _fault(words, "it fills its topics again when it is RUNNING")
    return None


def silence_fault(table: TableName, since: float, now: float, allowed: str) -> TableFault | None:
    """Return the fault of a table whose topics have had no message since a time, in epoch seconds.

    None if that is no longer than the interval `allowed`. The fault stays the same as time passes.
    """
    if now - since <= trigger_s(allowed):
        return None
    at = datetime.fromtimestamp(since, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    why = f"{table} has had no new message since {at}, which is longer than the {allowed} that its yml allows"
    return _fault(why, "check what writes its topics")


def _status_of(url: str) -> tuple[int, Any]:
    """Return the HTTP status and the decoded answer; None for an answer that is not JSON.

    Raises OSError or HTTPException if there is no complete answer within twice ANSWER_S.
    """
    place = urlsplit(url)
    kind = http.client.HTTPSConnection if place.scheme == "https" else http.client.HTTPConnection
    connection = kind(place.netloc, timeout=ANSWER_S)
    late = threading.Event()
    try:
        connection.connect()
        timer = threading.Timer(ANSWER_S, _end, (connection.sock, late))
        timer.daemon = True
        timer.start()
        try:
            connection.request("GET", f"{place.path}/status", headers={"Accept": "application/json"})
            answer = connection.getresponse()
            status, body = answer.status, answer.read(_LARGEST)
        except (OSError, ValueError, http.client.HTTPException):
            if late.is_set():
                raise TimeoutError("timed out") from None
            raise
        finally:
            timer.cancel()
    finally:
        connection.close()
    if late.is_set():
        raise TimeoutError("timed out")
    try:
        return status, json.loads(body)
    except (ValueError, RecursionError):
        return status, None


def _end(connected: socket.socket, late: threading.Event) -> None:
    """End an exchange whose bytes arrive one by one, which the timeout of a single read never does."""
    late.set()
    with suppress(OSError):
        connected.shutdown(socket.SHUT_RDWR)


def _shown(text: object, most: int) -> str:
    return clipped(mask_secrets(escape_control_characters(str(text))), most)


def _fault(why: str, remedy: str) -> TableFault:
    return TableFault(TableFaultKind.NOT_FED, why, remedy)
