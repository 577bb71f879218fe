"""Purging what was deleted, once its time is over: only from the trash, only what carries our mark."""

import logging
import os
import shutil

from pipelines.agent.context import AgentContext

log = logging.getLogger(__name__)


def purge_trash(world: AgentContext) -> None:
    """Delete the files of every tombstoned version whose `drop_after` has passed."""
    now = world.clock()
    trash = os.path.realpath(f"{world.ground.data}/trash")
    for deployment in world.ledger.deployments(include_deleted=True):
        if deployment.drop_after is None or not deployment.trash or deployment.drop_after > now:
            continue
        folder = os.path.realpath(deployment.trash)
        if not folder.startswith(trash + os.sep):
            log.error("%s is outside the trash folder and is left alone", folder)
            continue
        shutil.rmtree(folder, ignore_errors=True)
        world.ledger.purged(deployment.table, deployment.version, now)
        log.info("purged %s v%s", deployment.table, deployment.version)
