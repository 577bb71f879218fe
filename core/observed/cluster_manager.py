"""What the manager of a cluster says about the server of a pool: a standalone master, or YARN's ResourceManager.

A manager knows an application by its id, and knows when it has ended, which Spark Connect cannot tell once its server
does not answer. Its word is no proof that nothing runs: a driver outlives its application for a moment (4.2.0).
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from core.observed.cluster import ClusterView
from core.observed.spark_work import ClusterFigures, ManagedApplication
from core.text.sentence import Fact, FactKind


class ManagerWord(FactKind):
    """What the manager of a cluster says about the application of a pool's server that does not answer."""

    RUNS = (
        "{manager} says that its application {application} is {state}",
        "end it where it runs, or with {kill}, and try again once {manager} says that it has ended",
    )
    ENDED = "{manager} says that its application {application} is {state} since {at}"
    UNKNOWN = "{manager} does not know its application {application}: it has forgotten it, or has another cluster"
    SILENT = "nobody says whether its application {application} runs: {error}"
    UNDECLARED = "no manager of its cluster is declared that could be asked"
    UNLEARNED = "nobody can be asked whether its application runs, because the agent has never learned its id"


def word_of(manager: str, id: str, found: ManagedApplication | None, *, kill: str) -> Fact[ManagerWord]:
    """Return what a manager says about the application of an id: what it has found, or None if it knows no such one.

    `manager` names it in a sentence. `kill` is how an operator ends the application.
    """
    if found is None:
        return ManagerWord.UNKNOWN.of(application=id, manager=manager)
    if found.has_ended:
        at = "an unknown time" if found.ended_at is None else utc_time(found.ended_at)
        return ManagerWord.ENDED.of(application=id, at=at, manager=manager, state=found.state)
    return ManagerWord.RUNS.of(application=id, kill=kill, manager=manager, state=found.state)


def word_from_json(given: Mapping[str, Any]) -> Fact[ManagerWord]:
    """Restore a word from the output of `Fact.as_json`. Raises ValueError for any other object."""
    try:
        # The order in which `word_of` gives them, so that equal words are equal facts.
        values = {name: str(given[name]) for name in sorted(given) if name not in ("kind", "sentence")}
        word = ManagerWord[str(given["kind"]).upper()].of(**values)
        # Each needs its values.
        str(word), word.remedy
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError("not the word of a manager") from error
    return word


def utc_time(at: float) -> str:
    """Return a time in epoch seconds as a fact has it, such as `2026-11-29 11:40:02 UTC`."""
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S} UTC"


class PoolLoss(FactKind):
    """What is known of a pool that others manage and that does not answer, or cannot run anything."""

    UNVOUCHED = "the agent cannot use it since {since}, and no manager of its cluster is declared"
    REPORTED = "the agent cannot use it since {since}; {word}"
    UNASKED = "the agent cannot use it since {since}, and has not asked the manager of its cluster yet"


def application_on_master(view: ClusterView, id: str) -> ManagedApplication | None:
    """Return the application of an id as a master lists it; None if it does not."""
    for each in (*view.applications, *view.ended):
        if each.id == id:
            return ManagedApplication(id, each.state, each.ended_at, cores=each.cores, memory_mib=each.memory_mib)
    return None


def yarn_application(document: Mapping[str, Any]) -> ManagedApplication:
    """Read the answer of `/ws/v1/cluster/apps/ID` (Hadoop 3.4.2). Raises ValueError if it is something else."""
    try:
        app = document["app"]
        ended_ms = int(app["finishedTime"])
        return ManagedApplication(
            str(app["id"]),
            str(app["state"]),
            ended_at=ended_ms / 1000 if ended_ms else None,
            # These are -1 once it has ended.
            containers=max(0, int(app["runningContainers"])),
            cores=max(0, int(app["allocatedVCores"])),
            memory_mib=max(0, int(app["allocatedMB"])),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(_FOREIGN) from error


def yarn_figures(document: Mapping[str, Any], application: ManagedApplication | None) -> ClusterFigures:
    """Read the answer of `/ws/v1/cluster/metrics` (Hadoop 3.4.2). Raises ValueError if it is something else."""
    try:
        metrics = document["clusterMetrics"]
        return ClusterFigures(
            "",
            int(metrics["activeNodes"]),
            int(metrics["lostNodes"]) + int(metrics["unhealthyNodes"]),
            cores=int(metrics["totalVirtualCores"]),
            free_cores=int(metrics["availableVirtualCores"]),
            applications=int(metrics["appsRunning"]),
            application=application,
            on_yarn=True,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(_FOREIGN) from error


_FOREIGN = "not the answer of a ResourceManager"
