"""What the ledger's events are of: closed kinds and causes, and the one sentence of a change of state."""

from dataclasses import dataclass
from enum import StrEnum

from core.model.states import State
from core.text.sentence import Sentence


class EventKind(StrEnum):
    """What an event is about."""

    STATE = "state"
    EXCEPTION = "exception"
    POOL = "pool"
    RUN = "run"
    TICKET = "ticket"
    CLOCK = "clock"
    WORLD = "world"
    AGENT = "agent"
    MISSED = "missed"
    """A table begins to miss its objective."""
    MET = "met"


class EventCause(StrEnum):
    """Who or what has made an event; an operator's act and a run tell of it themselves."""

    NONE = ""
    STOP = "stop"
    START = "start"
    RESTART = "restart"
    RUN = "run"
    WANTED = "wanted"
    """The agent has carried out what was wanted before."""


DONE_BY = {
    EventCause.STOP: "stopped by ",
    EventCause.START: "started by ",
    EventCause.RESTART: "restarted by ",
    EventCause.RUN: "by run ",
}
"""Causes that are told by a command or a run as well, with what stands before its author."""

FAULTY = frozenset({State.FAILED, State.DEGRADED, State.UNKNOWN})


@dataclass(frozen=True, slots=True)
class StateChange:
    """From which state a version has come to which, and who has done it."""

    before: str
    after: State
    cause: EventCause = EventCause.NONE
    by: str = ""
    """A login, or the id of a run; empty where it came by itself."""

    @property
    def sentence(self) -> Sentence:
        """What people read; what was repeated has changed nothing."""
        change = f"{self.after} again" if self.before == self.after else f"{self.before} → {self.after}"
        return Sentence(f"{change}, {DONE_BY[self.cause]}{self.by}" if self.cause in DONE_BY else change)
