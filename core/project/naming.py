"""Names that an environment gives to everything that it creates outside its ledger.

No other module concatenates such a name, so names of two environments can be compared before anything exists.
"""

from dataclasses import dataclass

from core.model.names import TableName, physical_name


@dataclass(frozen=True, slots=True)
class Naming:
    """The naming of one environment: `orders` becomes `prefix` + `orders` + `suffix`."""

    prefix: str = ""
    suffix: str = ""

    def of(self, name: str) -> str:
        """Return the name, in this environment, of something declared as `name`: a table, a topic or a group."""
        return f"{self.prefix}{name}{self.suffix}"

    def pointer(self, table: TableName) -> str:
        """Return the catalog name of the view that leads to the serving version, or of an external table."""
        return self.of(table)

    def version(self, table: TableName, version: int) -> str:
        """Return the catalog name of a table's version (1, 2, …)."""
        return self.folder(table, version)

    def folder(self, table: TableName, version: int) -> str:
        """Return the name of a version's folders of tables, checkpoints and trash; version 0 is an external table."""
        return physical_name(TableName(self.of(table)), version) if version else self.of(table)


DECLARED = Naming()
"""The naming that leaves every name as declared."""
