"""Refuses names and folders that belong to another environment or to another naming, before anything is created.

The other environment may be one of another project, another checkout or another ledger.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice

from core.model.actions import Action
from core.model.errors import InvalidProject, PoolUnreachable, Refused, TryAgain
from core.model.names import TableName
from core.model.table_formats import WITHOUT_FILES, table_format
from core.observed.served_environment import environment_edits, other_name
from core.observed.versions import Deployment
from core.plan.model import Plan, PlanNode
from core.project.data_folder import absolute_data_folder
from core.project.model import Environment
from core.project_reader.manifest import Manifest, read_manifest
from core.sql.ddl_reader import read_ddl
from core.sql.statement import TableDdl
from core.text.sentence import Fact, FactKind
from pipelines.agent.context import WRITE_CALL_S, AgentContext
from pipelines.spark_connect.declared_tables import path_of
from pipelines.storage.data_folder_records import EnvironmentMark, read_mark
from pipelines.storage.file_store import store_of

_CREATES_NO_NAME = frozenset({Action.KEEP, Action.STOP, Action.DELETE, Action.RETIRE, Action.OPTIMIZE, Action.VACUUM})

MOST_SEARCHED = 2_000
"""Maximum number of folders below a new data folder that are searched for another environment's mark."""

_DEPTH = 4
"""Number of folders from a table up to its data folder, including the subfolder of some formats."""


class Foreign(FactKind):
    """A reason why a name or folder does not belong to this environment."""

    TAKEN = (
        "{name} of {table} would meet {name} at {place}{owner}, which is on the same server: nothing was created",
        "give the environment another prefix, suffix or database below naming",
    )
    NESTED = (
        "the data folder {data} is inside {outer}, which belongs to {owner}",
        "write another folder as data: in headgate.yml",
    )
    AROUND = (
        "the data folder {data} contains {inner}, which belongs to {owner}",
        "write another folder as data: in headgate.yml",
    )


def refuse_other_naming(deployments: Iterable[Deployment], manifest: Manifest, environment: Environment) -> None:
    """Raise InvalidProject, with the line, if headgate.yml names a deployed version otherwise."""
    if (other := other_name(deployments, environment)) is not None:
        raise InvalidProject(f"{manifest.place(environment.name, other.kind.code)}: {other}", remedy=str(other.remedy))


def refuse_edited_environment(declared: Environment | None, text: str, agent: AgentContext) -> None:
    """Raise Refused, with the line, if `text`, the headgate.yml of a plan, differs from what the agent serves.

    A relative data folder lies in the agent's project folder, also if the plan is from another checkout.
    """
    if declared is None:
        return
    data = absolute_data_folder(agent.folder, declared.data, os.path.realpath)
    for edit in environment_edits(agent.layout.served, declared, data):
        place = read_manifest(text, []).place(declared.name, edit.kind.code)
        raise Refused(f"{place}: {edit}", remedy=str(edit.remedy))


def refuse_nested_data(data: str) -> None:
    """Raise InvalidProject if a new data folder is inside the data folder of another environment, or around one.

    A folder that is in use already is not checked, because its agent could then no longer stop its statements. Of the
    folders below, the first `MOST_SEARCHED` are searched, the upper ones first.
    """
    try:
        if read_mark(data) is not None:
            return
    except TryAgain:
        # The agent waits until it can read the folder.
        return
    for outer in _above(data):
        if (mark := _mark_in(outer)) is not None:
            raise _invalid(Foreign.NESTED.of(data=data, outer=outer, owner=_owner(mark)))
    for inner in islice(_folders_below(data), MOST_SEARCHED):
        if (mark := _mark_in(inner)) is not None:
            raise _invalid(Foreign.AROUND.of(data=data, inner=inner, owner=_owner(mark)))


def _folders_below(top: str) -> Iterator[str]:
    """Yield the folders below a folder, the upper ones first, each level sorted; links are not followed."""
    files, level = store_of(top), [top]
    while level:
        below: list[str] = []
        for folder in level:
            with suppress(OSError):
                entries = files.entries(folder)
                below += sorted(entry.path for entry in entries if entry.is_dir() and not files.is_link(entry.path))
        yield from below
        level = below


def _above(folder: str) -> Iterator[str]:
    """Yield the folders above an absolute path, the nearest first."""
    while (above := os.path.dirname(folder)) != folder and not above.endswith(("/", ":")):
        yield above
        folder = above
    if folder.startswith("/"):
        yield "/"


def refuse_names_of_others(agent: AgentContext, plan: Plan) -> None:
    """Raise Refused if a name that a plan will create is on the server already, and leads out of this environment.

    Asks the server only if the plan creates a name. Raises PoolUnreachable if the server does not answer.
    """
    expected = {name: (table, place) for name, table, place in _new_names(agent, plan)}
    if not expected:
        return
    found = set[tuple[str, str]]()
    for each in agent.pools.with_catalog():
        try:
            pool = each.connection()
            found.update(pool.call(WRITE_CALL_S, pool.tables.places, tuple(expected)).items())
        except PoolUnreachable:
            # Each registration checks its name once more, so a pool that is away delays only what needs it.
            if not agent.pools.are_several:
                raise
    for name, place in sorted(found):
        table, ours = expected[name]
        if place != ours and not place.startswith(f"{agent.layout.data}/"):
            mark = next((mark for folder in islice(_above(place), _DEPTH) if (mark := _mark_in(folder))), None)
            owner = f" of {_owner(mark)}" if mark else ""
            raise _refused(Foreign.TAKEN.of(name=name, table=table, place=place or "an unknown place", owner=owner))


def _new_names(agent: AgentContext, plan: Plan) -> Iterator[tuple[str, TableName, str]]:
    """Yield each name that a plan adds to the catalog, its table and, for an external table, its declared place."""
    layout, deployments = agent.layout, agent.ledger.deployments()
    known = {(each.table, each.version) for each in deployments}
    served = {each.table for each in deployments if each.active}
    for node in plan.nodes:
        if node.action in _CREATES_NO_NAME or ((node.table, node.version) in known and node.table in served):
            continue
        ddl = _declared(node)
        if ddl is not None and not table_format(ddl.format).has_files:
            continue
        if not node.texts.dml:
            if ddl is not None:
                yield layout.catalog_name(node.table, 0), node.table, path_of(layout.external_location(ddl))
            continue
        if (node.table, node.version) not in known:
            yield layout.catalog_name(node.table, node.version), node.table, ""
        if node.table not in served:
            yield layout.pointer_name(node.table), node.table, ""


def _declared(node: PlanNode) -> TableDdl | None:
    """Return a node's parsed DDL; None if it certainly declares a table with files that a statement writes.

    Parsing the DDLs of 3,000 tables would take 0.7 s.
    """
    text = node.texts.ddl.lower()
    if not text or (node.texts.dml and not any(name in text for name in WITHOUT_FILES)):
        return None
    return read_ddl(node.texts.ddl, f"ddl.{node.table}.sql")[0]


def _mark_in(folder: str) -> EnvironmentMark | None:
    # A mark that cannot be read names no owner.
    try:
        return read_mark(folder)
    except TryAgain:
        return None


def _owner(mark: EnvironmentMark) -> str:
    return f"ledger {mark.ledger} in {mark.home}"


def _refused(fact: Fact[Foreign]) -> Refused:
    return Refused(str(fact), remedy=str(fact.remedy))


def _invalid(fact: Fact[Foreign]) -> InvalidProject:
    return InvalidProject(str(fact), remedy=str(fact.remedy))
