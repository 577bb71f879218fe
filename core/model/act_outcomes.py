"""What comes of a command, and of an operator's act on one statement: facts, and the sentence made from them."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Self

from core.model.errors import HeadgateError, Refused, TryAgain, error_from_json
from core.model.names import TableName
from core.text.sentence import Sentence


class CommandOutcome(StrEnum):
    """What came of a command, as its row in the log and its entries of the audit have it."""

    ACCEPTED = "accepted"
    """Begun, not proved."""
    DONE = "done"
    UNCHANGED = "unchanged"
    PARTLY = "partly"
    """Some statements were acted on, and others were refused or failed."""
    REFUSED = "refused"
    FAILED = "failed"

    @classmethod
    def of_error(cls, error: HeadgateError) -> Self:
        """Return what came of a command that ended with an error."""
        return cls.REFUSED if isinstance(error, Refused) else cls.FAILED


NOT_DONE = frozenset({CommandOutcome.PARTLY, CommandOutcome.REFUSED, CommandOutcome.FAILED})
"""Of a command, or of a part of it."""


class Came(StrEnum):
    """What came of an act."""

    STARTED = "started"
    RESTARTED = "restarted"
    """Spark has taken it; that it works, its first batch proves."""
    RAN = "ran"
    STOPPED = "stopped"
    RESTED = "rested"
    SENT = "sent"
    """Spark was called and has not confirmed that the query is gone: the agent goes on with it."""
    WAITS = "waits"
    """Spark could not be called: the agent goes on with it."""
    NOT_STARTED = "not started"
    NOT_RESTARTED = "not restarted"
    NOT_STOPPED = "not stopped"


BEGUN = frozenset({Came.STARTED, Came.RESTARTED})
"""Taken by Spark, first batch pending."""

UNCHANGED = frozenset({Came.RAN, Came.RESTED})
"""It was so already."""

UNCONFIRMED = frozenset({Came.SENT, Came.WAITS})

FAILED = frozenset({Came.NOT_STARTED, Came.NOT_RESTARTED, Came.NOT_STOPPED})
"""With the error that says why."""

_WORDS = {
    Came.RAN: "was running already",
    Came.RESTED: "was stopped already",
    Came.SENT: "sent, not confirmed",
    Came.WAITS: "not sent: the pool does not answer",
}


@dataclass(frozen=True, slots=True)
class ActOutcome:
    """What came of an act on one version of a table."""

    table: TableName
    version: int
    came: Came
    called_ms: float | None
    """From the command's arrival to Spark's stop being called; None when it was not."""
    took_ms: float
    recorded: bool = True
    """False where an agent that ends forgets a part of it.

    Of a stop: neither ledger nor emergency journal took it. Of a start of a table: the ledger has that this version is
    to run, and not that the stop of the other ones has ended.
    """
    error: HeadgateError | None = None
    """Of `FAILED`."""

    @property
    def succeeded(self) -> bool:
        """Return whether the act is recorded, and Spark has taken it."""
        return self.recorded and self.came not in UNCONFIRMED | FAILED

    @property
    def outcome(self) -> Sentence:
        """Return what came of it in words."""
        return self.words()

    @property
    def recorded_as(self) -> CommandOutcome:
        """Return it as the outcome of a command: what has only begun, or was not confirmed, is not done."""
        if self.error is not None:
            return CommandOutcome.of_error(self.error)
        if self.came in UNCHANGED:
            return CommandOutcome.UNCHANGED
        return CommandOutcome.ACCEPTED if self.came in BEGUN | UNCONFIRMED else CommandOutcome.DONE

    def words(self, took: str = "") -> Sentence:
        """Write what came of it, with how long the act took, such as `12 ms`, where that is given."""
        said = _WORDS.get(self.came, self.came.value) + (f": {self.error.summary}" if self.error else "")
        timed = f"{said} in {took}" if took and self.error is None else said
        pending = ", first batch pending" if self.came in BEGUN else ""
        return Sentence(timed + pending + ("" if self.recorded else ", not recorded"))

    def as_json(self) -> dict[str, Any]:
        """Return the outcome as the agent answers it, and as `--json` prints it."""
        return {
            "table": self.table,
            "version": self.version,
            "came": self.came,
            "outcome": str(self.outcome),
            "called_ms": None if self.called_ms is None else round(self.called_ms, 1),
            "took_ms": round(self.took_ms, 1),
            "recorded": self.recorded,
            "error": self.error.as_json() if self.error else None,
        }

    @classmethod
    def from_json(cls, answer: Mapping[str, Any]) -> Self:
        """Read what `as_json` wrote; what an agent of another release answers is not taken for a proof."""
        came, error = answer.get("came"), answer.get("error")
        return cls(
            table=TableName(str(answer.get("table", "?"))),
            version=int(answer.get("version") or 0),
            came=Came(came) if came in tuple(Came) else Came.SENT,
            called_ms=answer.get("called_ms"),
            took_ms=float(answer.get("took_ms") or 0.0),
            recorded=bool(answer.get("recorded", True)),
            error=error_from_json(error) if error else None,
        )


def outcome_of_all(outcomes: Collection[ActOutcome]) -> CommandOutcome:
    """Return what came of a command on several statements."""
    found = {outcome.recorded_as for outcome in outcomes}
    if not (bad := found & NOT_DONE):
        return next(each for each in CommandOutcome if each in found)
    return CommandOutcome.PARTLY if found - bad else max(bad, key=list(CommandOutcome).index)


def exit_code_of_all(outcomes: Collection[ActOutcome]) -> int:
    """Return 0 where each act is proved to have been taken; else what a script is to do about those that were not.

    With a stop that Spark has refused or not confirmed the agent goes on while it lives.
    """
    codes = {
        TryAgain.exit_code if outcome.error is None or outcome.came is Came.NOT_STOPPED else outcome.error.exit_code
        for outcome in outcomes
        if not outcome.succeeded
    }
    return codes.pop() if len(codes) == 1 else HeadgateError.exit_code if codes else 0
