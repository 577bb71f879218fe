"""Stops as an operator experiences them, measured by agent and client, with percentiles in a table."""

import os
import statistics
import time
from collections.abc import Iterable
from dataclasses import dataclass

from live_project import Driven

from core.ipc.environment_paths import environment_paths
from core.plan.confirmation import confirmation_for_act
from state.migrations import SCHEMA_VERSION
from tui.agent_client.socket_client import AgentClient


@dataclass(frozen=True)
class Stop:
    """A measured stop. Durations begin when the command is sent by the client or received by the agent."""

    table: str
    outcome: str
    called_ms: float | None
    """Milliseconds from the command's arrival until Spark's stop is called; None if Spark had no such query."""
    took_ms: float
    """Milliseconds from the command's arrival until the query is proven gone."""
    trip_ms: float
    """Milliseconds from the client's call to its answer."""


@dataclass(frozen=True)
class Situation:
    """The stops measured in one situation."""

    name: str
    stops: tuple[Stop, ...]
    wrong: tuple[str, ...] = ()
    """What went wrong."""
    called_within_ms: float = 300.0
    """Upper bound for the p99 from a command's arrival to Spark's stop."""


def client_of(project: Driven) -> AgentClient:
    """Return a client like the console's, which avoids the 0.2 s that starting a process takes."""
    return AgentClient(socket_of(project), ledger=SCHEMA_VERSION)


def socket_of(project: Driven) -> str:
    return environment_paths(os.path.realpath(project.home()), os.getuid()).socket


def stop(client: AgentClient, *tables: str) -> tuple[Stop, ...]:
    """Stop tables with a single command, and return the measurements."""
    confirm = confirmation_for_act("stop", tables, protected=False, environment="dev").text
    began = time.monotonic()
    answer = client.call("stop", {"tables": list(tables)}, confirm=confirm, line=f"headgate stop {' '.join(tables)}")
    trip_ms = (time.monotonic() - began) * 1000
    return tuple(
        Stop(said["table"], said["outcome"], said["called_ms"], said["took_ms"], trip_ms)
        for said in answer["statements"]
    )


def p99(values: Iterable[float]) -> float:
    """Return the 99th percentile: the maximum if there are fewer than 100 values, 0 if there are none."""
    ordered = sorted(values)
    return ordered[-(-99 * len(ordered) // 100) - 1] if ordered else 0.0


def called(stops: Iterable[Stop]) -> list[float]:
    """Return the milliseconds until Spark's stop was called, for those stops in which it was called."""
    return [found.called_ms for found in stops if found.called_ms is not None]


def table(situations: Iterable[Situation]) -> str:
    """Format a table of p50 and p99 in milliseconds, one line per situation."""
    lines = [f"{'situation':44} {'stops':>5}  {'Spark called':>15}  {'proven gone':>15}  {'trip':>15}"]
    for found in situations:
        times = (called(found.stops), [s.took_ms for s in found.stops], [s.trip_ms for s in found.stops])
        cells = "  ".join(f"{_p50(values):6.0f} / {p99(values):6.0f}" for values in times)
        lines.append(f"{found.name:44} {len(found.stops):5}  {cells}")
    return "\n".join([*lines, "p50 / p99 in ms"])


def _p50(values: list[float]) -> float:
    return statistics.median(values) if values else 0.0
