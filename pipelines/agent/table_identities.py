"""Tables with an id of their own: registered only where they are, and never another one in the place of what was."""

import os
import re

from core.model.errors import Refused, TryAgain
from core.model.names import physical_name, query_name
from core.model.table_formats import table_format
from core.ports.storage import VersionFolders
from core.sql.stars import says_star
from core.sql.statement import TableRead
from pipelines.agent.context import AgentContext, PoolConnection
from pipelines.agent.deployment_compiler import (
    parsed_statement,
    streamed_reads,
    streamed_sources,
    tracks_schemas,
    upsert_of,
)
from pipelines.agent.version_tables import register
from state.row_types import Deployment

_BY_HAND = "it was renamed or dropped by hand, and a new name can be taken back"
_OF_TABLES = ("DELTA_", "DIFFERENT_DELTA_TABLE_")
"""How the classes begin of what Spark says where a table is not what it was: it names no table (Delta 4.4.0)."""
_TAKE_CHANGES = frozenset({"skipchangecommits", "ignorechanges", "ignoredeletes", "readchangefeed"})
"""Options of a stream of Delta with which it does not end where rows were changed or taken out."""


def register_again(world: AgentContext, pool: PoolConnection, deployment: Deployment) -> None:
    """Put a version's table, which was made before, into a pool's catalog; raises Refused where its log is gone.

    Without its log Delta would make an empty one in its place, and say nothing (4.4.0).
    """
    if not table_format(deployment.format).transaction_log:
        register(pool, world.layout, deployment)
        return
    if why := why_other_sink(world, deployment):
        raise Refused(why, remedy=f"headgate plan {deployment.table} --rebuild")
    register(pool, world.layout, deployment, logs=world.files)


def refuse_other_tables(world: AgentContext, deployment: Deployment) -> None:
    """Refuse a start that would write into, or read on from, another table than the one before.

    Spark compares the id of what is read and never of what is written: rows before it would be lost without a word.
    """
    if why := why_other_table(world, deployment):
        raise Refused(why, remedy=_remedy(deployment))


def why_ended(world: AgentContext, deployment: Deployment, error_class: str, error: str) -> str:
    """Return with what a query ended; where one of its tables is another one: which, what it is, and the way out."""
    if error_class.startswith(_OF_TABLES):
        try:
            refuse_other_tables(world, deployment)
        except Refused as refused:
            return refused.sentence
        except TryAgain:
            return error
    return error


def refuse_gone(world: AgentContext, deployment: Deployment, because: Exception | None = None) -> None:
    """Raise Refused if the folder of a version's table is gone, in place of what a reader of it was told."""
    if not deployment.external and world.files.contents(deployment.folder, deployment.format) is None:
        raise Refused(
            f"the table of {query_name(deployment.table, deployment.version)} is gone: {_why_gone(deployment.folder)}",
            remedy=_remedy(deployment),
        ) from because


def why_folder_gone(world: AgentContext, deployment: Deployment) -> str:
    """Explain that the folder of a version's table is gone, and what to do; empty where it is there.

    Where the folder around it is not there either, the data may not be mounted: that is no loss of one table.
    """
    if world.files.is_there(deployment.folder) or not world.files.is_there(os.path.dirname(deployment.folder)):
        return ""
    name = query_name(deployment.table, deployment.version)
    return f"the table of {name} is gone: there is no folder {deployment.folder}; {_remedy(deployment)}"


def why_other_table(world: AgentContext, deployment: Deployment) -> str:
    """Explain which table of a statement is not the one that it was; empty where all are."""
    if deployment.external:
        return ""
    return (
        why_other_sink(world, deployment)
        or _why_deleted_keys_gone(world, deployment)
        or _why_other_source(world, deployment)
        or _why_other_static_side(world, deployment)
    )


def why_other_sink(world: AgentContext, deployment: Deployment) -> str:
    """Explain why the table of a version is not the one that was made for it; empty where it is."""
    if not table_format(deployment.format).transaction_log:
        return ""
    name = query_name(deployment.table, deployment.version)
    found = world.files.identity(deployment.folder, deployment.format)
    if not found:
        return f"the table of {name} is gone: {_why_gone(deployment.folder)}"
    if deployment.table_id and found != deployment.table_id:
        return f"the table of {name} was re-created: its id is {found} and was {deployment.table_id}"
    if lost := _lost_columns(world, deployment):
        return f"the table of {name} has no column {', '.join(lost)} any more: {_BY_HAND}"
    before = VersionFolders(deployment.folder, deployment.checkpoint).before
    if deployment.before_ddl and not world.files.identity(before, deployment.format):
        return f"the table of the rows from before {name} is gone: {_why_gone(before)}"
    return ""


def deleted_keys_of(deployment: Deployment) -> str:
    """Return the folder of the table of a version's deleted keys, which its first batch makes; empty without one."""
    upsert = upsert_of(deployment) if "deletes:" in deployment.texts.yml else None
    return upsert.deleted if upsert is not None and upsert.deletes and upsert.sequence else ""


def _why_deleted_keys_gone(world: AgentContext, deployment: Deployment) -> str:
    """Explain that a keyed version has no table of its deleted keys any more; empty where it has, or needs none yet.

    A batch makes that table anew where there is none, so that rows which come late would bring deleted keys back.
    """
    place = deleted_keys_of(deployment)
    if not place or world.files.is_there(f"{place}/_delta_log"):
        return ""
    found = world.files.read(deployment.checkpoint)
    if found is None or found.batch is None:
        return ""
    name = query_name(deployment.table, deployment.version)
    return f"the table of the keys that were deleted from {name} is gone: there is no log in {place}"


def _lost_columns(world: AgentContext, deployment: Deployment) -> list[str]:
    """Return the columns of a version that its table, as its log says, has under that name no more."""
    there = world.files.columns(deployment.folder, deployment.format)
    names = {column.lower() for column in there or deployment.columns}
    return [column for column in deployment.columns if column.lower() not in names]


def _why_other_static_side(world: AgentContext, deployment: Deployment) -> str:
    """Explain which column a statement reads of a static side that has it no more; empty where all are there."""
    for binding in deployment.bindings:
        side = None if binding.streamed else world.ledger.deployment(binding.parent, binding.version)
        if side is None or not (lost := _lost_columns(world, side)):
            continue
        parsed = parsed_statement(deployment)
        read = [each for each in lost if says_star(parsed) or re.search(rf"\b{re.escape(each)}\b", parsed.select, re.I)]
        if read:
            about = f"{physical_name(binding.parent, binding.version)}, a static side of"
            name = query_name(deployment.table, deployment.version)
            return f"{about} {name}, has no column {', '.join(read)} any more: {_BY_HAND}"
    return ""


def _why_gone(folder: str) -> str:
    return f"{folder} has no log" if os.path.isdir(folder) else f"there is no folder {folder}"


def _remedy(deployment: Deployment) -> str:
    return f"headgate plan {deployment.table} --rebuild, or restore its folder from a backup"


def takes_changes(read: TableRead) -> bool:
    """Return whether a stream goes on over rows that were changed or taken out."""
    return not _TAKE_CHANGES.isdisjoint(key.lower() for key, _ in read.options)


def _why_other_source(world: AgentContext, deployment: Deployment) -> str:
    parents = {}
    for binding in deployment.bindings:
        if binding.streamed and (parent := world.ledger.deployment(binding.parent, binding.version)) is not None:
            parents[binding.parent, binding.version] = parent
    if not any(table_format(parent.format).transaction_log for parent in parents.values()):
        return ""
    reads = streamed_reads(deployment)
    sources = streamed_sources(deployment, reads, parents)
    take_changes = frozenset(n for n, read in enumerate(reads) if takes_changes(read))
    other = world.files.why_other_source(
        deployment.checkpoint, sources, take_changes=take_changes, tracked=tracks_schemas(deployment)
    )
    if other is None:
        return ""
    table, why = other
    version = next((version for parent, version in parents if parent == table), 0)
    name = query_name(deployment.table, deployment.version)
    return f"{physical_name(table, version)}, which {name} reads, {why}"
