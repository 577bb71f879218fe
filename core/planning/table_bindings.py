"""Which version of which table each deployment reads, and who reads a table."""

from core.model.names import TableName
from core.model.states import State
from core.observed.deployment import Binding
from core.planning.declared_tables import DeclaredTables
from core.planning.observed_tables import ObservedTables
from core.planning.table_changes import TableChanges
from core.planning.table_revisions import TableRevisions
from core.project.revision import Revision


class TableBindings:
    """Bindings of deployments, and the same edges from their other end; linear in deployments and bindings."""

    def __init__(
        self, declared: DeclaredTables, observed: ObservedTables, revisions: TableRevisions, changes: TableChanges
    ) -> None:
        self._declared = declared
        self._observed = observed
        self._revisions = revisions
        self._changes = changes
        self._bindings = {table: self._find(table) for table in observed.deployments}
        readers: dict[TableName, list[TableName]] = {}
        for table, bindings in self._bindings.items():
            for parent in dict.fromkeys(binding.parent for binding in bindings):
                readers.setdefault(parent, []).append(table)
        self._readers = {parent: tuple(found) for parent, found in readers.items()}

    def of(self, table: TableName) -> tuple[Binding, ...]:
        """Return what the serving version reads; without an observation of it, what its texts say."""
        return self._bindings.get(table, ())

    def readers(self, table: TableName) -> tuple[TableName, ...]:
        """Return the deployments that are bound to any version of it, by name."""
        return self._readers.get(table, ())

    def bind(self, revision: Revision) -> tuple[Binding, ...]:
        """Bind a revision's reads to the versions that serve now, or will serve first."""
        reads = revision.parsed.reads if revision.parsed is not None else ()
        found = {Binding(read.table, self._observed.serving_version(read.table), read.streaming) for read in reads}
        return tuple(sorted(found, key=_by_parent))

    def _find(self, table: TableName) -> tuple[Binding, ...]:
        seen, declared = self._observed.deployment(table), self._declared.tables.get(table) is not None
        if seen.state == State.ABSENT or seen.bindings:
            return tuple(sorted(seen.bindings, key=_by_parent))
        other_text = seen.deployed is not None and declared and not self._changes.of(table).kind.facts.same_statement
        revision = self._revisions.deployed(table) if other_text or not declared else None
        if revision is None and declared:
            revision = self._revisions.declared(table)
        return self.bind(revision) if revision is not None else ()


def _by_parent(binding: Binding) -> tuple[str, int, bool]:
    return (binding.parent, binding.version, not binding.streamed)
