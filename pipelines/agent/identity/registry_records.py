"""Copies of registry rows in the data folder, from which a lost ledger can be rebuilt.

A record is written before its version starts, before pointers move, and periodically. It contains the number of times
that it has been written, which is incremented in the ledger first. A record with a higher number than the ledger was
therefore written by a newer copy of the ledger. Such a record is never overwritten, and its statement does not start
until `headgate adopt`.
"""

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any

from core.model.errors import Busy, HeadgateError, LedgerUnavailable, NotAdopted, Refused
from core.model.names import TableName, query_name
from core.model.states import State
from core.observed.versions import Deployment
from core.plan.file import refuse_secrets
from core.run.model import RunState
from core.text.sentence import Sentence
from pipelines.agent.context import AgentContext
from pipelines.agent.statement_locks import Version
from pipelines.storage.data_folder_records import (
    SERVING_FILE,
    SESSION_FILE,
    RegistryRecord,
    read_record,
    remove_record,
    write_record,
)
from state.row_mapping import field_names, row_from_values, values_by_column

log = logging.getLogger(__name__)

_OBSERVED = (
    "state", "state_since", "active", "query_id", "run_id", "restarts", "error_class", "error", "started_at",
    "checkpoint_ok", "lost", "lost_kind", "recorded", "deleted_keys_version", "deleted_keys_commit",
    "deleted_keys_batch",
)  # fmt: skip
"""Fields that records omit, because an agent can observe them again or because other records contain them."""

_DURABLE = attrgetter(*(name for name in field_names(Deployment) if name not in _OBSERVED))

_TEXTS = ("texts", "compiled", "compiled_ddl", "before_ddl")

_SERVING = threading.Lock()
"""Serializes updates of the record of serving versions, because two runs may swap at the same time."""


def durable(deployment: Deployment) -> dict[str, Any]:
    """Return the values of a version that an agent cannot observe again, keyed by ledger column."""
    return values_by_column(deployment, without=_OBSERVED)


def recorded_row(record: RegistryRecord, now: float) -> Deployment:
    """Convert a record from the data folder into a stopped version, or raise ValueError if the record is incomplete."""
    values = {"state": State.STOPPED, "state_since": now, "active": False, **record.row}
    try:
        return row_from_values(Deployment, tuple(values), tuple(values.values()))
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"it is incomplete: {error}") from error


def keep_record(agent: AgentContext, table: TableName, version: int) -> None:
    """Copy a version's row from the ledger to its record in the data folder. The caller must hold the version's lock.

    The record of a purged version is deleted. Raises NotAdopted if the existing record was written by another ledger or
    by a newer copy of this one.
    """
    row = agent.ledger.deployment(table, version)
    if row is None:
        return
    name = query_name(table, version)
    found, values = read_record(agent.layout.data, name), _without_secrets(row)
    if found and (found.ledger, found.row) == (agent.ledger_id, values.row):
        return
    if found and (why := why_not_ours_to_write(found, row, agent.ledger_id)):
        raise NotAdopted(f"{name} {why}", remedy="headgate adopt")
    if row.deleted and not row.trash:
        # The version's files are gone, and the ledger will drop its row too.
        remove_record(agent.layout.data, name)
    else:
        write_over(agent, row, found)


def write_over(agent: AgentContext, row: Deployment, found: RegistryRecord | None) -> None:
    """Overwrite a version's record `found`, even if another ledger wrote it.

    The record's new write count is stored in the ledger first.
    """
    count = max(row.recorded, found.count if found else 0) + 1
    agent.ledger.update_deployment(row.table, row.version, recorded=count)
    record = replace(_without_secrets(row), ledger=agent.ledger_id, count=count)
    write_record(agent.layout.data, query_name(row.table, row.version), record)


def why_not_ours_to_write(found: RegistryRecord, row: Deployment, ledger_id: str) -> Sentence | None:
    """Return why this ledger must not overwrite a version's record, or None if it may."""
    if found.ledger != ledger_id:
        return Sentence(f"is recorded in the data folder by ledger {found.ledger}")
    if found.count > row.recorded:
        return Sentence("has a newer record in the data folder than in the ledger, which is an older copy")
    return None


def record_serving(agent: AgentContext, versions: Mapping[TableName, int], run: str) -> int:
    """Record in the data folder which versions serve, and return how often that record has been written.

    Call this before updating the ledger. Tables that are not in `versions` keep their recorded version. `run` is the id
    of the run that changes the versions.
    """
    data = agent.layout.data
    with _SERVING:
        found = read_record(data, SERVING_FILE)
        count = max(agent.ledger.facts().served, found.count if found else 0) + 1
        serving = {**(found.row if found else {}), **{str(table): version for table, version in versions.items()}}
        write_record(data, SERVING_FILE, RegistryRecord(agent.ledger_id, count, serving, run=run))
    return count


def newer_serving(agent: AgentContext) -> RegistryRecord | None:
    """Return the data folder's record of serving versions if it is newer than the ledger, or None if it is not.

    A newer record is ignored if the run that wrote it is in this ledger and has not failed.
    """
    found = read_record(agent.layout.data, SERVING_FILE)
    if found is None or (found.ledger == agent.ledger_id and found.count <= agent.ledger.facts().served):
        return None
    run = agent.ledger.run(found.run) if found.run and found.ledger == agent.ledger_id else None
    # The run moves the pointers again, or an operator ended it knowingly. A failed run may have been retried elsewhere.
    return found if run is None or run.state == RunState.FAILED else None


def keep_serving(agent: AgentContext) -> bool:
    """Update the data folder's record of serving versions from the ledger; return True if both now agree.

    They disagree if the existing record is newer, or if the run that wrote it is still in progress.
    """
    with _SERVING:
        # The record is read first, so that a concurrent swap shows in the record or in the ledger.
        found, served = read_record(agent.layout.data, SERVING_FILE), agent.ledger.facts().served
        serving: dict[str, Any] = {
            d.table: d.version for d in agent.ledger.deployments() if d.active and not d.external
        }
        if found is not None:
            under_way = found.count > served and found.run in {run.id for run in agent.ledger.open_runs()}
            if found.row == serving:
                return True
            if under_way or newer_serving(agent):
                return False
            served = max(served, found.count)
        agent.ledger.put_served(served + 1)
        write_record(agent.layout.data, SERVING_FILE, RegistryRecord(agent.ledger_id, served + 1, serving))
        return True


def session_file(place: str) -> str:
    """Return the name of the record of a pool's session; `place` is as in `Environment.place_of`."""
    return f"{SESSION_FILE}.{place}" if place else SESSION_FILE


def recorded_session(data: str, place: str = "") -> str:
    """Return the id of a pool's session recorded in the data folder; empty if there is none.

    If the ledger is lost, this session id leads to the running queries. Raises TryAgain if the record cannot be read
    now.
    """
    found = read_record(data, session_file(place))
    return str(found.row.get("session_id", "")) if found else ""


@dataclass(slots=True)
class RegistryRecords:
    """Keeps the copies of registry rows in the data folder up to date."""

    agent: AgentContext
    _change: int = 0
    """Number of the latest change in the ledger that was processed."""
    _kept: dict[Version, int] = field(default_factory=dict)
    """Hash of each version's durable fields as they were last recorded."""
    _pending: dict[Version, int] = field(default_factory=dict)
    """Hash of the durable fields of each version that could not be recorded yet."""
    _active: dict[Version, bool] = field(default_factory=dict)
    _sessions: dict[str, str] = field(default_factory=dict)
    """Id of the session that was last recorded, by the place of its pool."""
    _said: dict[Version, str] = field(default_factory=dict)
    """Last logged reason why a version could not be recorded. The same reason is not logged again."""

    def round(self) -> None:
        """Record all changes since the last round. Versions that cannot be recorded are retried in the next round.

        Raises NotAdopted or Busy if the identity of the environment is in doubt.
        """
        self.agent.identity.refuse_doubt()
        self._change, rows = self.agent.ledger.registered_since(self._change)
        self._pending |= {
            key: digest for row in rows if self._kept.get(key := _key(row)) != (digest := hash(_DURABLE(row)))
        }
        for key, digest in tuple(self._pending.items()):
            try:
                with self.agent.locks.holding(key, by="the registry's records", wait_s=0):
                    keep_record(self.agent, *key)
            except (Busy, LedgerUnavailable):
                continue
            except HeadgateError as error:
                if self._said.get(key) != error.summary:
                    log.warning("%s is not recorded: %s", query_name(*key), error.summary)
                self._said[key] = error.summary
                continue
            self._kept[key] = digest
            self._pending.pop(key, None)
            self._said.pop(key, None)
        active = self._active | {_key(row): row.active for row in rows}
        if active != self._active:
            self._active = active
            self.agent.serving_record_is_stale.set()
        if self.agent.serving_record_is_stale.is_set() and keep_serving(self.agent):
            self.agent.serving_record_is_stale.clear()
        facts = self.agent.ledger.facts()
        for pool in facts.pools:
            if pool.session_id not in ("", self._sessions.get(pool.place)):
                session = RegistryRecord(facts.ledger_id, pool.generation, {"session_id": pool.session_id})
                write_record(self.agent.layout.data, session_file(pool.place), session)
                self._sessions[pool.place] = pool.session_id


def _key(row: Deployment) -> Version:
    return row.table, row.version


def _without_secrets(row: Deployment) -> RegistryRecord:
    values = durable(row)
    try:
        refuse_secrets(
            {"ddl.sql": row.texts.ddl, "before.sql": row.before_ddl, "dml.sql": row.texts.dml, "yml": row.texts.yml}
        )
    except Refused:
        kept = {key: value for key, value in values.items() if key not in _TEXTS}
        return RegistryRecord("", 0, kept, withheld="its texts seem to contain a secret")
    return RegistryRecord("", 0, values)
