"""Expected failures outside us: one class per decision that a caller can make, each with an exit code."""

from core.text.sentence import Sentence


class HeadgateError(Exception):
    """An expected failure; carries one sentence on what happened and one on what to do."""

    exit_code = 1

    def __init__(self, summary: str | Sentence, *, remedy: str | Sentence = "") -> None:
        super().__init__(summary)
        self.summary = str(summary)
        self.remedy = str(remedy)

    @property
    def sentence(self) -> str:
        """Return what happened and what to do in one line, for where only one is kept."""
        return f"{self.summary}; {self.remedy}" if self.remedy else self.summary

    def add(self, words: str) -> None:
        """Say more of what happened."""
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
    """The act asks for a typed text that was not given, or was given wrong."""


class Overtaken(Refused):
    """A later word of an operator stands against what was asked."""


class NotAdopted(Refused):
    """Something is of another world than the ledger: refused until an operator adopts it."""


class Stale(Refused):
    """What the plan was computed from has changed inside its scope."""


class TryAgain(HeadgateError):
    """Agent, pool or ledger cannot be reached now; the same command may work later."""

    exit_code = 4


class Busy(TryAgain):
    """Somebody else is acting on the same version of a statement right now."""


class AgentUnreachable(TryAgain):
    """No agent answers on the environment's socket."""


class PoolUnreachable(TryAgain):
    """The pool did not answer within its deadline, or its circuit is open."""


class LedgerUnavailable(TryAgain):
    """The ledger is locked, full, missing or unreadable."""


class NotRecorded(LedgerUnavailable):
    """What was asked is done, and the ledger does not have it yet."""


class NotTakenBack(LedgerUnavailable):
    """What was asked is refused, and the ledger keeps that it was: the agent does it when it can."""


class VersionMismatch(Refused):
    """Program, agent and ledger are of versions that cannot work together."""


class EngineRefused(HeadgateError):
    """Spark refused or failed what was asked; `error_class` is Spark's own, empty when it gave none."""

    def __init__(self, summary: str, *, remedy: str = "", error_class: str = "") -> None:
        super().__init__(summary, remedy=remedy)
        self.error_class = error_class


ERROR_BY_NAME = {
    kind.__name__: kind
    for kind in (
        HeadgateError,
        UsageError,
        BadName,
        InvalidProject,
        Refused,
        ConfirmationNeeded,
        Overtaken,
        NotAdopted,
        Stale,
        TryAgain,
        Busy,
        AgentUnreachable,
        PoolUnreachable,
        LedgerUnavailable,
        NotRecorded,
        NotTakenBack,
        VersionMismatch,
        EngineRefused,
    )
}
"""The classes by the name that `as_json` writes, to raise on this side what was refused on the other."""


def error_from_json(error: dict[str, str]) -> HeadgateError:
    """Rebuild an error that came over the socket; an unknown class becomes a plain HeadgateError."""
    return ERROR_BY_NAME.get(error.get("class", ""), HeadgateError)(
        error.get("summary", ""), remedy=error.get("remedy", "")
    )
