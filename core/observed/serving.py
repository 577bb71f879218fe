"""Which version of a table serves, and whether what is known is stale: answered here for everybody."""

from collections.abc import Iterable
from typing import TypeVar

from core.model.names import TableName
from core.observed.versions import KnownVersion

INTERVAL_S = 2.0
"""How often the agent writes its heartbeat."""

STALE_S = 3 * INTERVAL_S
"""Age of the heartbeat from which data are called stale."""


V = TypeVar("V", bound=KnownVersion)


def serving_version(versions: Iterable[V]) -> V | None:
    """Return the version that a table's name means; None where there is no version at all.

    It is the one that the pointer leads to. Before there is a pointer it is the newest whose query was ever started,
    because that one may run and hold rows, else the newest. A deleted version is meant only where all are deleted, and
    then the one that served last.
    """
    return max(versions, key=_standing, default=None)


def serving_versions(versions: Iterable[V]) -> dict[TableName, V]:
    """Return what serves of every table, by name; linear in versions."""
    found: dict[TableName, V] = {}
    for one in versions:
        known = found.get(one.table)
        if known is None or _standing(one) > _standing(known):
            found[one.table] = one
    return {table: found[table] for table in sorted(found)}


def _standing(one: KnownVersion) -> tuple[bool, bool, float, bool, int]:
    served = (one.served_at or 0.0) if one.deleted else 0.0
    return not one.deleted, one.active, served, one.started_at is not None, one.version


def heartbeat_age_s(agent_seen_at: float | None, now: float) -> float | None:
    """Return the seconds since the agent's last heartbeat; None where no agent ever wrote."""
    return None if agent_seen_at is None else max(0.0, now - agent_seen_at)


def is_stale(age_s: float | None, agent_pid: int | None) -> bool:
    """Return whether nobody keeps the data fresh: an agent that ends in order takes its pid away."""
    return age_s is None or age_s > STALE_S or agent_pid is None
