"""What is declared: the tables of the project, who reads whom by their texts, and which make up a statement set."""

from collections.abc import Mapping
from functools import cached_property

from core.lineage.table_graph import TableGraph, table_graph
from core.model.names import TableName
from core.project.model import Environment, Project, Table


class DeclaredTables:
    """A project as it is declared for one environment."""

    def __init__(self, project: Project, environment: Environment) -> None:
        self.project = project
        self.environment = environment
        self.tables: Mapping[TableName, Table] = project.tables
        """What is declared, by name; a table that is only deployed is not there."""

    @cached_property
    def graph(self) -> TableGraph:
        """Who reads whom as declared."""
        return table_graph(self.project)

    def statement_set(self, name: TableName) -> tuple[TableName, ...]:
        """Return the tables of the statement set that a declared table belongs to, itself among them; sorted."""
        declared = self.tables.get(name)
        return self._statement_sets.get(declared.folder, ()) if declared is not None else ()

    @cached_property
    def _statement_sets(self) -> dict[str, tuple[TableName, ...]]:
        by_folder: dict[str, list[TableName]] = {}
        for name, table in self.tables.items():
            if not table.external:
                by_folder.setdefault(table.folder, []).append(name)
        return {folder: tuple(sorted(names)) for folder, names in by_folder.items()}
