"""Stops as an operator experiences them, measured by agent and client, with percentiles as a table."""

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
    """One stop; all durations begin with the command."""

    table: str
    outcome: str
    called_ms: float | None
    """From the command's arrival until Spark's stop is called; None if Spark had no such query."""
    took_ms: float
    """From the command's arrival until the query is proven gone."""
    trip_ms: float
    """From the client's call to its answer."""


@dataclass(frozen=True)
class Situation:
    """The measurements of one situation."""

    name: str
    stops: tuple[Stop, ...]
    wrong: tuple[str, ...] = ()
    """What went wrong."""
    called_within_ms: float = 300.0
    """Upper bound for the p99 from a command's arrival to Spark's stop."""


def client_of(project: Driven) -> AgentClient:
    """Return the console's own client, which avoids the 0.2 s that a new process takes to start."""
    return AgentClient(socket_of(project), ledger=SCHEMA_VERSION)


def socket_of(project: Driven) -> str:
    return environment_paths(os.path.realpath(project.home()), os.getuid()).socket


def stop(client: AgentClient, *tables: str) -> tuple[Stop, ...]:
    """Stop tables with one command."""
    confirm = confirmation_for_act("stop", tables, protected=False, environment="dev").text
    began = time.monotonic()
    answer = client.call("stop", {"tables": list(tables)}, confirm=confirm, line=f"headgate stop {' '.join(tables)}")
    trip_ms = (time.monotonic() - began) * 1000
    return tuple(
        Stop(said["table"], said["outcome"], said["called_ms"], said["took_ms"], trip_ms)
        for said in answer["statements"]
    )


def p99(values: Iterable[float]) -> float:
    """Return the 99th percentile: the maximum for fewer than 100 values, 0 for none."""
    ordered = sorted(values)
    return ordered[-(-99 * len(ordered) // 100) - 1] if ordered else 0.0


def called(stops: Iterable[Stop]) -> list[float]:
    """Return the times until Spark's stop was called, for stops in which it was."""
    return [found.called_ms for found in stops if found.called_ms is not None]


def table(situations: Iterable[Situation]) -> str:
    """Return a table with p50 and p99 in ms, one line per situation."""
    lines = [f"{'situation':44} {'stops':>5}  {'Spark called':>15}  {'proven gone':>15}  {'trip':>15}"]
    for found in situations:
        times = (called(found.stops), [s.took_ms for s in found.stops], [s.trip_ms for s in found.stops])
        cells = "  ".join(f"{_p50(values):6.0f} / {p99(values):6.0f}" for values in times)
        lines.append(f"{found.name:44} {len(found.stops):5}  {cells}")
    return "\n".join([*lines, "p50 / p99 in ms"])


def _p50(values: list[float]) -> float:
    return statistics.median(values) if values else 0.0
