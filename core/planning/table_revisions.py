"""The declared and the deployed revision of each table, read once."""

from dataclasses import replace

from core.model.names import TableName
from core.planning.declared_tables import DeclaredTables
from core.planning.observed_tables import ObservedTables
from core.project.revision import Revision
from core.project_files.parse_cache import ParseCache
from core.project_files.revision_reader import read_revision, revision_of


class TableRevisions:
    """Texts of tables as revisions; `parse_cache` only saves time."""

    def __init__(self, declared: DeclaredTables, observed: ObservedTables, parse_cache: ParseCache) -> None:
        self._declared_tables = declared
        self._observed = observed
        self._parse_cache = parse_cache
        self._declared: dict[TableName, Revision] = {}
        self._deployed: dict[TableName, Revision | None] = {}

    def declared(self, table: TableName) -> Revision:
        """Return the revision of a declared table."""
        if table not in self._declared:
            self._declared[table] = revision_of(self._declared_tables.tables[table])
        return self._declared[table]

    def deployed(self, table: TableName) -> Revision | None:
        """Return the deployed revision, None where its texts are unknown or unreadable."""
        if table not in self._deployed:
            self._deployed[table] = self._read_deployed(table)
        return self._deployed[table]

    def _read_deployed(self, table: TableName) -> Revision | None:
        texts, declared = self._observed.deployment(table).deployed, self._declared_tables.tables.get(table)
        if texts is None:
            return None
        if declared is not None and texts == self.declared(table).texts:
            return self.declared(table)
        if declared is not None and not texts.ddl.strip():
            texts = replace(texts, ddl=declared.ddl.text)
        return read_revision(table, texts, self._declared_tables.project.defaults, self._parse_cache)
