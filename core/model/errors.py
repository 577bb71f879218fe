"""Expected failures: one class per decision that a caller can make, each with an exit code."""

from enum import StrEnum

from core.text.sentence import Sentence


class HeadgateError(Exception):
    """An expected failure, with a sentence on what happened and one on what to do."""

    exit_code = 1

    def __init__(self, summary: str | Sentence, *, remedy: str | Sentence = "") -> None:
        super().__init__(summary)
        self.summary = str(summary)
        self.remedy = str(remedy)

    @property
    def sentence(self) -> str:
        """Summary and remedy in one line."""
        return f"{self.summary}; {self.remedy}" if self.remedy else self.summary

    def add(self, words: str) -> None:
        """Append a clause to the summary."""
        self.summary = f"{self.summary}; {words}"
        self.args = (self.summary,)

    def as_json(self) -> dict[str, str]:
        """Return the error as the object that `--json` prints and the socket carries."""
        return {"class": type(self).__name__, "summary": self.summary, "remedy": self.remedy}


class UsageError(HeadgateError):
    """The command or its arguments are wrong."""

    exit_code = 2


class BadName(UsageError):
    """A name does not follow the rule for its kind."""


class InvalidProject(UsageError):
    """The project has Problems; `problems` holds all of them, as JSON objects."""

    def __init__(self, summary: str, *, remedy: str = "", problems: tuple[dict[str, object], ...] = ()) -> None:
        super().__init__(summary, remedy=remedy)
        self.problems = problems


class Refused(HeadgateError):
    """The request is understood and not allowed."""

    exit_code = 3


class ConfirmationNeeded(Refused):
    """The act needs a typed confirmation that is missing or wrong."""


class Overtaken(Refused):
    """A later act of an operator contradicts the request."""


class NotAdopted(Refused):
    """Data or ledger belong to another environment; refused until an operator adopts them."""


class Stale(Refused):
    """The inputs of the plan have changed within its scope."""


class TryAgain(HeadgateError):
    """Agent, pool or ledger cannot be reached now; retrying the command later may work."""

    exit_code = 4


class Busy(TryAgain):
    """Another act on the same version of a statement is in progress."""


class AgentUnreachable(TryAgain):
    """No agent answers on the environment's socket."""


class PoolUnreachable(TryAgain):
    """The pool did not answer within its deadline, or its circuit is open."""


class LedgerUnavailable(TryAgain):
    """The ledger is locked, full, missing or unreadable."""


class NotRecorded(LedgerUnavailable):
    """The request was carried out but is not recorded in the ledger yet."""


class NotTakenBack(LedgerUnavailable):
    """The request was refused, but its record is still in the ledger; the agent removes it later."""


class VersionMismatch(Refused):
    """The versions of program, agent and ledger are incompatible."""


class SparkFailure(StrEnum):
    """Kinds of Spark errors that decisions depend on."""

    WORKER_DIED = "worker died"
    """The Python process that writes a keyed table has exited."""
    WORKER_LATE = "worker late"
    """That process did not start in time."""
    WRITTEN_MEANWHILE = "written meanwhile"
    """Someone else committed to the table while a batch was being written."""
    EXCLUSIVE_OPTIONS = "exclusive options"
    """Asynchronous progress tracking was combined with a trigger that excludes it."""


class EngineRefused(HeadgateError):
    """Spark refused or failed a request; `error_class` is Spark's own, empty if it gave none."""

    def __init__(
        self, summary: str, *, remedy: str = "", error_class: str = "", failure: SparkFailure | None = None
    ) -> None:
        super().__init__(summary, remedy=remedy)
        self.error_class, self.failure = error_class, failure


ERROR_BY_NAME = {
    name: kind for name, kind in tuple(globals().items()) if isinstance(kind, type) and issubclass(kind, HeadgateError)
}
"""Error classes by the name that `as_json` writes."""


def error_from_json(error: dict[str, str]) -> HeadgateError:
    """Rebuild an error received over the socket; an unknown class becomes a plain HeadgateError."""
    return ERROR_BY_NAME.get(error.get("class", ""), HeadgateError)(
        error.get("summary", ""), remedy=error.get("remedy", "")
    )
