"""Expected failures: an exception class, with an exit code, for each case that callers handle differently."""

from enum import StrEnum
from typing import Any

from core.text.sentence import Sentence

FREE_SPACE = "free some space, or write to another disk"
"""Remedy for a file that cannot be written because the disk is full."""

JOB_ERRORS = "HEADGATE_JOB_"
"""Beginning of the error classes of faults in the code of a job in Python."""


class HeadgateError(Exception):
    """An expected failure, with a summary of what happened and a remedy."""

    exit_code = 1

    def __init__(self, summary: str | Sentence, *, remedy: str | Sentence = "") -> None:
        super().__init__(summary)
        self.summary = str(summary)
        self.remedy = str(remedy)

    @property
    def sentence(self) -> str:
        """The summary and the remedy in one line."""
        return f"{self.summary}; {self.remedy}" if self.remedy else self.summary

    def add(self, words: str) -> None:
        """Append a clause to the summary, after a semicolon."""
        self.summary = f"{self.summary}; {words}"
        self.args = (self.summary,)

    def as_json(self) -> dict[str, str]:
        """Return the error as the object that `--json` prints and the socket transfers."""
        return {"class": type(self).__name__, "summary": self.summary, "remedy": self.remedy}


class UsageError(HeadgateError):
    """Raised if the command or its arguments are wrong."""

    exit_code = 2


class BadName(UsageError):
    """Raised for a name that violates the rule for its kind."""


class InvalidProject(UsageError):
    """Raised if the project has Problems; `problems` holds all of them, as JSON objects."""

    def __init__(self, summary: str, *, remedy: str = "", problems: tuple[dict[str, object], ...] = ()) -> None:
        super().__init__(summary, remedy=remedy)
        self.problems = problems


class Refused(HeadgateError):
    """Raised if a request is understood but not allowed."""

    exit_code = 3


class ConfirmationNeeded(Refused):
    """Raised if the typed confirmation of an action is missing or wrong."""


class Overtaken(Refused):
    """Raised if an operator has since issued a command that contradicts the request."""


class NotAdopted(Refused):
    """Raised if the data or the ledger belong to another environment, and no operator has adopted them."""


class Stale(Refused):
    """Raised if something that the plan depends on has changed since the plan was made."""


class TryAgain(HeadgateError):
    """Raised if the agent, the pool or the ledger cannot be reached; retrying the command later may work."""

    exit_code = 4


class Busy(TryAgain):
    """Raised if another action on the same version of a statement is in progress."""


class AgentUnreachable(TryAgain):
    """Raised if no agent answers on the environment's socket."""


class PoolUnreachable(TryAgain):
    """Raised if the pool did not answer before the deadline, or the circuit breaker is open."""


class StoreUnreachable(TryAgain):
    """Raised if a store of tables and checkpoints does not answer, or asks to try again."""


class LedgerUnavailable(TryAgain):
    """Raised if the ledger is locked, full, missing or unreadable."""


class NotRecorded(LedgerUnavailable):
    """Raised if a request was carried out but could not be recorded in the ledger yet."""


class NotTakenBack(LedgerUnavailable):
    """Raised if a request was refused but its record stays in the ledger until the agent removes it."""


OUTAGES = (PoolUnreachable, StoreUnreachable, LedgerUnavailable, Busy)
"""Errors that a step of a run waits out. A step fails at once on any other error."""


class VersionMismatch(Refused):
    """Raised if the versions of the program, the agent and the ledger are incompatible."""


class SparkFailure(StrEnum):
    """Kinds of Spark errors that Headgate recognizes because they need special handling."""

    WORKER_DIED = "worker died"
    """The Python process that writes a keyed table has exited."""
    WORKER_LATE = "worker late"
    """The Python process that writes a keyed table did not start in time."""
    WRITTEN_MEANWHILE = "written meanwhile"
    """A write conflicted with a concurrent commit to a Delta table."""
    DATABASE_LOST = "database lost"
    """The connection to a database that a batch reads was refused or has ended."""
    BROKERS_LOST = "brokers lost"
    """The Kafka brokers of an input or a target have stopped answering."""
    NEW_SCHEMA = "new schema"
    """A message has a schema that was unknown when the statement was started."""
    EXCLUSIVE_OPTIONS = "exclusive options"
    """Asynchronous progress tracking was combined with a trigger that does not support it."""


class EngineRefused(HeadgateError):
    """Raised if Spark refused or failed a request; `error_class` is Spark's error class, empty if it gave none."""

    def __init__(
        self, summary: str, *, remedy: str = "", error_class: str = "", failure: SparkFailure | None = None
    ) -> None:
        super().__init__(summary, remedy=remedy)
        self.error_class, self.failure = error_class, failure


ERROR_BY_NAME = {
    name: kind for name, kind in tuple(globals().items()) if isinstance(kind, type) and issubclass(kind, HeadgateError)
}
"""Error classes by the name that `as_json` writes."""


PROBLEMS_SENT = 20
PROBLEM_TEXT_LIMIT = 500
"""Maximum number of Problems that the agent sends with an error, and the maximum number of characters of each text.

The texts may quote a caller's files, which may have any length.
"""


def error_as_message(error: HeadgateError) -> dict[str, object]:
    """Return an error as the agent sends it over the socket: as JSON, with its first Problems if it has any."""
    found: dict[str, object] = {**error.as_json()}
    if isinstance(error, InvalidProject) and error.problems:
        found["problems"] = [
            {key: value[:PROBLEM_TEXT_LIMIT] if isinstance(value, str) else value for key, value in problem.items()}
            for problem in error.problems[:PROBLEMS_SENT]
        ]
    return found


def error_from_json(error: dict[str, Any]) -> HeadgateError:
    """Rebuild an error received over the socket; an error of an unknown class becomes a plain HeadgateError."""
    found = ERROR_BY_NAME.get(error.get("class", ""), HeadgateError)(
        error.get("summary", ""), remedy=error.get("remedy", "")
    )
    if isinstance(found, InvalidProject):
        found.problems = tuple(problem for problem in error.get("problems", ()) if isinstance(problem, dict))
    return found
