"""Conversion of the registry to planner input, shared by the console and the agent so that their plans agree."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType

from core.model.names import TableName, physical_name
from core.model.states import State, WantedState
from core.observed.planner_input import ObservedDeployment, ObservedPool, OpenTicket, OtherVersion
from core.observed.table_statistics import TableStatistics
from core.observed.versions import Deployment, serving_version
from core.run.records import MigrationTicket
from state.row_types import EnvironmentRow

IN_SERVICE = frozenset({State.STARTING, State.RUNNING, State.DEGRADED, State.STOPPING, State.PENDING})
"""States in which a version that is not serving counts as running."""


NOT_MEASURED: Mapping[tuple[TableName, int], TableStatistics] = MappingProxyType({})
NONE: Mapping[TableName, int] = MappingProxyType({})
NO_OVERLAYS: Mapping[TableName, tuple[tuple[str, int], ...]] = MappingProxyType({})


def observe(
    deployments: Iterable[Deployment],
    statistics: Mapping[tuple[TableName, int], TableStatistics] = NOT_MEASURED,
    taken: Mapping[TableName, int] = NONE,
    serials: Mapping[TableName, int] = NONE,
    now: float = 0.0,
    *,
    tickets: Iterable[MigrationTicket] = (),
    overlays: Mapping[TableName, tuple[tuple[str, int], ...]] = NO_OVERLAYS,
) -> dict[TableName, ObservedDeployment]:
    """Return the observed deployment of every table, sorted by table name.

    `deployments` must include deleted versions, whose numbers are never reused. `statistics` are by table and version;
    plan preconditions never depend on them. `taken` maps a table to the highest version number whose folder contains
    foreign files; such numbers are also never reused. `serials` count the operator actions and runs on each table.
    `now`, in epoch seconds of the checked clock, determines which trash has expired. `tickets` are the tickets of all
    releases. `overlays` contains, for each table, the overlays that read it, each with the version that it reads.
    """
    versions_by_table: dict[TableName, list[Deployment]] = {}
    for deployment in deployments:
        versions_by_table.setdefault(deployment.table, []).append(deployment)
    seen = {table: _observe(versions, statistics, now) for table, versions in versions_by_table.items()}
    for table, version in taken.items():
        before = seen.get(table, ObservedDeployment())
        seen[table] = replace(before, highest_version=max(before.highest_version, version))
    for table, found in _open_tickets(tickets, versions_by_table).items():
        seen[table] = replace(seen[table], tickets=found)
    for table, readers in overlays.items():
        if table in seen:
            seen[table] = replace(seen[table], overlays=readers)
    for table, serial in serials.items():
        seen[table] = replace(seen.get(table, ObservedDeployment()), serial=serial)
    return dict(sorted(seen.items()))


def observe_pools(facts: EnvironmentRow) -> dict[str, ObservedPool]:
    """Return what is known of each of several pools, by name; empty for an environment with one pool."""
    if len(facts.pools) == 1 and not facts.pools[0].place:
        return {}
    return {
        pool.name: ObservedPool(
            pool.cordoned_at is not None,
            pool.engine,
            pool.state if pool.state.is_fault else "",
            pool.manager_says,
        )
        for pool in facts.pools
    }


def _open_tickets(
    tickets: Iterable[MigrationTicket], versions_by_table: Mapping[TableName, Iterable[Deployment]]
) -> dict[TableName, tuple[OpenTicket, ...]]:
    """Return the open migration tickets of exposures, by table.

    Tickets of statements are not needed, because the observed bindings suffice.
    """
    replaced = {
        physical_name(d.table, d.version): d.version
        for versions in versions_by_table.values()
        for d in versions
        if not (d.deleted or d.active)
    }
    found: dict[TableName, set[OpenTicket]] = {}
    for one in tickets:
        if one.closed_at is None and not one.is_statement and one.old in replaced:
            found.setdefault(one.table, set()).add(OpenTicket(one.reader, replaced[one.old], one.run_id))
    return {table: tuple(sorted(each, key=lambda t: (t.reader, t.version, t.run))) for table, each in found.items()}


def _observe(
    every: list[Deployment], statistics: Mapping[tuple[TableName, int], TableStatistics], now: float
) -> ObservedDeployment:
    highest = max(d.version for d in every)
    serving = serving_version(every)
    if serving is None or serving.deleted:
        return ObservedDeployment(state=State.ABSENT, highest_version=highest, in_trash=_in_trash(every, now))
    others = [d for d in every if not d.deleted and d.version != serving.version]
    return ObservedDeployment(
        state=serving.state,
        revision=serving.revision,
        deployed=serving.texts,
        version=serving.version,
        highest_version=highest,
        bindings=serving.bindings,
        checkpoint_id=serving.checkpoint_id,
        checkpoint_ok=serving.checkpoint_ok,
        lost=serving.lost,
        lost_kind=serving.lost_kind,
        pointer=physical_name(serving.table, serving.version) if serving.active and not serving.external else "",
        wanted=serving.wanted,
        kept=tuple(sorted(d.version for d in others)),
        retained=tuple(sorted(d.version for d in others if d.wanted == WantedState.RUNNING)),
        orphan_versions=tuple(
            _spare(d)
            for d in sorted(others, key=lambda d: -d.version)
            if d.served_at is None and (not serving.active or d.version > serving.version)
        ),
        served_by=serving.served_by if serving.active else "",
        former=next((_other(d) for d in others if serving.active and d.version == serving.served_before), None),
        runs_on=tuple(
            OtherVersion(d.version, bindings=d.bindings, pool=_pool(d))
            for d in sorted(others, key=lambda d: -d.version)
            if d.served_at is not None and d.version != serving.served_before and d.wanted == WantedState.RUNNING
        ),
        begins_where=serving.begins_where,
        begun=serving.active or serving.started_at is not None,
        pool=serving.pool,
        engine=serving.engine,
        begins_after=serving.begins_after,
        clones=tuple(sorted((d.version, d.clone_of) for d in every if d.clone_of and not d.deleted)),
        rows_before=bool(serving.before_ddl),
        statistics=statistics.get((serving.table, serving.version)),
        replaced_ddl=tuple(sorted((d.version, d.texts.ddl) for d in others if d.served_at is not None)),
        trigger=serving.trigger,
    )


def _spare(d: Deployment) -> OtherVersion:
    """Return an orphaned version as planner input; if it was never started, it has no query that could be running."""
    begun, begins = d.started_at is not None, (*d.begins_where, *filter(None, (d.begins_after, d.older_rows)))
    return replace(_other(d), running=begun and _in_service(d), begun=begun, begins_where=begins)


def _other(d: Deployment) -> OtherVersion:
    return OtherVersion(
        version=d.version,
        revision=d.revision,
        bindings=d.bindings,
        running=_in_service(d),
        checkpoint_ok=d.checkpoint_ok,
        begins_where=d.begins_where,
        texts=d.texts,
        trigger=d.trigger,
        drop_after=d.drop_after,
        pool=_pool(d),
    )


def _pool(d: Deployment) -> str:
    return d.pool.name if d.pool is not None else ""


def _in_trash(every: list[Deployment], now: float) -> OtherVersion | None:
    """Return the version of a deleted table that served last and whose files are kept; None if there is none."""
    served = [d for d in every if d.served_at is not None and not d.external]
    kept = [d for d in served if d.trash and (d.drop_after or 0.0) > now]
    last = max(kept, key=lambda d: d.served_at or 0.0, default=None)
    if last is None:
        return None
    later = tuple(sorted(d.version for d in served if (d.served_at or 0.0) > (last.served_at or 0.0)))
    return replace(_other(last), outlived=later)


def _in_service(deployment: Deployment) -> bool:
    return deployment.wanted == WantedState.RUNNING and deployment.state in IN_SERVICE
