"""The table of a keyed version's deleted keys: which one it is, and how far it has come.

A batch makes it anew where there is none, and writes on in whatever lies there: rows that come late would then bring
deleted keys back. Ledger and table are compared before each start and while its statement runs.
"""

from core.model.names import query_name
from pipelines.agent.context import AgentContext
from pipelines.agent.deployment_compiler import upsert_of
from state.row_types import Deployment


def deleted_keys_of(deployment: Deployment) -> str:
    """Return the folder of the table of a version's deleted keys, which its first batch makes; empty without one."""
    upsert = upsert_of(deployment) if "deletes:" in deployment.texts.yml else None
    return upsert.deleted if upsert is not None and upsert.deletes and upsert.sequence else ""


def why_other_deleted_keys(world: AgentContext, deployment: Deployment) -> str:
    """Explain why the table of a version's deleted keys is gone, another one, or an older copy; empty where it is not.

    A version that a ledger knows no table of, as one from before that was recorded, has any.
    """
    if not (place := deleted_keys_of(deployment)):
        return ""
    what = f"the table of the keys that were deleted from {query_name(deployment.table, deployment.version)}"
    checkpoint = world.files.read(deployment.checkpoint)
    if not world.files.is_there(f"{place}/_delta_log"):
        begun = checkpoint is not None and checkpoint.batch is not None
        return f"{what} is gone: there is no log in {place}" if begun else ""
    known = deployment.deleted_keys_version
    found = world.files.log_mark(place, known)
    if found is None or not deployment.deleted_keys_id:
        return ""
    risk = "rows that come late would bring those keys back"
    if found.id != deployment.deleted_keys_id:
        return f"{what} was re-created: its id is {found.id} and was {deployment.deleted_keys_id}, and {risk}"
    planned = checkpoint.planned if checkpoint is not None else None
    if known is None or planned is None or planned < (deployment.deleted_keys_batch or 0):
        # Together with a checkpoint of an earlier moment it may be what it was then.
        return ""
    if found.version < known:
        return f"{what} is an older copy: it ends with version {found.version} and had version {known}, and {risk}"
    if found.commit and found.commit != deployment.deleted_keys_commit:
        return (
            f"{what} is an older copy that was written on: its version {known} is another one than it had, and {risk}"
        )
    return ""


def keep_deleted_keys(world: AgentContext, deployment: Deployment) -> None:
    """Record which table of deleted keys a version has and how far it has come; it was compared before."""
    place = deleted_keys_of(deployment)
    found = world.files.log_mark(place) if place else None
    # Read second: what a batch has written there, it has planned before.
    checkpoint = world.files.read(deployment.checkpoint) if found is not None else None
    if found is None or checkpoint is None or checkpoint.planned is None:
        return
    mark = (found.id, found.version, found.commit)
    before = (deployment.deleted_keys_id, deployment.deleted_keys_version, deployment.deleted_keys_commit)
    if mark != before or checkpoint.planned < (deployment.deleted_keys_batch or 0):
        world.ledger.update_deployment(
            deployment.table,
            deployment.version,
            deleted_keys_id=found.id,
            deleted_keys_version=found.version,
            deleted_keys_commit=found.commit,
            deleted_keys_batch=checkpoint.planned,
        )
