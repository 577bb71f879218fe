"""Promotions: the revisions that run in one environment as a project to plan in another, whatever the files contain."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from core.model.errors import Refused, UsageError
from core.model.names import TableName
from core.observed.planner_input import SourceTable
from core.observed.versions import Deployment, serving_versions
from core.plan.request import PlanRequest, PromotedRevision
from core.planner.promotion import parent_refusals
from core.planner.scope import normal_request
from core.project.manifest_head import MANIFEST_PATH
from core.project.model import LAYER_FOLDERS
from core.project.revision import written_hash
from core.project_reader.functions import function_files
from core.project_reader.loader import read_sound_tables
from core.project_reader.revision_reader import revision_of
from core.project_reader.table_yml import deployed_yml_as_file
from core.text.wording import counted, did_you_mean
from state.ledger import LedgerReader
from state.promotion_source import observe_source, open_source
from tui.project_folder.environment_selection import SelectedEnvironment, select_environment
from tui.project_folder.project_folder_reader import ProjectDeclaration

if TYPE_CHECKING:
    from core.project_reader.parse_cache import ParseCache

_FOLDERS = {str(layer): folder for folder, layer in LAYER_FOLDERS.items()}

Deployed = Mapping[TableName, Deployment]
"""The serving version of each table that is not deleted."""


@dataclass(frozen=True, slots=True)
class Promotion:
    """A promotion to plan in the target environment."""

    request: PlanRequest
    """The request in normal form, which pins the promoted revisions."""
    declared: ProjectDeclaration
    """The promoted revisions among those that are deployed in the target, as a project; no file is modified."""
    source: Mapping[TableName, SourceTable]
    same: tuple[TableName, ...]
    """Requested tables that the target already runs with the same revision, so that there is nothing to promote.

    They do not include tables that are named one by one, unless these are in `revalued`.
    """
    revalued: tuple[TableName, ...] = ()
    """The tables of `same` for which headgate.yml now gives the target other values of variables than they run with.

    The values are the target's own, so deploying them is a plan of its files.
    """


def open_source_of(place: SelectedEnvironment, environ: Mapping[str, str], environment: str) -> LedgerReader:
    """Open the ledger of another environment of the selected project.

    Raises UsageError if there is no such environment or ledger, if the ledger belongs to another project, or if either
    environment is an overlay, which has only what a branch builds.
    """
    there = select_environment(environ, place.folder, project=place.folder, environment=environment)
    for each in (there, place):
        if each.overlay is not None:
            name, base = each.environment, each.overlay.base
            raise UsageError(
                f"{name} overlays {base}, and has only the tables that its branch builds",
                remedy=f"compare it: headgate release diff --env {name}; to promote the branch, deploy it in {base}",
            )
    return open_source(there.where.ledger, environment, place.project_id, protected=there.protected)


def deployed_tables(reader: LedgerReader | None) -> Deployed:
    """Return the serving versions of an environment; none if it has no ledger yet."""
    every = reader.deployments(include_deleted=True) if reader is not None else ()
    return {table: d for table, d in serving_versions(every).items() if not d.deleted}


def plan_promotion(
    asked: PlanRequest,
    declared: ProjectDeclaration,
    parse_cache: "ParseCache",
    *,
    source: LedgerReader,
    target: LedgerReader | None,
    place: SelectedEnvironment,
) -> Promotion:
    """Return the promotion that a request describes by tables, products or `everything`.

    A table that is not named one by one is promoted only if its revision differs from the one in the target. Statement
    sets are promoted together, and external tables that the target lacks are registered. Raises UsageError for an
    unknown table or product, and Refused if a promoted table would read other revisions of its parents than it does in
    the source.
    """
    there, here = deployed_tables(source), deployed_tables(target)
    tables, revisions = observe_source(source), {t: written_hash(d.texts) for t, d in here.items()}
    _refuse_unknown(asked, there)
    wide = {t for t, d in there.items() if asked.everything or d.product in asked.products} - {*asked.tables}
    differs = {t for t in there if tables[t].revision != revisions.get(t)}
    folders = {t: _folder(t, there, declared) for t in there}
    revalued = _revalued((wide | {*asked.tables}) - differs - {*asked.exclude}, here, declared, place.environment)
    named = {*asked.tables} - revalued
    chosen = _with_needed(
        (named | (wide & differs)) - {*asked.exclude}, asked, there, differs, folders=folders, absent=here
    )
    promotes = tuple(PromotedRevision(t, tables[t].revision, there[t].plan_hash) for t in chosen)
    # A table that is left out and that the target does not run is unknown to the plan.
    left_out = tuple(table for table in asked.exclude if table in here)
    request = normal_request(replace(asked, promotes=promotes, exclude=left_out))
    refusals = tuple(parent_refusals(request, place.environment, tables, revisions))
    if refusals:
        more = f", and {len(refusals) - 1} more" if len(refusals) > 1 else ""
        raise Refused(f"{refusals[0].summary}{more}", remedy=str(refusals[0].remedy))
    project = declared_as_deployed({**here, **{t: there[t] for t in chosen}}, declared, parse_cache, place.environment)
    refuse_unfit(project, chosen, place.environment, asked.promoted_from)
    same = (wide - named - differs) | revalued
    return Promotion(request, project, tables, tuple(sorted(same)), tuple(sorted(revalued)))


def _revalued(
    tables: Iterable[TableName], here: Deployed, declared: ProjectDeclaration, environment: str
) -> set[TableName]:
    """Return the tables that run in the target with other values than headgate.yml now gives their variables."""
    values = {each.name: each.value for each in declared.project.environments[environment].variables}
    return {t for t in tables if any(values.get(name) != value for name, value in here[t].texts.variables)}


def refuse_unfit(declared: ProjectDeclaration, chosen: Iterable[TableName], target: str, source: str) -> None:
    """Raise Refused for the first promoted table whose texts are not valid with the present headgate.yml.

    The errors have no place in a file, because the texts are those of the ledger.
    """
    unfit = [(t, declared.project.broken[t].problems) for t in chosen if t in declared.project.broken]
    if unfit:
        table, problems = unfit[0]
        why = problems[0].summary if problems else "its texts are invalid"
        more = f", and {counted(len(unfit) - 1, 'more table')}" if len(unfit) > 1 else ""
        raise Refused(
            f"{table} as it runs in {source} is not valid in {target}: {why}{more}",
            remedy=f"declare in headgate.yml what it needs, or leave it out: --exclude {table}",
        )


def _refuse_unknown(asked: PlanRequest, there: Deployed) -> None:
    where = asked.promoted_from
    for table in (*asked.tables, *asked.exclude):
        if table not in there:
            raise UsageError(
                f"{table} is not deployed in {where}",
                remedy=did_you_mean(table, there) or f"headgate ls --env {where} lists what is deployed",
            )
    products = {d.product for d in there.values()}
    for product in asked.products:
        if product not in products:
            raise UsageError(
                f"{where} runs no table of a product {product!r}",
                remedy=did_you_mean(product, products) or f"products: {', '.join(sorted(products))}",
            )


def _with_needed(
    named: set[TableName],
    asked: PlanRequest,
    there: Deployed,
    differs: set[TableName],
    *,
    folders: Mapping[TableName, str],
    absent: Deployed,
) -> list[TableName]:
    """Add what must be promoted with named tables: statement sets, missing external tables, and parents if asked."""
    by_folder: dict[str, list[TableName]] = {}
    for table in sorted(there):
        by_folder.setdefault(folders[table], []).append(table)
    found, waiting = set(named), sorted(named)
    while waiting:
        table = waiting.pop()
        wanted = [t for t in by_folder[folders[table]] if t in differs]
        for parent in (b.parent for b in there[table].bindings if b.parent in there):
            lacking = there[parent].external and parent not in absent
            wanted += [parent] if lacking or (asked.with_parents and parent in differs) else []
        new = {t for t in wanted if t not in found and t not in asked.exclude}
        found |= new
        waiting += sorted(new)
    return sorted(found)


def _folder(table: TableName, deployed: Deployed, declared: ProjectDeclaration) -> str:
    """Return the folder of a table: that of its files, unless the table was deployed with another product or layer."""
    d = deployed[table]
    first = _leader(table, deployed)
    known = declared.project.tables.get(first) or declared.project.broken.get(first)
    if known is not None and (known.product, str(known.layer)) == (d.product, d.layer):
        return known.folder
    return "/".join(filter(None, ("pipelines", _FOLDERS.get(d.layer, "facts"), d.product, first)))


def _leader(table: TableName, deployed: Deployed) -> TableName:
    """Return the first of the tables that are written by the same file."""
    d = deployed[table]
    if d.texts.as_written.dml.lower().count("insert") < 2:
        return table
    return min(
        t
        for t, other in deployed.items()
        if other.texts.as_written.dml == d.texts.as_written.dml and other.product == d.product
    )


def declared_as_deployed(
    deployed: Deployed, declared: ProjectDeclaration, parse_cache: "ParseCache", environment: str
) -> ProjectDeclaration:
    """Return the project whose files declare the deployed revisions, with the present headgate.yml."""
    texts = {MANIFEST_PATH: declared.texts[MANIFEST_PATH]}
    for table in deployed:
        texts |= _files(table, deployed, declared)
    project, problems = read_sound_tables(texts, parse_cache, environment=environment)
    assert project is not None, "headgate.yml was read before"
    return ProjectDeclaration(texts, project, problems)


def _files(table: TableName, deployed: Deployed, declared: ProjectDeclaration) -> Iterable[tuple[str, str]]:
    """Return the files of a deployed table; they are the project's own if these still declare the same revision."""
    d, own, folder = deployed[table], declared.project.tables.get(table), _folder(table, deployed, declared)
    texts = d.texts.as_written
    if own is not None and own.folder == folder and written_hash(revision_of(own).texts) == written_hash(texts):
        yield own.ddl.path, own.ddl.as_written
        yield from ((own.dml.path, own.dml.as_written),) if own.dml else ()
        # Even if it is empty, because the yml of the folder may belong to another table.
        yield f"{folder}/{table}.yml", own.settings_text
        yield from function_files(folder, texts)
        return
    yield f"{folder}/sql-scripts/ddl.{table}.sql", texts.ddl
    if texts.dml:
        yield f"{folder}/sql-scripts/dml.{_leader(table, deployed)}.sql", texts.dml
    yield f"{folder}/{table}.yml", deployed_yml_as_file(texts.yml, declared.project.defaults_of(d.product))
    yield from function_files(folder, texts)
