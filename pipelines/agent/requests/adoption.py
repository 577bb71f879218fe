"""Implements `headgate adopt`: reports doubts about the environment's identity, and resolves them by an adoption."""

import logging
from contextlib import suppress
from pathlib import Path
from typing import Any

from core.model.errors import HeadgateError, PoolUnreachable, Refused
from core.model.events import EventKind
from core.model.names import TableName, query_name
from core.model.states import State, WantedState
from core.observed.versions import Deployment
from core.plan.confirmation import confirmation_for_adoption
from core.run.records import RunRow
from pipelines.agent.context import READ_CALL_S, WRITE_CALL_S, AgentContext, AgentPool, PoolConnection
from pipelines.agent.identity.registry_records import write_over
from pipelines.agent.requests.caller_roles_and_policy import require_confirmation
from pipelines.agent.requests.registry_rebuild import FoundVersion, RegistryRebuild, continuation_words, serving_lines
from pipelines.agent.runs.run_ends import end_unexecutable
from pipelines.agent.runs.stop_and_trash_steps import places_of
from pipelines.agent.statements.deployment_lifecycle import refuse_other_checkpoint
from pipelines.agent.tables.table_identities import pointer_of, register_again
from pipelines.local_pool.connect_server import LocalPool
from pipelines.local_pool.process_locks import pids_of_servers_on
from pipelines.storage.data_folder_records import TableFolder, read_mark, read_record, table_folders

log = logging.getLogger(__name__)


FILLED_S = 30.0
"""Longest time, in seconds, that an adoption waits until the pool's catalog is filled."""


class Adoption:
    """Resolves a doubt about the environment's identity.

    It registers versions, starts a new epoch and rewrites owner files. It never moves files.
    """

    def __init__(self, agent: AgentContext) -> None:
        self._agent = agent
        self._rebuild = RegistryRebuild(agent)

    def findings(self) -> dict[str, Any]:
        """Return the doubt and, as lines of text, what an adoption would do with each statement, folder, run and query.

        Raises Refused if there is a doubt while a Spark server of another Headgate home uses the data folder.
        """
        found = self._rebuild.found()
        doubt = self._doubt(found)
        if doubt:
            self._refuse_beside_another_server()
        taken = {(one.table, one.version) for one in found}
        known = [d for d in self._statements() if (d.table, d.version) not in taken]
        overtaken = {run.id for run in self._overtaken(found)}
        return {
            "doubt": doubt,
            "lines": [
                *(f"{query_name(d.table, d.version)}: {self._verdict(d)}" for d in known),
                *(one.line for one in found),
                *serving_lines(self._rebuild.serving(), tuple(known)),
                *(
                    f"{folder.path} of run {folder.run or 'unknown'} is not in the registry and has no record: it "
                    f"stays as it is, and version {folder.version} of {folder.table} is not used again"
                    for folder in self._unknown_folders(found)
                ),
                *(
                    f"run {run.id} of {run.actor} is {run.state}: "
                    + (
                        "it ends failed, because its tables have changed since"
                        if run.id in overtaken
                        else "it continues"
                    )
                    for run in self._agent.ledger.open_runs()
                ),
                *(
                    f"query {name} runs and is not in the registry: it is left alone"
                    for name in self._unknown_queries(found)
                ),
            ],
        }

    def carry_out(self, confirm: str) -> dict[str, Any]:
        """Adopt the environment, or raise ConfirmationNeeded unless `confirm` is the required text.

        Raises Refused if there is no doubt, or while a Spark server of another home uses the data folder. The data
        folder's mark is written last: if the agent is killed before that, the doubt remains and the adoption can be
        repeated.
        """
        found = self._rebuild.found()
        if not (doubt := self._doubt(found)):
            raise Refused("nothing is in doubt: there is nothing to adopt")
        self._refuse_beside_another_server()
        require_confirmation(confirmation_for_adoption(self._agent.layout.environment.name), confirm)
        for folder in self._unknown_folders(found):
            self._agent.ledger.block_version_number(TableName(folder.table), folder.version)
        for run in self._overtaken(found):
            why = f"its tables have changed without it; headgate runs cancel {run.id}, and plan again"
            end_unexecutable(self._agent, run, why, ())
        self._rebuild.register(found)
        left: list[str] = []

        def take_over(epoch: int) -> None:
            left.extend(self._take_over(found, epoch))
            # Before the doubt ends: afterwards the reconciler starts wanted statements at once, which need their
            # tables.
            self._restore_catalog()

        epoch = self._agent.identity.adopt(take_over)
        self._agent.record_completed_change(
            EventKind.WORLD, f"adopted as epoch {epoch}", detail="; ".join((doubt, *left))
        )
        return {"epoch": epoch, "doubt": doubt, "left": left}

    def _refuse_beside_another_server(self) -> None:
        layout, places = self._agent.layout, self._agent.places
        ours = {LocalPool(places.of_pool(each.place).home, each.declared).pid for each in self._agent.pools.every()}
        others = [pid for pid in pids_of_servers_on(Path(layout.data)).values() if pid not in ours]
        if not others:
            return
        pid, home = others[0], places.home
        mark = read_mark(layout.data)
        theirs = mark.home if mark and mark.home != home else ""
        whose = f"the server of {theirs}" if theirs else "a server that this home does not know"
        down = f"headgate down for {theirs}, or " if theirs else ""
        raise Refused(
            f"{f'process {pid}' if pid else 'a process'}, {whose}, runs over {layout.data} now: "
            "both environments would write the same checkpoints",
            remedy=f"{down}kill {pid or 'it'}, if nothing needs it; then headgate adopt again",
        )

    def _doubt(self, found: tuple[FoundVersion, ...]) -> str:
        """Return why the environment is in doubt; empty if it is not.

        A checkpoint that cannot be read now raises no doubt; the findings show the error instead.
        """
        if self._agent.identity.doubt:
            return self._agent.identity.doubt
        for one in found:
            if one.row is not None:
                return one.line
        if lines := serving_lines(self._rebuild.serving(), self._statements()):
            return lines[0]
        return next(filter(None, map(self._foreign, self._statements())), "")

    def _foreign(self, deployment: Deployment) -> str:
        files, name = self._agent.files, query_name(deployment.table, deployment.version)
        try:
            found = files.read(deployment.checkpoint)
        except HeadgateError:
            return ""
        if found and found.owner == self._agent.ledger_id and found.epoch not in (0, files.epoch):
            return f"the checkpoint of {name} has epoch {found.epoch}, but the ledger has epoch {files.epoch}"
        moved = found and found.machine and files.machine and found.machine != files.machine
        if found and moved and not self._agent.machine_may_move:
            return f"the checkpoint of {name} was written on machine {found.machine}"
        return ""

    def _take_over(self, found: tuple[FoundVersion, ...], epoch: int) -> list[str]:
        """Write the ledger's id and the new epoch to all owner files, and return a message for each failure.

        A version's record is rewritten only after its folders, so that a version that failed can be adopted again.
        """
        self._agent.files.epoch = epoch
        former = {(one.table, one.version): one.ledger for one in found if one.row is not None}
        left = []
        for d in self._agent.ledger.deployments(include_deleted=True):
            key = (d.table, d.version)
            try:
                for place in places_of(self._agent.layout.naming, d):
                    # Folders that are gone or belong to another ledger are not changed; a start reports them.
                    with suppress(Refused):
                        self._agent.files.take_over(place, former.get(key, ""))
                if key in former:
                    write_over(self._agent, d, read_record(self._agent.layout.data, query_name(*key)))
            except HeadgateError as error:
                left.append(f"{query_name(*key)}: {error.summary}")
        return left

    def _restore_catalog(self) -> None:
        agent = self._agent
        for each in agent.pools.every():
            pool = self._attached(each)
            if pool is None:
                continue
            for d in agent.ledger.deployments():
                name = agent.layout.catalog_name(d.table, d.version)
                try:
                    register_again(agent, pool, d)
                    if d.active and not d.external and not d.writes_topic:
                        pool.call(WRITE_CALL_S, pool.tables.point, *pointer_of(agent.layout, d))
                except HeadgateError as error:
                    log.warning("%s is not in the catalog: %s", name, error.summary)

    def _attached(self, pool: AgentPool) -> PoolConnection | None:
        # The catalog may have been filled from the registry as it was before the adoption.
        ends_at = self._agent.monotonic() + FILLED_S
        while True:
            with suppress(PoolUnreachable):
                return pool.connection()
            try:
                pool.connection_for_stops()
            except PoolUnreachable:
                return None
            if self._agent.monotonic() > ends_at or self._agent.stopping.wait(0.1):
                log.warning("the pool's catalog was not filled within %.0f s", FILLED_S)
                return None

    def _statements(self) -> tuple[Deployment, ...]:
        return tuple(d for d in self._agent.ledger.deployments() if not d.external)

    def _verdict(self, deployment: Deployment) -> str:
        try:
            batch = refuse_other_checkpoint(self._agent, deployment)
        except HeadgateError as error:
            return f"is not started: {error.summary}; {error.remedy}"
        if (deployment.state, deployment.wanted) == (State.FAILED, WantedState.RUNNING):
            name = query_name(deployment.table, deployment.version)
            return f"has failed, and an adoption does not start it: headgate restart {name}"
        return continuation_words(batch, deployment.wanted)

    def _overtaken(self, found: tuple[FoundVersion, ...]) -> tuple[RunRow, ...]:
        # Continuing these runs would undo the changes of the newer ledger.
        tables = {one.table for one in found if one.row is not None and not one.row.external}
        return tuple(run for run in self._agent.ledger.open_runs() if tables & {step.table for step in run.steps})

    def _unknown_folders(self, found: tuple[FoundVersion, ...]) -> tuple[TableFolder, ...]:
        known = {(str(d.table), d.version) for d in self._agent.ledger.deployments(include_deleted=True)}
        known |= {(str(one.table), one.version) for one in found}
        folders = table_folders(self._agent.layout.data)
        return tuple(folder for folder in folders if (folder.table, folder.version) not in known)

    def _unknown_queries(self, found: tuple[FoundVersion, ...]) -> tuple[str, ...]:
        known = {query_name(d.table, d.version) for d in self._statements()}
        known |= {query_name(one.table, one.version) for one in found if one.row is not None}
        running = set[str]()
        for each in self._agent.pools.every():
            with suppress(HeadgateError):
                pool = each.connection()
                running |= {q.name for q in pool.call(READ_CALL_S, pool.queries.active) if q.active}
        return tuple(sorted(running - known))
