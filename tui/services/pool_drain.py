"""The drain of a pool: the deployed texts of its statements with other pools, as a project to plan."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from core.model.errors import Refused, UsageError
from core.model.names import TableName
from core.observed.planner_input import SourceTable
from core.observed.versions import Deployment
from core.plan.request import PlanRequest
from core.planner.pool_drain import plan_drain
from core.planner.pool_load import settings_of
from core.planner.scope import normal_request
from core.project.revision import RevisionTexts
from core.text.sentence import Sentence
from tui.presentation.view.pools import pool_named
from tui.project_folder.environment_selection import SelectedEnvironment
from tui.project_folder.project_folder_reader import ProjectDeclaration
from tui.services.promotion import declared_as_deployed, deployed_tables, refuse_unfit

if TYPE_CHECKING:
    from core.project_reader.parse_cache import ParseCache
    from state.ledger import LedgerReader


@dataclass(frozen=True, slots=True)
class PlannedDrain:
    """A drain to plan."""

    request: PlanRequest
    """The request in normal form, which names the statements that move."""
    declared: ProjectDeclaration
    """The deployed revisions, with the new pools in the texts of the statements that move."""
    source: Mapping[TableName, SourceTable]
    """Empty, because a drain promotes nothing."""


def planned_drain(
    asked: PlanRequest,
    declared: ProjectDeclaration,
    parse_cache: "ParseCache",
    *,
    reader: "LedgerReader",
    place: SelectedEnvironment,
) -> PlannedDrain:
    """Return the plan of the drain that `asked` describes by `drains`, `drains_to` and `lost`.

    Raises UsageError for an unknown pool, and Refused with every reason if the pool cannot be drained.
    """
    facts, environment, pool = reader.facts(), declared.project.environments[place.environment], asked.drains
    named = pool_named(facts, pool)
    if asked.drains_to:
        pool_named(facts, asked.drains_to)
    if place.overlay is not None or not environment.named_pools:
        raise Refused(
            f"{place.environment} has no other pool to which statements could move",
            remedy="declare several pools in headgate.yml: headgate help pools",
        )
    if pool == asked.drains_to:
        raise UsageError(f"{pool} cannot be drained into itself", remedy="name another pool: headgate pool list")
    cordoned = {row.name for row in facts.pools if row.cordoned_at is not None or row.state.is_fault}
    found = plan_drain(
        environment,
        reader.deployments(),
        pool,
        to=asked.drains_to,
        cordoned=cordoned,
        lost=asked.lost,
        manager_says=named.manager_says,
        statistics=reader.table_statistics(),
    )
    if found.refusals:
        why = "; ".join(map(str, found.refusals))
        raise Refused(
            f"{pool} cannot be drained: {why}", remedy=_first_remedy([each.remedy for each in found.refusals])
        )
    if not found.moves:
        if pool in cordoned:
            remedy = f"to let it take new statements again: headgate pool uncordon {pool}"
            raise Refused(f"no statement runs in {pool}, and it is cordoned already", remedy=remedy)
        raise Refused(f"no statement runs in {pool}", remedy=f"headgate pool cordon {pool} keeps it so")
    here = deployed_tables(reader)
    # The planner chooses the pools of statements that leave it the choice, and their texts stay as they are.
    chosen = {table for table in found.moves if environment.pools_for(settings_of(here[table].texts.yml))}
    moved = {table: here[table] if table in chosen else _in_pool(here[table], to) for table, to in found.moves.items()}
    project = declared_as_deployed({**here, **moved}, declared, parse_cache, place.environment)
    refuse_unfit(project, moved, place.environment, place.environment)
    return PlannedDrain(normal_request(replace(asked, tables=tuple(moved), children="none")), project, {})


def _first_remedy(remedies: "list[Sentence | None]") -> str:
    return next((str(each) for each in remedies if each is not None), "")


def _in_pool(deployment: Deployment, pool: str) -> Deployment:
    texts = deployment.texts
    written = None if texts.written is None else _with_pool(texts.written, pool)
    return replace(deployment, texts=replace(_with_pool(texts, pool), written=written))


def _with_pool(texts: RevisionTexts, pool: str) -> RevisionTexts:
    lines = [line for line in texts.yml.splitlines(True) if not line.startswith("pool:")]
    return replace(texts, yml=f"{''.join(lines)}pool: {pool}\n")
