"""What was observed: the one place that fills in what an offline observation leaves out."""

from collections.abc import Mapping
from dataclasses import replace

from core.model.names import TableName, physical_name
from core.model.states import State
from core.observed.deployment import ObservedDeployment
from core.planning.declared_tables import DeclaredTables


class ObservedTables:
    """The deployments of one environment, beside what is declared for it."""

    def __init__(self, declared: DeclaredTables, observed: Mapping[TableName, ObservedDeployment]) -> None:
        self._declared = declared
        self.deployments = {table: self._complete(table, observed[table]) for table in sorted(observed)}
        """What was observed by table, sorted by name, versions filled in."""

    def tables(self) -> tuple[TableName, ...]:
        """Return every table that is declared or deployed, sorted."""
        deployed = (table for table in self.deployments if self.is_deployed(table))
        return tuple(sorted({*self._declared.tables, *deployed}))

    def deployment(self, table: TableName) -> ObservedDeployment:
        """Return what was observed, versions filled in; absent when it was not."""
        return self.deployments.get(table, _ABSENT)

    def is_deployed(self, table: TableName) -> bool:
        """Return whether a version of it exists."""
        return self.deployment(table).state != State.ABSENT

    def is_running(self, table: TableName) -> bool:
        """Return whether it really runs: degraded, pending and starting are not enough."""
        return self.deployment(table).state == State.RUNNING

    def is_external(self, table: TableName) -> bool:
        """Return whether it is filled by others; a table that is no longer declared is judged by its version."""
        declared = self._declared.tables.get(table)
        if declared is not None:
            return declared.external
        return self.is_deployed(table) and self.deployment(table).version == 0

    def next_version(self, table: TableName) -> int:
        """Return the version that a start or rebuild makes; 0 for an external table."""
        return 0 if self.is_external(table) else self.deployment(table).highest_version + 1

    def serving_version(self, table: TableName) -> int:
        """Return the version that serves now, or will serve first."""
        seen = self.deployment(table)
        return seen.version if seen.state != State.ABSENT else self.next_version(table)

    def _complete(self, table: TableName, seen: ObservedDeployment) -> ObservedDeployment:
        """Assume version 1, pointed at, where a document names only the state."""
        declared = self._declared.tables.get(table)
        if seen.state == State.ABSENT or (declared is not None and declared.external) or seen.version:
            highest = max(seen.version, seen.highest_version)
            return seen if seen.highest_version == highest else replace(seen, highest_version=highest)
        if declared is None and seen.deployed is not None and not seen.deployed.dml.strip():
            return seen
        highest = max(1, seen.highest_version)
        return replace(seen, version=1, highest_version=highest, pointer=seen.pointer or physical_name(table, 1))


_ABSENT = ObservedDeployment()
