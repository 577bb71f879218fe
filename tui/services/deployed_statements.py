"""Statements and releases as recorded in the ledger: deployed versions, health, and differences from the files."""

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from core.model.errors import LedgerUnavailable, Refused, UsageError
from core.model.names import TableName, query_name
from core.observed.table_statistics import TableStatistics
from tui.agent_client.agent_commands import find_run
from tui.project_folder.environment_selection import SelectedEnvironment, has_ledger

if TYPE_CHECKING:
    from core.observed.versions import Deployment, StatementLine
    from core.plan.request import PlanRequest
    from core.project.model import Project
    from core.run.records import RunRow
    from core.run.release import Release
    from state.ledger import LedgerReader
    from state.ledger_snapshot import LedgerSnapshot, StatementDetails
    from tui.presentation.reports.table_history import HistoryEntry

SAMPLES_S = 900.0
"""Maximum age of the samples that are read for one statement, in seconds."""
EVENTS = 50
"""Maximum number of events that are read for one statement."""


@dataclass(frozen=True, slots=True)
class ProjectDrift:
    """The differences between a project's files and the deployed revisions."""

    changed: tuple[TableName, ...]
    """Tables whose declared revision differs from the deployed one."""
    new: tuple[TableName, ...]
    """Tables that are declared but not deployed, except external tables and tables in `deleted`."""
    gone: tuple[TableName, ...]
    """Tables deployed but no longer declared."""
    deleted: tuple[TableName, ...] = ()
    """Deleted tables whose files have not changed since the deletion. They are not treated as differences."""

    @property
    def tables(self) -> tuple[TableName, ...]:
        """All tables that differ, sorted by name."""
        return tuple(sorted({*self.changed, *self.new, *self.gone}))


def open_reader(place: SelectedEnvironment) -> "LedgerReader":
    """Open the ledger for reading. Raises LedgerUnavailable if the environment was never started."""
    if not has_ledger(place):
        raise LedgerUnavailable(f"{place.title} has never been started on this machine", remedy=f"start it: {place.up}")
    from state.ledger import LedgerReader

    return LedgerReader(Path(place.where.ledger))


def statement_details(reader: "LedgerReader", table: TableName, *, since: float | None = None) -> "StatementDetails":
    """Return the details of a statement, without any version if the table was never deployed.

    Samples taken after `since`, in epoch seconds, are included; by default, samples of the last 15 minutes.
    """
    with reader.frame():
        return _details(reader, table, time.time() - SAMPLES_S if since is None else since)


def statement_among_all(
    reader: "LedgerReader", table: TableName, version: int | None
) -> "tuple[StatementDetails, LedgerSnapshot]":
    """Return the details of a statement or one of its versions, and a snapshot of all statements.

    Both describe the same state of the ledger. Raises UsageError if the table was never deployed or has no such
    version.
    """
    from state.ledger_snapshot import LedgerSnapshot

    now = time.time()
    with reader.frame():
        found = _details(reader, table, now, version)
        snapshot = LedgerSnapshot(read_at=now, statements=reader.statements())
    if not found.versions:
        raise not_deployed_error(table, [line.table for line in snapshot.statements])
    if found.shown is None:
        there = ", ".join(query_name(table, one.version) for one in reversed(found.versions))
        raise UsageError(f"{table} has no version {version}", remedy=f"there is {there}")
    return found, snapshot


def history_of(
    reader: "LedgerReader", table: TableName, limit: int, *, as_it_is: "Callable[[RunRow], RunRow]"
) -> "tuple[HistoryEntry, ...]":
    """Return the latest entries of a table's history, oldest first. Plans that cannot be decoded are skipped.

    `as_it_is` converts a recorded run into the run to show, which is halted while no agent is alive.
    """
    from state.table_records import read_table_records
    from tui.presentation.reports.table_history import table_history
    from tui.services.plan_submission import plan_of_row

    records = read_table_records(reader, table, max(limit, EVENTS))
    records = replace(records, runs=tuple(map(as_it_is, records.runs)))
    plans = {}
    for row in records.plans:
        with suppress(LedgerUnavailable, UsageError):
            plans[row.hash] = plan_of_row(row)
    return table_history(records, plans, limit)


def _details(reader: "LedgerReader", table: TableName, since: float, version: int | None = None) -> "StatementDetails":
    from state.ledger_snapshot import StatementDetails

    found = StatementDetails(table, reader.versions(table), asked=version)
    shown = found.shown
    if shown is None:
        return found
    return replace(
        found,
        measurement=reader.measurement(table, shown.version),
        statistics=reader.table_statistics(table).get((table, shown.version), TableStatistics()),
        samples=reader.samples(table, shown.version, since),
        events=reader.events(table, EVENTS),
        promotion=_promotion(reader, table, shown.plan_hash),
    )


def _promotion(reader: "LedgerReader", table: TableName, plan_hash: str) -> "PlanRequest | None":
    request = _promotion_request(reader, plan_hash)
    return request if request is not None and any(each.table == table for each in request.promotes) else None


@lru_cache(maxsize=256)
def _promotion_request(reader: "LedgerReader", plan_hash: str) -> "PlanRequest | None":
    """Return the request of a plan that is a promotion; cached, because the inspector asks again at each change."""
    asked = reader.promotion_of(plan_hash)
    if asked is None:
        return None
    from core.plan.codec import request_from_json

    return request_from_json(asked)


def not_deployed_error(table: str, known: Iterable[str]) -> UsageError:
    """Return the error for a table that is not deployed.

    The remedy suggests the most similar name in `known`.
    """
    from core.text.wording import did_you_mean

    return UsageError(
        f"{table} is not deployed here", remedy=did_you_mean(table, known) or "headgate ls lists what is deployed"
    )


def named_lines(lines: Iterable["StatementLine"], names: Iterable[TableName]) -> list["StatementLine"]:
    """Return the lines of the tables in `names`, or all lines if `names` is empty.

    Raises UsageError if one of these tables has no line.
    """
    found = list(lines)
    wanted = set(names)
    if missing := sorted(wanted - {line.table for line in found}):
        raise not_deployed_error(missing[0], [line.table for line in found])
    return [line for line in found if not wanted or line.table in wanted]


def project_drift(project: "Project", deployments: Iterable["Deployment"]) -> ProjectDrift:
    """Compare the declared revisions with the deployed ones; `deployments` must include deleted versions.

    A deleted table counts as a difference only if its files have changed since the deletion. A table is gone only if
    no file with errors may declare it.
    """
    from core.project.revision import revision_hash
    from core.project_reader.revision_reader import revision_of

    every = [d for d in deployments if not d.external]
    deployed = {d.table: d for d in every if d.active and d.drop_after is None}
    # Sorted by version, so that the newest one counts.
    deleted = {d.table: d.revision for d in sorted(every, key=lambda d: d.version) if d.drop_after is not None}
    declared = {name: table for name, table in project.tables.items() if not table.external}

    def says(name: TableName, revision: str) -> bool:
        return revision_hash(revision_of(declared[name]).texts) == revision

    changed = [name for name in declared if name in deployed and not says(name, deployed[name].revision)]
    left = [name for name in declared if name not in deployed and name in deleted and says(name, deleted[name])]
    return ProjectDrift(
        changed=tuple(sorted(changed)),
        new=tuple(sorted(name for name in declared if name not in deployed and name not in left)),
        gone=tuple(sorted(name for name in deployed if name not in declared and name not in project.broken))
        if not project.stray
        else (),
        deleted=tuple(sorted(left)),
    )


NEWEST = 50
"""Number of latest runs that are searched for releases. Older releases are found by their versions and tickets."""


def list_releases(reader: "LedgerReader", now: float) -> "tuple[Release, ...]":
    """Return recent releases, latest first, and all older ones that still serve or have open tickets."""
    from state.releases import releases

    with reader.frame():
        runs = {run.id: run for run in reader.runs(NEWEST)}
        still = {d.served_by for d in reader.deployments() if d.active and d.served_before is not None}
        for served in still | {ticket.run_id for ticket in reader.unclosed_tickets()}:
            older = reader.run(served) if served and served not in runs else None
            if older is not None:
                runs[older.id] = older
        newest = sorted(runs.values(), key=lambda run: (-run.started_at, run.id))
        return releases(reader, newest, now)


def find_release(reader: "LedgerReader", word: str, now: float) -> "Release":
    """Find a release by the start of its run's id.

    Raises UsageError if no run or several runs match, and Refused if the run is not a release.
    """
    from state.releases import plan_of, release_of_run

    run = find_run(reader, word)
    with reader.frame():
        plan = plan_of(reader, run)
        found = release_of_run(reader, run, plan, now) if plan is not None else None
    if found is None:
        why = "replaces no version" if plan is not None else "has a plan that cannot be read"
        raise Refused(f"run {run.id} {why}: it is not a release", remedy="headgate release list")
    return found
