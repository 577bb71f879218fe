"""Outcomes of commands and of operator acts on single statements, as facts with the sentence made from them."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Self

from core.model.errors import HeadgateError, Refused, TryAgain, error_from_json
from core.model.names import TableName
from core.text.sentence import Sentence


class CommandOutcome(StrEnum):
    """The outcome of a command, as stored in the command log and the audit log."""

    ACCEPTED = "accepted"
    """Started, but not yet proven by a first batch."""
    DONE = "done"
    RECORDED_LATE = "recorded late"
    """Done, but recorded later, because the ledger could not be written at that time."""
    UNCHANGED = "unchanged"
    PARTLY = "partly"
    """Some statements were acted on, and others were refused or failed."""
    REFUSED = "refused"
    FAILED = "failed"

    @classmethod
    def of_error(cls, error: HeadgateError) -> Self:
        """Return the outcome of a command that ended with an error."""
        return cls.REFUSED if isinstance(error, Refused) else cls.FAILED


NOT_DONE = frozenset({CommandOutcome.PARTLY, CommandOutcome.REFUSED, CommandOutcome.FAILED})
"""Outcomes of commands, or parts of commands, that were not carried out."""


class Came(StrEnum):
    """The result of one act on one version."""

    STARTED = "started"
    RESTARTED = "restarted"
    """Spark has accepted the start; the first batch will prove that it works."""
    RAN = "ran"
    STOPPED = "stopped"
    RESTED = "rested"
    SENT = "sent"
    """Spark was asked to stop the query and has not confirmed it yet; the agent keeps trying."""
    WAITS = "waits"
    """Spark could not be reached; the agent keeps trying."""
    NOT_STARTED = "not started"
    NOT_RESTARTED = "not restarted"
    NOT_STOPPED = "not stopped"


BEGUN = frozenset({Came.STARTED, Came.RESTARTED})
"""Accepted by Spark, first batch pending."""

UNCHANGED = frozenset({Came.RAN, Came.RESTED})
"""Nothing had to be done."""

UNCONFIRMED = frozenset({Came.SENT, Came.WAITS})

FAILED = frozenset({Came.NOT_STARTED, Came.NOT_RESTARTED, Came.NOT_STOPPED})
"""Acts that failed; the outcome carries the error."""

_WORDS = {
    Came.RAN: "was running already",
    Came.RESTED: "was stopped already",
    Came.SENT: "sent, not confirmed",
    Came.WAITS: "not sent: the pool does not answer",
}


@dataclass(frozen=True, slots=True)
class ActOutcome:
    """The outcome of an act on one version of a table."""

    table: TableName
    version: int
    came: Came
    called_ms: float | None
    """From the command's arrival to Spark's stop being called; None when it was not."""
    took_ms: float
    recorded: bool = True
    """False if part of the act would be lost when the agent ends.

    For a stop, neither the ledger nor the emergency journal could record it. For the start of a table, the ledger
    records that this version should run, but not that the stop of the other versions has ended.
    """
    error: HeadgateError | None = None
    """Set only if `came` is in `FAILED`."""

    @property
    def succeeded(self) -> bool:
        """True if the act is recorded and Spark has accepted it."""
        return self.recorded and self.came not in UNCONFIRMED | FAILED

    @property
    def outcome(self) -> Sentence:
        """The outcome as a sentence."""
        return self.words()

    @property
    def recorded_as(self) -> CommandOutcome:
        """The outcome as that of a command: `DONE` only if nothing is left to be confirmed."""
        if self.error is not None:
            return CommandOutcome.of_error(self.error)
        if self.came in UNCHANGED:
            return CommandOutcome.UNCHANGED
        return CommandOutcome.ACCEPTED if self.came in BEGUN | UNCONFIRMED else CommandOutcome.DONE

    def words(self, took: str = "") -> Sentence:
        """Return the outcome as a sentence; `took` is the duration to include, such as `12 ms`."""
        said = _WORDS.get(self.came, self.came.value) + (f": {self.error.summary}" if self.error else "")
        timed = f"{said} in {took}" if took and self.error is None else said
        pending = ", first batch pending" if self.came in BEGUN else ""
        return Sentence(timed + pending + ("" if self.recorded else ", not recorded"))

    def as_json(self) -> dict[str, Any]:
        """Return the outcome as the agent's answer, which `--json` prints."""
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
        """Read the output of `as_json`; an unknown result from another release counts as unconfirmed."""
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
    """Combine the outcomes of several acts into the outcome of their command."""
    found = {outcome.recorded_as for outcome in outcomes}
    if not (bad := found & NOT_DONE):
        return next(each for each in CommandOutcome if each in found)
    return CommandOutcome.PARTLY if found - bad else max(bad, key=list(CommandOutcome).index)


def exit_code_of_all(outcomes: Collection[ActOutcome]) -> int:
    """Return 0 if every act succeeded, else the common exit code of the failures, or 1 if they differ.

    A stop that Spark refused or has not confirmed counts as "try again", since the agent keeps trying.
    """
    codes = {
        TryAgain.exit_code if outcome.error is None or outcome.came is Came.NOT_STOPPED else outcome.error.exit_code
        for outcome in outcomes
        if not outcome.succeeded
    }
    return codes.pop() if len(codes) == 1 else HeadgateError.exit_code if codes else 0
