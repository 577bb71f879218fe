"""Spark's errors translated into ours: the error class, one useful line, and whether trying again can help."""

import logging
import re

import grpc
from pyspark.errors import PySparkException

from core.model.errors import EngineRefused, HeadgateError, PoolUnreachable, SparkFailure
from pipelines.spark_connect.call_deadlines import MissedDeadline

log = logging.getLogger(__name__)

_CLASS = re.compile(r"\[([A-Z][A-Z0-9_]*(?:\.[A-Z][A-Z0-9_]*)*)\]")
_WRAPPERS = frozenset({"STREAM_FAILED", "FAILED_EXECUTE_UDF", "TASK_WRITE_FAILED", "CONNECT_CLIENT_UNEXPECTED"})
_OURS = re.compile(r"\[USER_RAISED_EXCEPTION\] \[(HEADGATE_[A-Z_]+)\] (.*?)(?: SQLSTATE: .*)?$", re.MULTILINE)
"""What our own code in the pool has raised, within whatever Spark says around it: not what a plan of it would raise."""
_SESSION = re.compile(r"^\[session: [^\]]*\] \[userId: [^\]]*\] ")
"""What Spark says before the words of a batch that ran in a process of the pool."""
_TRACEBACK = re.compile(r"[\s\S]*Traceback \(most recent call last\):\n(?:[ \t].*\n|\n)*(?=\S)")
"""What stands before the error of a batch that ran in a process of the pool, over several lines."""
_GONE = ("INVALID_HANDLE.SESSION_", "incorrect server side session identifier", "NO_ACTIVE_SESSION")
_STOPPED = ("stopped SparkContext", "SparkContext was shut down", "SparkContext has been shutdown")
_UNEXPLAINED = "Application error processing RPC"
"""A server whose SparkContext has stopped fails while it words its refusal, and says this alone (Spark 4.2.0)."""
NO_SPACE = "HEADGATE_NO_SPACE"
"""The class of an error that was caused by a full disk."""
_FULL = re.compile(r"(?:IOException[):]+|OSError: \[Errno \d+\]) (No space left on device|Disk quota exceeded)")
"""What the system says of a full disk, somewhere among the causes."""
_LONGEST = 600
_NO_MESSAGE = "no message"

_BY_HAND = {
    "DELTA_SCHEMA_CHANGED": "columns of what it reads were changed by hand{at}: a start goes on from its checkpoint",
    "DELTA_SCHEMA_CHANGE_SINCE_ANALYSIS": "columns of its static side were changed by hand: a start reads it as it is",
    "DELTA_STREAMING_INCOMPATIBLE_SCHEMA_CHANGE": "a column of what it reads was renamed or dropped by hand{at}: a "
    "start goes on over that with schema_tracking: true in its yml, and a rebuild reads all",
    "DELTA_STREAMING_METADATA_EVOLUTION": "columns of what it reads have changed: a start goes on over that",
    "DELTA_STREAMING_SCHEMA_LOCATION_CONFLICT": "it streams one table on Delta twice, which Spark does not do with "
    "schema_tracking: leave that out of its yml",
    "DELTA_SOURCE_TABLE_IGNORE_CHANGES": "rows of what it reads were changed by hand{at}: a rebuild reads all",
    "DELTA_SOURCE_IGNORE_DELETE": "rows of what it reads were deleted by hand{at}: a rebuild reads what is left",
    "DIFFERENT_DELTA_TABLE_READ_BY_STREAMING_SOURCE": "what it reads was created again: restore it, or rebuild",
    "DELTA_MISSING_FILES_UNEXPECTED_VERSION": "the log of what it reads was cleaned up before it was read{at}: rebuild",
}
"""Why a stream of Delta ended, by the begin of Spark's class, in place of Spark's own advice (4.4.0)."""
_ROWS_WITHOUT_PLACE = {
    "HEADGATE_NULL_KEY": "filter such rows out in its statement, and deploy it",
    "HEADGATE_NULL_SEQUENCE": "filter such rows out in its statement, and deploy it",
    "HEADGATE_TWO_ROWS_PER_KEY": "name a column as sequence: in its yml, or have its statement give one row of a key",
}
"""What to do about rows that a writer of a keyed table has refused."""
_LOST_FILE = re.compile(
    r"\[FAILED_READ_FILE\.FILE_NOT_EXIST\][^\n]*? file (?:file:/*(?=/))?(\S+?)\.? File does not exist"
)
"""A file that a table names and that is not there (4.2.0)."""
_VERSION = re.compile(r"\bversion:? (\d+)")

_FAILURES = {
    "Python worker exited unexpectedly": SparkFailure.WORKER_DIED,
    "Python worker failed to connect back": SparkFailure.WORKER_LATE,
    "Async progress tracking cannot be used with Once trigger": SparkFailure.EXCLUSIVE_OPTIONS,
}
"""Part of the useful line of Spark's message → kind of failure (Spark 4.2.0)."""
_WRITTEN_MEANWHILE = ("DELTA_CONCURRENT_", "DELTA_METADATA_CHANGED", "DELTA_PROTOCOL_CHANGED")
"""First parts of the classes of commits that Delta refuses because the table has changed meanwhile (4.4.0)."""


class SessionLost(PoolUnreachable):
    """The server does not know the session any more: open a new generation."""


class EngineStopped(PoolUnreachable):
    """The server answers and can run nothing, because its SparkContext has stopped: only another server can."""


class MaybeStopped(EngineRefused):
    """A refusal like those of a server whose SparkContext has stopped; another statement tells."""


def translate_error(error: BaseException) -> HeadgateError:
    """Convert what PySpark or gRPC raised into the error class that callers decide by."""
    if isinstance(error, HeadgateError):
        return error
    text = str(error)
    if any(mark in text for mark in _GONE):
        return SessionLost("the pool has lost our session", remedy="a new session is opened and statements resume")
    code = _status(error)
    if code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED):
        return PoolUnreachable("the pool cannot be reached", remedy="the agent restarts it if it is a local pool")
    if code == grpc.StatusCode.DEADLINE_EXCEEDED:
        return MissedDeadline("the pool did not answer in time", remedy="the call is retried; see the pool's log")
    if code == grpc.StatusCode.UNAUTHENTICATED:
        return EngineRefused("the pool refused our token", error_class="UNAUTHENTICATED", remedy="restart the pool")
    if not isinstance(error, PySparkException | grpc.RpcError):
        return _failed_here(error)
    if _UNEXPLAINED in text:
        return MaybeStopped("the pool failed in this call and did not say why", remedy="see the pool's log")
    if any(mark in text for mark in _STOPPED):
        return MaybeStopped(first_line(text), error_class=error_class(text))
    if full := _FULL.search(f"{text}\n{_causes(error)}"):
        return EngineRefused(full[1], error_class=NO_SPACE)
    named = error.getCondition() if isinstance(error, PySparkException) else None
    return EngineRefused(first_line(text), error_class=error_class(text) or named or "", failure=failure_of(text))


def _failed_here(error: BaseException) -> PoolUnreachable:
    """Convert what neither Spark nor the connection has raised: a failure of the client, whose words may say nothing.

    Python's name of it is for the log, which has the trace.
    """
    log.warning("the client of the pool failed", exc_info=error)
    said = first_line(str(error))
    words = f": {said}" if said != _NO_MESSAGE else " in this call and did not say why"
    return PoolUnreachable(f"the client of the pool failed{words}", remedy="headgate logs agent shows where")


def error_class(text: str) -> str:
    """Find the class that says what went wrong: the first in the message that is not a mere wrapper; empty if none."""
    if ours := _OURS.search(text):
        return ours[1]
    if _FULL.search(text):
        return NO_SPACE
    found: list[str] = _CLASS.findall(_TRACEBACK.sub("", text)) or _CLASS.findall(text)
    return next((name for name in found if name not in _WRAPPERS), found[0] if found else "")


def failure_of(text: str) -> SparkFailure | None:
    """Return the kind of failure that a message of Spark reports; None for any other."""
    line = first_line(text)
    found = next((failure for part, failure in _FAILURES.items() if part in line), None)
    return SparkFailure.WRITTEN_MEANWHILE if not found and error_class(text).startswith(_WRITTEN_MEANWHILE) else found


def first_line(text: str) -> str:
    """Return the line of a Spark message that a person needs: the cause, without wrapper, class and stack trace."""
    if ours := _OURS.search(text):
        remedy = _ROWS_WITHOUT_PLACE.get(ours[1], "")
        return ours[2][:_LONGEST] + (f"; {remedy}" if remedy else "")
    if full := _FULL.search(text):
        return full[1]
    body = _TRACEBACK.sub("", text.split("JVM stacktrace:")[0])
    if words := _by_hand(body):
        return words
    if lost := _LOST_FILE.search(body):
        return f"{lost[1]} is not there, which its table names: restore it, or rebuild that table"
    lines = [line.strip() for line in body.splitlines()]
    lines = [line for line in lines if line and not line.startswith(("at ", "== SQL", "=== ", "+- ", "'", "--"))]
    useful = next((line for line in lines if _useful(line)), lines[0] if lines else _NO_MESSAGE)
    useful = _SESSION.sub("", useful)
    useful = re.sub(r"^(?:\([\w.$]+\) |[\w.$]+(?:Exception|Error): )+", "", useful)
    useful = re.sub(r"^\[[A-Z][A-Z0-9_.]*\] ?", "", useful)
    useful = re.sub(r" ?SQLSTATE: \w+(; line \d+ pos \d+;?)?$", r"\1", useful).rstrip(";")
    return useful[: _LONGEST - 1] + "…" if len(useful) > _LONGEST else useful


def _by_hand(text: str) -> str:
    """Return what was done to what a stream of Delta reads; empty where its end is about something else."""
    name = error_class(text)
    words = next((words for begin, words in _BY_HAND.items() if name.startswith(begin)), "")
    at = _VERSION.search(text)
    return words.format(at=f" (version {at[1]})" if at else "")


def _useful(line: str) -> bool:
    """A line that names a class which is not a wrapper."""
    return any(name not in _WRAPPERS for name in _CLASS.findall(line))


def _causes(error: BaseException) -> str:
    """Return what the server says of the causes of an error, with its stack traces."""
    return str(getattr(error, "_stacktrace", None) or "")


def _status(error: BaseException) -> grpc.StatusCode | None:
    if isinstance(error, grpc.Call):
        return error.code()
    read = getattr(error, "getGrpcStatusCode", None)
    code = read() if read is not None else None
    return code if isinstance(code, grpc.StatusCode) else None
