"""`headgate adopt`: what is found where the world is in doubt, as a list of what an adoption does, and doing it."""

import logging
from typing import Any

from core.model.errors import HeadgateError, Refused
from core.model.names import TableName, query_name
from core.plan.confirmation import confirmation_for_adoption
from pipelines.agent.context import READ_CALL_S, WRITE_CALL_S, AgentContext
from pipelines.agent.deployment_lifecycle import refuse_other_checkpoint
from pipelines.agent.requests.policy_enforcement import require_confirmation
from pipelines.storage.world_mark import TableFolder, table_folders
from state.row_types import Deployment

log = logging.getLogger(__name__)


class Adoption:
    """Takes what is there for the ledger's own: a new epoch, and owner files that carry it. Files are never moved."""

    def __init__(self, world: AgentContext) -> None:
        self._world = world

    def findings(self) -> dict[str, Any]:
        """Describe what is in doubt, and what an adoption does with each statement, folder and query that is there."""
        return {
            "doubt": self._doubt(),
            "lines": [
                *(f"{query_name(d.table, d.version)}: {self._verdict(d)}" for d in self._statements()),
                *(
                    f"{folder.path} of run {folder.run or 'unknown'} is not in the registry: it stays as it is, and "
                    f"version {folder.version} of {folder.table} is not used again"
                    for folder in self._unknown_folders()
                ),
                *(f"run {run.id} of {run.actor} is {run.state}: it goes on" for run in self._world.ledger.open_runs()),
                *(
                    f"query {name} runs and is not in the registry: it is left alone"
                    for name in self._unknown_queries()
                ),
            ],
        }

    def carry_out(self, confirm: str) -> dict[str, Any]:
        """Adopt; raises Refused where nothing is in doubt, ConfirmationNeeded without the typed text."""
        if not (doubt := self._doubt()):
            raise Refused("nothing is in doubt: there is nothing to adopt")
        require_confirmation(confirmation_for_adoption(self._world.layout.environment.name), confirm)
        for folder in self._unknown_folders():
            self._world.ledger.take_version(TableName(folder.table), folder.version)
        epoch = self._world.identity.adopt()
        self._world.files.epoch = epoch
        for deployment in self._statements():
            for place in (deployment.folder, deployment.checkpoint):
                self._take_over(place)
        self._restore_pointers()
        self._world.event("world", f"adopted as epoch {epoch}", detail=doubt)
        return {"epoch": epoch, "doubt": doubt}

    def _doubt(self) -> str:
        """Explain why the world is in doubt, or which statement carries another epoch or machine."""
        if self._world.identity.doubt:
            return self._world.identity.doubt
        files = self._world.files
        for deployment in self._statements():
            found = files.read(deployment.checkpoint)
            name = query_name(deployment.table, deployment.version)
            if found and found.owner == self._world.ledger_id and found.epoch not in (0, files.epoch):
                return f"the checkpoint of {name} is of epoch {found.epoch}, and the ledger of epoch {files.epoch}"
            if found and found.machine and files.machine and found.machine != files.machine:
                return f"the checkpoint of {name} was written on machine {found.machine}"
        return ""

    def _take_over(self, folder: str) -> None:
        try:
            self._world.files.take_over(folder)
        except Refused:
            # It is not this ledger's: its start says so.
            return

    def _restore_pointers(self) -> None:
        """Point to what serves, which nobody did in doubt; a pool that is away gets it when it is attached to."""
        world = self._world
        for d in self._statements():
            name = world.layout.catalog_name(d.table, d.version)
            try:
                pool = world.pool.connection()
                pool.call(WRITE_CALL_S, pool.tables.create, name, d.compiled_ddl)
                if d.active:
                    pool.call(WRITE_CALL_S, pool.tables.point, world.layout.pointer_name(d.table), name, d.columns)
            except HeadgateError as error:
                log.warning("%s is not in the catalog: %s", name, error.summary)

    def _statements(self) -> tuple[Deployment, ...]:
        return tuple(d for d in self._world.ledger.deployments() if not d.external)

    def _verdict(self, deployment: Deployment) -> str:
        try:
            batch = refuse_other_checkpoint(self._world, deployment)
        except HeadgateError as error:
            return f"is not started: {error.summary}; {error.remedy}"
        goes_on = "begins" if batch is None else f"goes on after batch {batch}"
        return f"{goes_on}, wanted {deployment.wanted}"

    def _unknown_folders(self) -> tuple[TableFolder, ...]:
        known = {(str(d.table), d.version) for d in self._world.ledger.deployments(include_deleted=True)}
        found = table_folders(self._world.layout.data)
        return tuple(folder for folder in found if (folder.table, folder.version) not in known)

    def _unknown_queries(self) -> tuple[str, ...]:
        """List queries of the session that the registry does not know; none where the pool cannot be asked."""
        known = {query_name(d.table, d.version) for d in self._statements()}
        try:
            pool = self._world.pool.connection()
            return tuple(sorted({q.name for q in pool.call(READ_CALL_S, pool.queries.active) if q.active} - known))
        except HeadgateError:
            return ()
