"""The closed lists of the product: the same words on screen, in JSON, in filters and in the ledger."""

from collections.abc import Collection, Iterable
from enum import StrEnum


class State(StrEnum):
    """What a statement is doing."""

    ABSENT = "absent"
    PENDING = "pending"
    STARTING = "starting"
    RUNNING = "running"
    DEGRADED = "degraded"
    FAILED = "failed"
    STOPPING = "stopping"
    STOPPED = "stopped"
    COMPLETED = "completed"
    UNKNOWN = "unknown"


class Trend(StrEnum):
    """Where the lag of a statement is going."""

    DRAINING = "draining"
    STEADY = "steady"
    GROWING = "growing"
    STALLED = "stalled"
    STARVED = "starved"
    IDLE = "idle"
    UNKNOWN = "unknown"


class Fault(StrEnum):
    """What is wrong with a statement and asks for an operator."""

    NONE = ""
    FAILED = "failed"
    STALLED = "stalled"
    STARVED = "starved"
    BEHIND = "behind"


class TableFaultKind(StrEnum):
    """What became of a table that a statement reads or writes; the value is the class of the statement's error."""

    REPLACED = "HEADGATE_TABLE_REPLACED"
    """Another table lies in its place, or an older copy of it."""
    GONE = "HEADGATE_TABLE_GONE"
    COLUMNS_CHANGED = "HEADGATE_COLUMNS_CHANGED_BY_HAND"
    """Columns or properties are not as they were, or not as declared."""
    STREAM_COLUMNS_CHANGED = "HEADGATE_STREAM_COLUMNS_CHANGED_BY_HAND"
    """A column of what is streamed was renamed or dropped; with `schema_tracking` a stream goes on over that."""
    ROWS_CHANGED = "HEADGATE_ROWS_CHANGED_BY_HAND"
    FILES_GONE = "HEADGATE_FILES_DELETED"
    LOG_GONE = "HEADGATE_LOG_DELETED"
    """Its log begins behind what is to be read next."""
    LOG_UNREAD = "HEADGATE_LOG_NOT_READ"
    """Its log cannot be read now, or asks for what is not read here: nobody can say what it holds."""
    NOT_IN_CATALOG = "HEADGATE_NOT_IN_CATALOG"
    """The pool's catalog has refused it."""


class WantedState(StrEnum):
    """What the operators want of a deployment."""

    RUNNING = "running"
    STOPPED = "stopped"


STATES_WORST_FIRST = (
    State.FAILED, State.DEGRADED, State.UNKNOWN, State.STARTING, State.STOPPING, State.PENDING, State.STOPPED,
    State.ABSENT, State.COMPLETED, State.RUNNING,
)  # fmt: skip
TRENDS_WORST_FIRST = (
    Trend.STALLED, Trend.STARVED, Trend.GROWING, Trend.DRAINING, Trend.STEADY, Trend.UNKNOWN, Trend.IDLE,
)  # fmt: skip
"""What is shown of many: the first of these that one of them has."""


ALIVE = frozenset({State.STARTING, State.RUNNING, State.DEGRADED})
"""A query of it is there, as far as is known."""

MAY_WORK = ALIVE | {State.UNKNOWN}
"""A query of it is there, or nobody can say: what it commits shows, whatever the pool answers."""

AT_REST = frozenset({State.STOPPED, State.FAILED, State.COMPLETED})
"""No query of it is there, and none comes by itself while it is wanted stopped."""

_WELL_OR_AT_REST = AT_REST - {State.FAILED} | {State.RUNNING, State.ABSENT}


def stays_at_rest(state: str, wanted: str) -> bool:
    """Return whether a statement does nothing and is to do nothing: what it reads may go."""
    return state in AT_REST and wanted == WantedState.STOPPED


def summary_state(states: Collection[State]) -> State:
    """Return the one state that is shown of many: the worst, but running before what merely rests; absent of none."""
    found = [state for state in STATES_WORST_FIRST if state in states]
    worst = found[0] if found else State.ABSENT
    return State.RUNNING if State.RUNNING in found and worst in _WELL_OR_AT_REST else worst


def worst_trend(trends: Iterable[Trend]) -> Trend:
    """Return the one trend that is shown of many; unknown of none."""
    return min(trends, key=TRENDS_WORST_FIRST.index, default=Trend.UNKNOWN)


def counts_for_many(trend: Trend, state: State, lag_rows: int | None) -> bool:
    """Return whether a trend counts for what is shown of many: unknown does not, where no input can wait."""
    return trend is not Trend.UNKNOWN or (lag_rows != 0 and state is not State.ABSENT)
