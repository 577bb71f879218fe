"""Copies of database tables that declare `refresh`: Delta tables that the agent replaces on that schedule.

A copy is replaced in one commit, so an interrupted refresh leaves the last copy in use. A copy's time, which is stored
in its commit, is the time at which reading began. Files of a replaced copy are deleted once no batch can read them.
"""

import logging
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from core.model.errors import Busy, HeadgateError, PoolUnreachable
from core.model.events import EventKind
from core.model.names import TableName
from core.model.states import AT_REST, TableFaultKind
from core.model.table_formats import table_format
from core.observed.versions import Deployment
from core.sql.jdbc_tables import copy_of, refresh_s
from pipelines.agent.context import AgentContext
from pipelines.agent.deployment_compiler import parsed_ddl
from pipelines.agent.tables.external_inputs import refuse_input_unlike
from pipelines.spark_connect.declared_tables import read_declared
from pipelines.storage.delta_log import CommitsGone, DeltaLog, NoDeltaLog
from pipelines.storage.file_store import store_of

log = logging.getLogger(__name__)

TICK_S = 1.0
"""Seconds between two checks for due copies."""

RETRY_S = 30.0
"""Longest time, in seconds, until a failed refresh is retried."""

LASTS_S = 3600.0
"""Longest time, in seconds, that a copy may take."""


def copies(deployment: Deployment) -> bool:
    """True if the deployment is a database table whose rows are copied on a schedule."""
    return table_format(deployment.format).database and refresh_s(parsed_ddl(deployment)) is not None


def first_copy(agent: AgentContext, deployment: Deployment, note: Mapping[str, Any]) -> float | None:
    """Copy the rows of a table that is being registered; return the copy's time, or None if the table is not copied.

    Raises HeadgateError if the database or the pool refuses the copy.
    """
    if not copies(deployment):
        return None
    folder = agent.layout.table_folder(deployment.table, 0)
    if not agent.files.is_there(folder):
        agent.files.prepare(folder, note)
    return _copy(agent, deployment)


def _copy(agent: AgentContext, deployment: Deployment) -> float | None:
    # This check reports a database that does not answer; Spark would wait for minutes.
    refuse_input_unlike(agent, deployment)
    agent.faults.pass_by("copy begun")
    pool = agent.pools.reachable()
    pool.call(LASTS_S, pool.tables.copy_rows, deployment.compiled_ddl, f"{agent.clock():.3f}")
    agent.faults.pass_by("copy made")
    return _copied_at(_place(deployment))


@dataclass(slots=True)
class DatabaseCopies:
    """Refreshes an environment's copies on schedule. Setting the clock shifts a copy by at most one interval."""

    agent: AgentContext
    _due: dict[TableName, tuple[int, float]] = field(default_factory=dict)
    """Interval in seconds, and the monotonic time of the next copy, by table."""

    def round(self) -> None:
        """Copy the tables that are due, one after another."""
        self.agent.identity.refuse_doubt()
        for table in [d for d in self.agent.ledger.deployments() if d.external and table_format(d.format).database]:
            every_s = refresh_s(parsed_ddl(table))
            if every_s is not None and self._is_due(table, every_s):
                with suppress(Busy), self.agent.locks.holding((table.table, 0), by="the copy of its rows", wait_s=0):
                    self._refresh(table, every_s)

    def _is_due(self, table: Deployment, every_s: int) -> bool:
        now, known = time.monotonic(), self._due.get(table.table)
        if known is None or known[0] != every_s:
            at = _copied_at(_place(table))
            age_s = every_s if at is None else min(max(0.0, self.agent.clock() - at), every_s)
            known = self._due[table.table] = (every_s, now + every_s - age_s)
            if at != table.started_at:
                # An earlier agent was killed after the copy and before recording it.
                self.agent.ledger.update_deployment(table.table, 0, started_at=at)
        return now >= known[1]

    def _refresh(self, table: Deployment, every_s: int) -> None:
        """Copy the rows, or record why they could not be copied; an unreachable pool is reported elsewhere."""
        retry_at = time.monotonic() + min(every_s, RETRY_S)
        self._due[table.table] = (every_s, retry_at)
        try:
            at = _copy(self.agent, table)
        except PoolUnreachable:
            return
        except HeadgateError as why:
            stays = "there is no copy yet" if table.started_at is None else "readers use the rows of the last copy"
            error = f"{table.table} was not refreshed, and {stays}: {why.sentence}"
            if error != table.error:
                kind, key = TableFaultKind.NOT_REFRESHED, (table.table, 0)
                self.agent.ledger.update_deployment(*key, error=error, error_class=kind)
                self.agent.event(EventKind.EXCEPTION, kind, about=key, detail=error, fingerprint=kind)
            return
        self._due[table.table] = (every_s, time.monotonic() + every_s)
        self.agent.ledger.update_deployment(table.table, 0, started_at=at, error="", error_class="")
        _remove_replaced(self.agent, table)


def _place(table: Deployment) -> str:
    return copy_of(read_declared(table.compiled_ddl))


def _copied_at(place: str) -> float | None:
    """Return the last copy's time, in epoch seconds; None if there is no copy."""
    with suppress(NoDeltaLog, ValueError):
        delta = DeltaLog(place)
        delta.refresh()
        if (found := delta.read(delta.head)) is not None:
            return float(found.tag)
    return None


def _remove_replaced(agent: AgentContext, table: Deployment) -> None:
    """Delete the files that are in neither of the last two copies, unless an older batch may still read them."""
    delta = DeltaLog(_place(table))
    try:
        delta.refresh()
        kept = {delta.place_of(file) for version in (delta.head - 1, delta.head) for file in delta.files_at(version)}
        before = next(delta.since(delta.head - 1)).at
    except (NoDeltaLog, ValueError, CommitsGone):
        return
    readers = [
        d for d in agent.ledger.deployments() if any((b.parent, b.version) == (table.table, 0) for b in d.bindings)
    ]
    if any(_may_read_since(agent, reader, before) for reader in readers if reader.state not in AT_REST):
        return
    with suppress(FileNotFoundError):
        files = store_of(delta.folder)
        for entry in files.entries(delta.folder):
            if entry.path not in kept and entry.name.endswith(".parquet") and entry.stat().st_mtime < before:
                files.unlink(entry.path)


def _may_read_since(agent: AgentContext, reader: Deployment, moment: float) -> bool:
    """True if a reader's current batch may have begun before `moment`."""
    found = agent.files.read(reader.checkpoint)
    if found is None or found.planned is None or found.planned == found.batch:
        return False
    return found.committed_at is None or found.committed_at <= moment
