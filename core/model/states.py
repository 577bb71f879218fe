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
    """A fault of a statement that needs an operator."""

    NONE = ""
    FAILED = "failed"
    STALLED = "stalled"
    STARVED = "starved"
    BEHIND = "behind"


class TableFaultKind(StrEnum):
    """What happened to a table that a statement reads or writes; the value is the statement's error class."""

    REPLACED = "HEADGATE_TABLE_REPLACED"
    """Another table, or an older copy, is in its place."""
    GONE = "HEADGATE_TABLE_GONE"
    COLUMNS_CHANGED = "HEADGATE_COLUMNS_CHANGED_BY_HAND"
    """Columns or properties differ from before or from the declaration."""
    STREAM_COLUMNS_CHANGED = "HEADGATE_STREAM_COLUMNS_CHANGED_BY_HAND"
    """A column of a streamed table was renamed or dropped; a stream with `schema_tracking` survives that."""
    ROWS_CHANGED = "HEADGATE_ROWS_CHANGED_BY_HAND"
    FILES_GONE = "HEADGATE_FILES_DELETED"
    LOG_GONE = "HEADGATE_LOG_DELETED"
    """Its log starts after the version to be read next."""
    LOG_UNREAD = "HEADGATE_LOG_NOT_READ"
    """Its log cannot be read now, or needs a feature that is not supported."""
    NOT_IN_CATALOG = "HEADGATE_NOT_IN_CATALOG"
    """The pool's catalog refused it."""


class WantedState(StrEnum):
    """The state in which operators want a deployment to be."""

    RUNNING = "running"
    STOPPED = "stopped"


STATES_WORST_FIRST = (
    State.FAILED, State.DEGRADED, State.UNKNOWN, State.STARTING, State.STOPPING, State.PENDING, State.STOPPED,
    State.ABSENT, State.COMPLETED, State.RUNNING,
)  # fmt: skip
TRENDS_WORST_FIRST = (
    Trend.STALLED, Trend.STARVED, Trend.GROWING, Trend.DRAINING, Trend.STEADY, Trend.UNKNOWN, Trend.IDLE,
)  # fmt: skip
"""A summary of many shows the first of these that occurs."""


ALIVE = frozenset({State.STARTING, State.RUNNING, State.DEGRADED})
"""States in which a query is known to exist."""

MAY_WORK = ALIVE | {State.UNKNOWN}
"""States in which a query may exist; only its commits prove progress."""

AT_REST = frozenset({State.STOPPED, State.FAILED, State.COMPLETED})
"""States without a query; none is started while the statement is wanted stopped."""

_WELL_OR_AT_REST = AT_REST - {State.FAILED} | {State.RUNNING, State.ABSENT}


def stays_at_rest(state: str, wanted: str) -> bool:
    """True if a statement is stopped and wanted stopped, so that its inputs may be removed."""
    return state in AT_REST and wanted == WantedState.STOPPED


def summary_state(states: Collection[State]) -> State:
    """Return the state shown for many: the worst, but `running` rather than a healthy rest; `absent` for none."""
    found = [state for state in STATES_WORST_FIRST if state in states]
    worst = found[0] if found else State.ABSENT
    return State.RUNNING if State.RUNNING in found and worst in _WELL_OR_AT_REST else worst


def worst_trend(trends: Iterable[Trend]) -> Trend:
    """Return the trend shown for many: the worst; `unknown` for none."""
    return min(trends, key=TRENDS_WORST_FIRST.index, default=Trend.UNKNOWN)


def counts_for_many(trend: Trend, state: State, lag_rows: int | None) -> bool:
    """True if a trend belongs into a summary of many; `unknown` does not if no input can be pending."""
    return trend is not Trend.UNKNOWN or (lag_rows != 0 and state is not State.ABSENT)
