"""Kinds and causes of ledger events, and the sentence for a change of state."""

from dataclasses import dataclass
from enum import StrEnum

from core.model.states import State
from core.text.sentence import Sentence


class EventKind(StrEnum):
    """The subject of an event."""

    STATE = "state"
    EXCEPTION = "exception"
    POOL = "pool"
    RUN = "run"
    TICKET = "ticket"
    CLOCK = "clock"
    WORLD = "world"
    AGENT = "agent"
    MISSED = "missed"
    """A table started to miss its objective."""
    MET = "met"


class EventCause(StrEnum):
    """What caused an event; operator acts and runs are also recorded elsewhere."""

    NONE = ""
    STOP = "stop"
    START = "start"
    RESTART = "restart"
    RUN = "run"
    WANTED = "wanted"
    """The agent restored the wanted state."""


DONE_BY = {
    EventCause.STOP: "stopped by ",
    EventCause.START: "started by ",
    EventCause.RESTART: "restarted by ",
    EventCause.RUN: "by run ",
}
"""Causes that a command or a run records as well, with the words before their author."""

FAULTY = frozenset({State.FAILED, State.DEGRADED, State.UNKNOWN})


@dataclass(frozen=True, slots=True)
class StateChange:
    """A version's change from one state to another, and its cause."""

    before: str
    after: State
    cause: EventCause = EventCause.NONE
    by: str = ""
    """A login, or the id of a run; empty if nobody caused it."""

    @property
    def sentence(self) -> Sentence:
        """The change as a sentence; equal states read as a repetition."""
        change = f"{self.after} again" if self.before == self.after else f"{self.before} → {self.after}"
        return Sentence(f"{change}, {DONE_BY[self.cause]}{self.by}" if self.cause in DONE_BY else change)
