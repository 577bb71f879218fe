"""Statements as the ledger knows them: what is deployed, how it does, and how files differ from it."""

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from core.model.errors import LedgerUnavailable, UsageError
from core.model.names import TableName, parse_table_name
from core.observed.serving import heartbeat_age_s, is_stale, serving_version, serving_versions
from core.observed.table_statistics import TableStatistics
from state.ledger import LedgerReader
from state.registry import StatementLine
from state.row_types import CommandRow, Deployment, EnvironmentRow, Measurement, RunRow, StagedRow
from tui.project_folder.environment_selection import SelectedEnvironment, has_ledger

if TYPE_CHECKING:
    from core.project.model import Project


@dataclass(frozen=True, slots=True)
class EnvironmentStatus:
    """One moment of an environment, for one frame."""

    at: float
    """When it was read, epoch seconds."""
    version: int
    """The ledger's data version: equal means nothing was written in between."""
    facts: EnvironmentRow
    statements: tuple[StatementLine, ...]
    """Every version that is not deleted, by table and version."""
    staged: tuple[StagedRow, ...]
    open_runs: tuple[RunRow, ...]
    commands: tuple[CommandRow, ...]
    """The last ones, newest first."""

    @property
    def age_s(self) -> float | None:
        """Age of the data: seconds since the agent's heartbeat; None when no agent ever wrote."""
        return heartbeat_age_s(self.facts.agent_seen_at, self.at)

    @property
    def stale(self) -> bool:
        """Return whether nobody keeps the data fresh."""
        return is_stale(self.age_s, self.facts.agent_pid)

    @property
    def serving(self) -> tuple[StatementLine, ...]:
        """One line a table, that of what serves; sorted by table."""
        return tuple(serving_versions(self.statements).values())


@dataclass(frozen=True, slots=True)
class StatementVersions:
    """One statement with all its versions, newest first."""

    table: TableName
    versions: tuple[Deployment, ...]
    serving: Deployment
    """What its name means; a deleted version where all are."""
    measurement: Measurement | None
    readers: tuple[tuple[str, int], ...]
    """(table, version) of deployments bound to any version of it, sorted."""
    figures: TableStatistics = field(default_factory=TableStatistics)
    """What was measured of the serving version's table."""


@dataclass(frozen=True, slots=True)
class ProjectDrift:
    """How the files differ from what is deployed."""

    changed: tuple[TableName, ...]
    """Declared with another revision than the deployed one."""
    new: tuple[TableName, ...]
    """Declared and not deployed, nor deleted as they are declared; external tables are not counted."""
    gone: tuple[TableName, ...]
    """Deployed and no longer declared."""

    @property
    def tables(self) -> tuple[TableName, ...]:
        """All of them, sorted."""
        return tuple(sorted({*self.changed, *self.new, *self.gone}))


def open_reader(place: SelectedEnvironment) -> LedgerReader:
    """Open the ledger for reading; raises LedgerUnavailable, with `headgate up` as remedy when there is none yet."""
    if not has_ledger(place):
        raise LedgerUnavailable(f"{place.title} has never been started on this machine", remedy="start it: headgate up")
    return LedgerReader(Path(place.where.ledger))


def environment_status(reader: LedgerReader, *, now: float | None = None, commands: int = 20) -> EnvironmentStatus:
    """Read one moment of the environment."""
    with reader.frame():
        return EnvironmentStatus(
            at=time.time() if now is None else now,
            version=reader.data_version(),
            facts=reader.facts(),
            statements=reader.statements(),
            staged=reader.staged(),
            open_runs=reader.open_runs(),
            commands=reader.commands(commands),
        )


def statement_versions(reader: LedgerReader, table: str) -> StatementVersions:
    """Read one statement; raises UsageError, with the nearest name, when it never was deployed."""
    name = parse_table_name(table)
    with reader.frame():
        versions = reader.versions(name)
        shown = serving_version(versions)
        if shown is None:
            raise not_deployed_error(table, [line.table for line in reader.statements()])
        measured = reader.measurement(name, shown.version)
        figures = reader.figures(name).get((name, shown.version), TableStatistics())
        bound = {
            (str(other.table), other.version)
            for other in reader.deployments()
            for binding in other.bindings
            if binding.parent == name
        }
    return StatementVersions(name, versions, shown, measured, readers=tuple(sorted(bound)), figures=figures)


def not_deployed_error(table: str, known: Iterable[str]) -> UsageError:
    """Report that a table is not deployed, with the nearest name that is."""
    import difflib

    near = difflib.get_close_matches(table, list(known), n=1)
    remedy = f"did you mean {near[0]}?" if near else "headgate ls lists what is deployed"
    return UsageError(f"{table} is not deployed here", remedy=remedy)


def project_drift(project: "Project", deployments: Iterable[Deployment]) -> ProjectDrift:
    """Compare declared revisions with the serving ones, by hash; `deployments` with those that were deleted.

    A table that was deleted is no difference while its files still say what they said then.
    """
    from core.project.revision import revision_hash
    from core.project_files.revision_reader import revision_of

    every = [d for d in deployments if not d.external]
    deployed = {d.table: d for d in every if d.active and d.drop_after is None}
    # By version, so that the newest is what counts.
    deleted = {d.table: d.revision for d in sorted(every, key=lambda d: d.version) if d.drop_after is not None}
    declared = {name: table for name, table in project.tables.items() if not table.external}

    def says(name: TableName, revision: str) -> bool:
        return revision_hash(revision_of(declared[name]).texts) == revision

    changed = [name for name in declared if name in deployed and not says(name, deployed[name].revision)]
    left = [name for name in declared if name not in deployed and name in deleted and says(name, deleted[name])]
    return ProjectDrift(
        changed=tuple(sorted(changed)),
        new=tuple(sorted(name for name in declared if name not in deployed and name not in left)),
        gone=tuple(sorted(name for name in deployed if name not in declared)),
    )
