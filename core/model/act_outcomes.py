"""Outcomes of commands, and of operator actions on single versions, as values and as sentences."""

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
    """Spark has accepted a start, but the first batch has not completed yet."""
    DONE = "done"
    RECORDED_LATE = "recorded late"
    """Done, but recorded with a delay because the ledger could not be written at the time."""
    UNCHANGED = "unchanged"
    PARTLY = "partly"
    """Some statements were acted on; others were refused or failed."""
    REFUSED = "refused"
    FAILED = "failed"

    @classmethod
    def of_error(cls, error: HeadgateError) -> Self:
        """Return `refused` for a Refused error and `failed` for any other."""
        return cls.REFUSED if isinstance(error, Refused) else cls.FAILED


NOT_DONE = frozenset({CommandOutcome.PARTLY, CommandOutcome.REFUSED, CommandOutcome.FAILED})
"""Outcomes of commands that were refused or failed for at least some statements."""


class ActResult(StrEnum):
    """The kind of result of an operator action on a version of a table."""

    STARTED = "started"
    RESTARTED = "restarted"
    """Spark has accepted the start; only the first batch will prove that it works."""
    ALREADY_RUNNING = "ran"
    STOPPED = "stopped"
    ALREADY_STOPPED = "rested"
    SENT = "sent"
    """Spark was asked to stop the query and has not confirmed it yet; the agent keeps trying."""
    NOT_SENT = "waits"
    """Spark could not be reached; the agent keeps trying."""
    NOT_STARTED = "not started"
    NOT_RESTARTED = "not restarted"
    NOT_STOPPED = "not stopped"


BEGUN = frozenset({ActResult.STARTED, ActResult.RESTARTED})
"""Results of a start that Spark has accepted but no first batch has confirmed yet."""

UNCHANGED = frozenset({ActResult.ALREADY_RUNNING, ActResult.ALREADY_STOPPED})
"""Results of an action that had nothing to do, because the version was already in the requested state."""

UNCONFIRMED = frozenset({ActResult.SENT, ActResult.NOT_SENT})

FAILED = frozenset({ActResult.NOT_STARTED, ActResult.NOT_RESTARTED, ActResult.NOT_STOPPED})
"""Results of a failed action; `ActOutcome.error` holds the error."""

_SENTENCES = {
    ActResult.ALREADY_RUNNING: "was already running",
    ActResult.ALREADY_STOPPED: "was already stopped",
    ActResult.SENT: "sent, not confirmed",
    ActResult.NOT_SENT: "not sent: the pool does not answer",
}


@dataclass(frozen=True, slots=True)
class ActOutcome:
    """The outcome of an operator action on one version of a table, including its duration and error."""

    table: TableName
    version: int
    result: ActResult
    called_ms: float | None
    """Milliseconds from receiving the command to asking Spark to stop the query; None if Spark was not asked."""
    took_ms: float
    recorded: bool = True
    """False if part of the action would be lost when the agent exits.

    For a stop: neither the ledger nor the emergency journal could record the stop. For the start of a table: the ledger
    records that this version should run, but not that the stop of the other versions has ended.
    """
    error: HeadgateError | None = None
    """The error; set only if `result` is in `FAILED`."""

    @property
    def succeeded(self) -> bool:
        """True if the action is recorded, did not fail, and needs no further confirmation of a stop."""
        return self.recorded and self.result not in UNCONFIRMED | FAILED

    @property
    def outcome(self) -> Sentence:
        """The outcome as a sentence, without its duration."""
        return self.sentence()

    @property
    def recorded_as(self) -> CommandOutcome:
        """The outcome for the command log; `DONE` only if nothing remains to be confirmed."""
        if self.error is not None:
            return CommandOutcome.of_error(self.error)
        if self.result in UNCHANGED:
            return CommandOutcome.UNCHANGED
        return CommandOutcome.ACCEPTED if self.result in BEGUN | UNCONFIRMED else CommandOutcome.DONE

    def sentence(self, took: str = "") -> Sentence:
        """Return the outcome as a sentence; `took` is the duration to include, such as `12 ms`."""
        text = _SENTENCES.get(self.result, self.result.value) + (f": {self.error.summary}" if self.error else "")
        timed = f"{text} in {took}" if took and self.error is None else text
        pending = ", first batch pending" if self.result in BEGUN else ""
        return Sentence(timed + pending + ("" if self.recorded else ", not recorded"))

    def as_json(self) -> dict[str, Any]:
        """Return the outcome as the JSON object that the agent sends to clients and that `--json` prints."""
        return {
            "table": self.table,
            "version": self.version,
            "came": self.result,
            "outcome": str(self.outcome),
            "called_ms": None if self.called_ms is None else round(self.called_ms, 1),
            "took_ms": round(self.took_ms, 1),
            "recorded": self.recorded,
            "error": self.error.as_json() if self.error else None,
        }

    @classmethod
    def from_json(cls, answer: Mapping[str, Any]) -> Self:
        """Rebuild an outcome from the output of `as_json`; an unknown value of `came` is read as `SENT`."""
        given, error = answer.get("came"), answer.get("error")
        return cls(
            table=TableName(str(answer.get("table", "?"))),
            version=int(answer.get("version") or 0),
            result=ActResult(given) if given in tuple(ActResult) else ActResult.SENT,
            called_ms=answer.get("called_ms"),
            took_ms=float(answer.get("took_ms") or 0.0),
            recorded=bool(answer.get("recorded", True)),
            error=error_from_json(error) if error else None,
        )


def outcome_of_all(outcomes: Collection[ActOutcome]) -> CommandOutcome:
    """Combine the outcomes of a command's actions into the outcome of the command.

    The outcome is `PARTLY` if only some actions failed or were refused. If all actions failed or were refused, the
    outcome is `FAILED` if any failed, otherwise `REFUSED`. If none did, it is the first outcome that occurs, in the
    order of `CommandOutcome`. At least one action is required.
    """
    found = {outcome.recorded_as for outcome in outcomes}
    if not (bad := found & NOT_DONE):
        return next(each for each in CommandOutcome if each in found)
    return CommandOutcome.PARTLY if found - bad else max(bad, key=list(CommandOutcome).index)


def exit_code_of_all(outcomes: Collection[ActOutcome]) -> int:
    """Return 0 if every action succeeded, the exit code that all failures share, or 1 if their exit codes differ.

    A failed stop, or an unsuccessful action without an error, has the exit code of `TryAgain`.
    """
    codes = {
        TryAgain.exit_code
        if outcome.error is None or outcome.result is ActResult.NOT_STOPPED
        else outcome.error.exit_code
        for outcome in outcomes
        if not outcome.succeeded
    }
    return codes.pop() if len(codes) == 1 else HeadgateError.exit_code if codes else 0
