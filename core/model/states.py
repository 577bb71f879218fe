"""Closed lists of states, trends and faults, spelled the same on screen, in JSON, in filters and in the ledger."""

from collections.abc import Collection, Iterable
from enum import StrEnum


class State(StrEnum):
    """The observed state of a statement."""

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
    """Whether a statement's lag is growing or draining, or why it is neither."""

    DRAINING = "draining"
    STEADY = "steady"
    GROWING = "growing"
    STALLED = "stalled"
    STARVED = "starved"
    IDLE = "idle"
    UNKNOWN = "unknown"


class Fault(StrEnum):
    """A state in which a statement needs operator intervention."""

    NONE = ""
    FAILED = "failed"
    STALLED = "stalled"
    STARVED = "starved"
    BEHIND = "behind"


class TableFaultKind(StrEnum):
    """What is wrong with a table that a statement reads or writes; its value becomes the statement's error class."""

    REPLACED = "HEADGATE_TABLE_REPLACED"
    """The table was replaced by another table or by an older copy of itself."""
    GONE = "HEADGATE_TABLE_GONE"
    COLUMNS_CHANGED = "HEADGATE_COLUMNS_CHANGED_BY_HAND"
    """Columns or properties of the table have changed, or differ from the declaration."""
    STREAM_COLUMNS_CHANGED = "HEADGATE_STREAM_COLUMNS_CHANGED_BY_HAND"
    """A column of a streamed table was renamed or dropped; only streams with `schema_tracking` can continue."""
    ROWS_CHANGED = "HEADGATE_ROWS_CHANGED_BY_HAND"
    FILES_GONE = "HEADGATE_FILES_DELETED"
    LOG_GONE = "HEADGATE_LOG_DELETED"
    """The table's log no longer contains the version that must be read next."""
    UNREAD = "HEADGATE_INPUT_NOT_READ"
    """The table cannot be read now, because its log, broker or database does not answer, or is not supported."""
    NOT_FED = "HEADGATE_INPUT_NOT_FILLED"
    """No message has arrived for longer than the table's yml allows, or the connector that writes them does not run."""
    NOT_IN_CATALOG = "HEADGATE_NOT_IN_CATALOG"
    """The pool's catalog did not accept the table."""
    NOT_REFRESHED = "HEADGATE_NOT_REFRESHED"
    """The rows of a database table could not be copied again; readers use the last copy."""


UNUSABLE_INPUT = frozenset({TableFaultKind.UNREAD, TableFaultKind.GONE, TableFaultKind.NOT_FED})
"""Faults of an external table with which its readers get no new rows, or fail."""


class PoolState(StrEnum):
    """The state of a pool, as its agent last saw it, from the least to the most urgent."""

    UP = "up"
    OFF = "off"
    STARTING = "starting"
    """Its server or its session is new, and its catalog or its statements are not complete."""
    SILENT = "silent"
    """It does not answer, and may recover."""
    DEGRADED = "degraded"
    """It answers, but its cluster has a fault."""
    DOWN = "down"
    FAILED = "failed"
    """It died too often, and is started again only on request."""

    @property
    def urgency(self) -> int:
        """Rank among the states; 0 is the least urgent."""
        return _BY_URGENCY.index(self)

    @property
    def answers(self) -> bool:
        """True if the pool can be asked, or soon can."""
        return self in (PoolState.UP, PoolState.DEGRADED, PoolState.STARTING)

    @property
    def is_fault(self) -> bool:
        """True unless the pool is up, starting or switched off."""
        return self.urgency >= PoolState.SILENT.urgency


_BY_URGENCY = tuple(PoolState)


class WantedState(StrEnum):
    """The desired state of a version, as requested by an operator or a run."""

    RUNNING = "running"
    STOPPED = "stopped"


STATES_WORST_FIRST = (
    State.FAILED, State.DEGRADED, State.UNKNOWN, State.STARTING, State.STOPPING, State.PENDING, State.STOPPED,
    State.ABSENT, State.COMPLETED, State.RUNNING,
)  # fmt: skip
TRENDS_WORST_FIRST = (
    Trend.STALLED, Trend.STARVED, Trend.GROWING, Trend.DRAINING, Trend.STEADY, Trend.UNKNOWN, Trend.IDLE,
)  # fmt: skip
"""Trends by severity; a summary of many statements shows the first one that occurs."""


ALIVE = frozenset({State.STARTING, State.RUNNING, State.DEGRADED})
"""States in which a query is known to exist."""

MAY_WORK = ALIVE | {State.UNKNOWN}
"""States in which a query may exist; in the state `unknown`, only commits show that the query makes progress."""

AT_REST = frozenset({State.STOPPED, State.FAILED, State.COMPLETED})
"""States without a query; the agent starts none while the desired state is `stopped`."""

_WELL_OR_AT_REST = AT_REST - {State.FAILED} | {State.RUNNING, State.ABSENT}


def stays_at_rest(state: str, wanted: str) -> bool:
    """True if a statement has no query and should stay stopped, so that its inputs may be removed."""
    return state in AT_REST and wanted == WantedState.STOPPED


def summary_state(states: Collection[State]) -> State:
    """Combine the states of several statements into a single state; `absent` if there are no statements.

    The result is `running` if some statements are running and all others are stopped, completed or absent. In all other
    cases, it is the worst state.
    """
    found = [state for state in STATES_WORST_FIRST if state in states]
    worst = found[0] if found else State.ABSENT
    return State.RUNNING if State.RUNNING in found and worst in _WELL_OR_AT_REST else worst


def worst_trend(trends: Iterable[Trend]) -> Trend:
    """Return the worst of several trends; `unknown` if there are none."""
    return min(trends, key=TRENDS_WORST_FIRST.index, default=Trend.UNKNOWN)


def counts_for_many(trend: Trend, state: State, lag_rows: int | None) -> bool:
    """True if a summary of many statements should include the trend of this statement.

    The trend `unknown` is excluded if `lag_rows` is 0 or the state is `absent`; all other trends are included.
    """
    return trend is not Trend.UNKNOWN or (lag_rows != 0 and state is not State.ABSENT)
