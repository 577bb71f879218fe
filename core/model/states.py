"""The closed lists of the product: the same words on screen, in JSON, in filters and in the ledger."""

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


class WantedState(StrEnum):
    """What the operators want of a deployment."""

    RUNNING = "running"
    STOPPED = "stopped"


STATES_WORST_FIRST = (
    State.FAILED, State.DEGRADED, State.UNKNOWN, State.STARTING, State.STOPPING, State.PENDING, State.STOPPED,
    State.ABSENT, State.COMPLETED, State.RUNNING,
)  # fmt: skip
TRENDS_WORST_FIRST = (
    Trend.STALLED, Trend.STARVED, Trend.GROWING, Trend.DRAINING, Trend.STEADY, Trend.IDLE, Trend.UNKNOWN,
)  # fmt: skip
"""What is shown of many: the first of these that one of them has."""
