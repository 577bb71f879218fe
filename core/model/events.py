"""Kinds and causes of ledger events, and the sentence for a change of state."""

from dataclasses import dataclass
from enum import StrEnum

from core.model.states import State
from core.text.sentence import Sentence


class EventKind(StrEnum):
    """The subject of an event, such as a version's state, the pool or a run."""

    STATE = "state"
    EXCEPTION = "exception"
    POOL = "pool"
    RUN = "run"
    TICKET = "ticket"
    CLOCK = "clock"
    WORLD = "world"
    AGENT = "agent"
    MISSED = "missed"
    """A table has begun to miss its lag objective."""
    MET = "met"


class EventCause(StrEnum):
    """What caused an event: an operator's command, a run, or the agent."""

    NONE = ""
    STOP = "stop"
    START = "start"
    RESTART = "restart"
    RUN = "run"
    WANTED = "wanted"
    """The agent restored the desired state."""


DONE_BY = {
    EventCause.STOP: "stopped by ",
    EventCause.START: "started by ",
    EventCause.RESTART: "restarted by ",
    EventCause.RUN: "by run ",
}
"""The words that precede the name of the operator or run, for causes whose sentence contains such a name."""

FAULTY = frozenset({State.FAILED, State.DEGRADED, State.UNKNOWN})


@dataclass(frozen=True, slots=True)
class StateChange:
    """A change of a version's state, with its cause."""

    before: str
    after: State
    cause: EventCause = EventCause.NONE
    by: str = ""
    """The login of an operator or the id of a run; empty if neither caused the change."""

    @property
    def sentence(self) -> Sentence:
        """The change as a sentence; a change to the same state reads as `failed again`."""
        change = f"{self.after} again" if self.before == self.after else f"{self.before} → {self.after}"
        return Sentence(f"{change}, {DONE_BY[self.cause]}{self.by}" if self.cause in DONE_BY else change)
