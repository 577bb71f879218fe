"""Releases, assembled from runs in the ledger and from the versions and measurements of their tables."""

import json
from collections.abc import Iterable, MutableMapping

from core.model.actions import StepKind
from core.model.errors import HeadgateError
from core.model.names import TableName
from core.plan.codec import plan_from_json
from core.plan.model import Plan
from core.run.records import RunRow
from core.run.release import Release, release_of, replaced_nodes
from state.ledger import LedgerReader


def plan_of(reader: LedgerReader, run: RunRow) -> Plan | None:
    """Return the plan of a run; None if it was removed or has an unsupported format."""
    row = reader.plan(run.plan_hash)
    try:
        return plan_from_json(json.loads(row.body)) if row is not None else None
    except (HeadgateError, ValueError):
        return None


def release_of_run(reader: LedgerReader, run: RunRow, plan: Plan, now: float) -> Release | None:
    """Return the release that a run carries out, in its current state; None if the run replaces no version."""
    nodes = replaced_nodes(plan)
    if not nodes:
        return None
    tables = {node.table: reader.versions(node.table) for node in nodes}
    old = {(node.table, node.from_version) for node in nodes}
    above = {b.parent for found in tables.values() for d in found if (d.table, d.version) in old for b in d.bindings}
    parents = [one for table in sorted(above - tables.keys()) for one in reader.versions(table)]
    readers = [one for name in _readers(plan) if name not in tables for one in reader.versions(name)]
    both = {(node.table, version) for node in nodes for version in (node.from_version, node.version)}
    measured = (reader.measurement(*key) for key in sorted(both))
    versions = [*(one for found in tables.values() for one in found), *parents, *readers]
    figures = [found for found in measured if found is not None]
    back = next((one.id for one in reader.open_runs() if one.id != run.id and _brings_back(one, old)), "")
    tickets, uncompared = reader.tickets(run.id), reader.uncompared_tables(run.id)
    return release_of(
        plan, run, versions, figures, now=now, tickets=tickets, rolled_back_by=back, uncompared=uncompared
    )


def _brings_back(run: RunRow, old: set[tuple[TableName, int]]) -> bool:
    return any(step.do == StepKind.CATCH_UP and (step.table, step.version) in old for step in run.steps)


def releases(
    reader: LedgerReader, runs: Iterable[RunRow], now: float, plans: MutableMapping[str, Plan | None] | None = None
) -> tuple[Release, ...]:
    """Return the releases that runs carry out, in the order of the runs. `plans` caches decoded plans by run id."""
    found, known = [], {} if plans is None else plans
    for run in runs:
        if run.id not in known:
            known[run.id] = plan_of(reader, run)
        plan = known[run.id]
        release = release_of_run(reader, run, plan, now) if plan is not None else None
        if release is not None:
            found.append(release)
    return tuple(found)


def open_releases(
    reader: LedgerReader, now: float, plans: MutableMapping[str, Plan | None] | None = None
) -> tuple[Release, ...]:
    """Return the releases of open runs, and releases whose replaced versions still run, newest first."""
    ids = {run.id for run in reader.open_runs()} | set(reader.runs_with_scheduled_stops())
    runs = (reader.run(run_id) for run_id in sorted(ids))
    found = releases(reader, (run for run in runs if run is not None), now, plans)
    return tuple(sorted((one for one in found if one.is_open), key=lambda one: (-one.since, one.run)))


def _readers(plan: Plan) -> tuple[TableName, ...]:
    return tuple(dict.fromkeys(left.table for left in plan.left_behind))
