"""What is declared beside what was observed, by subject; each answer is computed once per table."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from core.model.names import TableName
from core.observed.deployment import ObservedDeployment
from core.planning.declared_tables import DeclaredTables
from core.planning.observed_tables import ObservedTables
from core.planning.table_bindings import TableBindings
from core.planning.table_changes import TableChanges
from core.planning.table_revisions import TableRevisions
from core.project.model import Environment, Project
from core.project_files.parse_cache import ParseCache


@dataclass(frozen=True, slots=True)
class PlanningContext:
    """All that a plan of one environment is computed from; a function that needs one subject takes that one alone."""

    declared: DeclaredTables
    observed: ObservedTables
    revisions: TableRevisions
    changes: TableChanges
    bindings: TableBindings


def planning_context(
    project: Project,
    environment: Environment,
    observed: Mapping[TableName, ObservedDeployment],
    parse_cache: ParseCache,
    answers: Mapping[str, str] = MappingProxyType({}),
    *,
    engine: str = "",
) -> PlanningContext:
    """Return a project and its deployments, ready to be asked; linear in tables and bindings."""
    declared = DeclaredTables(project, environment)
    deployments = ObservedTables(declared, observed)
    revisions = TableRevisions(declared, deployments, parse_cache)
    changes = TableChanges(declared, deployments, revisions, answers, engine)
    bindings = TableBindings(declared, deployments, revisions, changes)
    return PlanningContext(declared, deployments, revisions, changes, bindings)
