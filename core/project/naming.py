"""Names that an environment gives to everything that it creates outside its ledger.

No other module concatenates such a name, so names of two environments can be compared before anything exists.
"""

from dataclasses import dataclass

from core.model.names import TableName, physical_name

SESSION_CATALOG = "spark_catalog"
"""Spark's name for the catalog that every server has."""


@dataclass(frozen=True, slots=True)
class Naming:
    """The naming of one environment: `orders` becomes `prefix` + `orders` + `suffix`, in a database of a catalog."""

    prefix: str = ""
    suffix: str = ""
    catalog: str = ""
    """The catalog of the database; empty for the one that every server has."""
    database: str = ""
    """The database of all tables and views; empty for the server's default."""

    @property
    def namespace(self) -> str:
        """Return the database with its catalog, separated by a dot; empty for the server's default database."""
        return f"{self.catalog}.{self.database}" if self.catalog else self.database

    @property
    def place(self) -> tuple[str, str]:
        """Return the catalog and database as Spark resolves them, so that equal places compare equal."""
        return self.catalog or SESSION_CATALOG, self.database or "default"

    def of(self, name: str) -> str:
        """Return the name, in this environment, of something declared as `name`: a table, a topic or a group."""
        return f"{self.prefix}{name}{self.suffix}"

    @property
    def pattern(self) -> str:
        """Return the catalog names of the environment as a pattern, such as `lake.dev_*`; unlike for unlike namings."""
        return self.pointer(TableName("*"))

    def pointer(self, table: TableName) -> str:
        """Return the catalog name of the view that leads to the serving version, or of an external table."""
        return self._qualified(self.of(table))

    def version(self, table: TableName, version: int) -> str:
        """Return the catalog name of a table's version (1, 2, …)."""
        return self._qualified(self.folder(table, version))

    def before(self, table: TableName, version: int) -> str:
        """Return the catalog name of a version's second table, which holds rows inherited from its predecessor."""
        return f"{self.version(table, version)}_before"

    def source_view(self, table: TableName) -> str:
        """Return the name of a session's temporary view of an external table without files, which has no database."""
        return self.of(table)

    def folder(self, table: TableName, version: int) -> str:
        """Return the name of a version's folders of tables, checkpoints and trash; version 0 is an external table."""
        return physical_name(TableName(self.of(table)), version) if version else self.of(table)

    def _qualified(self, name: str) -> str:
        return f"{self.namespace}.{name}" if self.database else name


DECLARED = Naming()
"""The naming that leaves every name as declared."""


OWN, SHARED = "own", "shared"
"""Values of `sources` other than the name of an environment."""


@dataclass(frozen=True, slots=True)
class Sources:
    """Where an environment finds its external tables."""

    naming: Naming | None = None
    """The naming of their catalog entries; None for the environment's own."""
    data: str = ""
    """The data folder in which relative locations lie, as declared; empty for the environment's own."""
    of: str = OWN
    """`own`, `shared`, or the environment whose external tables are read."""


OWN_SOURCES = Sources()
