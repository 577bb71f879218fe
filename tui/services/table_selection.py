"""Tables that people name by selectors: over the files for a plan, over what is deployed for everything else."""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from core.model.errors import InvalidProject, UsageError
from core.model.names import TableName, parse_table_name

if TYPE_CHECKING:
    from core.lineage.selectors import SelectableTables
    from core.project.model import Project
    from state.registry import StatementLine


def selected(
    words: Iterable[str], lines: Callable[[], Iterable["StatementLine"]], project: "Callable[[], Project]"
) -> tuple[TableName, ...]:
    """Return the tables that words mean; files and ledger are read only where a word is more than a name.

    Tables that are deployed are joined by the versions that they read, others as the project declares it. Raises
    BadName, UsageError, and InvalidProject where a tag is asked for and the files cannot be read.
    """
    from core.lineage.selectors import is_selector, select_tables

    asked = list(words)
    if not any(map(is_selector, asked)):
        return tuple(dict.fromkeys(map(parse_table_name, asked)))
    return select_tables(asked, _among(list(lines()), project))


def _among(lines: list["StatementLine"], project: "Callable[[], Project]") -> "SelectableTables":
    from core.lineage.selectors import SelectableTables
    from core.lineage.table_graph import TableEdge, TableGraph, edges_of

    edges = [TableEdge(bound.parent, line.table, bound.streamed) for line in lines for bound in line.bindings]
    deployed = {line.table for line in lines}
    try:
        declared = [table for name, table in project().tables.items() if name not in deployed]
    except (InvalidProject, UsageError):
        # Files that cannot be read say nothing; what is deployed can still be acted on.
        declared = []
    graph = TableGraph([*edges, *(edge for table in declared for edge in edges_of(table))], deployed)

    def tags() -> Mapping[str, list[TableName]]:
        found: dict[str, list[TableName]] = {}
        for name, table in project().tables.items():
            for tag in table.settings.tags:
                found.setdefault(tag, []).append(name)
        return found

    return SelectableTables(lambda table: (edge.parent for edge in graph.parents(table)), graph.children, tags)
