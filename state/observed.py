"""From the registry to what the planner takes: console and agent observe by this alone, so that their plans agree."""

from collections.abc import Iterable

from core.names import TableName, physical_name
from core.plan import Observed
from core.vocabulary import State, Wanted
from state.rows import Deployment

IN_SERVICE = frozenset({State.STARTING, State.RUNNING, State.DEGRADED, State.STOPPING, State.PENDING})
"""States of an older version that still counts as running."""


def observe(deployments: Iterable[Deployment]) -> dict[TableName, Observed]:
    """Observe every table of the registry, deleted versions included: their numbers are never used again."""
    versions_by_table: dict[TableName, list[Deployment]] = {}
    for deployment in deployments:
        versions_by_table.setdefault(deployment.table, []).append(deployment)
    return {table: _observe(versions) for table, versions in sorted(versions_by_table.items())}


def _observe(every: list[Deployment]) -> Observed:
    highest = max(d.version for d in every)
    versions = [d for d in every if d.drop_after is None]
    if not versions:
        return Observed(state=State.ABSENT, highest_version=highest)
    serving = min(versions, key=lambda d: (not d.active, -d.version))
    others = [d for d in versions if d.version != serving.version]
    return Observed(
        state=serving.state,
        revision=serving.revision,
        deployed=serving.texts,
        version=serving.version,
        highest_version=highest,
        bindings=serving.bindings,
        checkpoint_id=serving.checkpoint_id,
        checkpoint_ok=serving.checkpoint_ok,
        pointer=physical_name(serving.table, serving.version) if serving.active and not serving.external else "",
        wanted=serving.wanted,
        kept=tuple(sorted(d.version for d in others)),
        retained=tuple(sorted(d.version for d in others if d.wanted == Wanted.RUNNING and d.state in IN_SERVICE)),
    )
