"""Stops running statements whose tables were replaced or changed, before rows are lost.

Rows that other programs write to a keyed table are reported once; the table's statement keeps running.
"""

import logging
from dataclasses import dataclass
from typing import Any

from core.model.errors import Busy, HeadgateError, Refused, TryAgain
from core.model.events import EventKind
from core.model.names import TableName, physical_name, query_name
from core.model.states import ALIVE, TableFaultKind, WantedState
from core.model.table_formats import table_format
from core.observed.versions import Deployment
from core.ports.storage import TableFault
from pipelines.agent.context import AgentContext
from pipelines.agent.deployment_compiler import allowed_silence, connector_of, upserts
from pipelines.agent.statements.deployment_lifecycle import fail, stop
from pipelines.agent.tables.database_copies import copies
from pipelines.agent.tables.external_inputs import fault_of_input, reads_inputs
from pipelines.agent.tables.table_identities import fault_of_tables, keep_deleted_keys
from pipelines.storage.kafka_connect import fault_of_connector, silence_fault

log = logging.getLogger(__name__)

EVERY_S = 30.0
"""Seconds between two rounds."""

BY_HAND = "HEADGATE_WRITTEN_BY_HAND"

_OF_TABLES = ("DELTA_", "DIFFERENT_DELTA_TABLE_")
"""Prefixes of the error classes with which Spark reports replaced or changed tables (Delta 4.4.0)."""


@dataclass(frozen=True, slots=True)
class _TopicEnd:
    """The end of a table's topics, as the sum of their offsets, and when the agent first saw it."""

    end: int
    seen_at: float
    grew: bool
    """Whether the agent saw the topics grow to this end, and not only that they had it."""


class ChangedTables:
    """Detects tables that were replaced or changed while a running statement was using them."""

    def __init__(self, agent: AgentContext) -> None:
        self._agent = agent
        self._reported: dict[tuple[TableName, int], str] = {}
        """Fingerprint of the last reported commit by another program, by deployment."""
        self._ends: dict[TableName, _TopicEnd] = {}
        self._connectors: dict[str, TableFault | None] = {}
        """The answers of connectors in this round, by URL: one connector fills the topics of several tables."""

    def round(self) -> None:
        """Stop running statements whose tables have changed, and report writes by other programs to keyed tables."""
        self._connectors.clear()
        for deployment in self._agent.ledger.deployments():
            if deployment.deleted:
                continue
            try:
                if deployment.external:
                    self._look_at_input(deployment)
                    continue
                if _runs(deployment):
                    self._compare(deployment)
                if upserts(deployment):
                    self._tell_of_other_writers(deployment)
            except Busy:
                continue
            except HeadgateError as error:
                log.info("%s was not compared: %s", query_name(deployment.table, deployment.version), error.summary)

    def _compare(self, deployment: Deployment) -> None:
        key = (deployment.table, deployment.version)
        # Files are read before a lock is taken.
        is_other = fault_of_tables(self._agent, deployment) is not None
        if not is_other and not upserts(deployment):
            return
        with self._agent.locks.holding(key, by="a comparison of tables", wait_s=0):
            # Since the row was read, a run or an operator may have moved, altered or stopped the version.
            found = self._agent.ledger.deployment(*key)
            if found is None or not _runs(found):
                return
            if not is_other and found == deployment:
                keep_deleted_keys(self._agent, found)
                return
            if fault := fault_of_tables(self._agent, found):
                stop(self._agent, found)
                fail(self._agent, found, fault.kind, fault.sentence)

    def _look_at_input(self, deployment: Deployment) -> None:
        """Record whether an external table is gone, was replaced, differs from its DDL, or is no longer filled."""
        format = table_format(deployment.format)
        if (format.has_files and not format.transaction_log) or copies(deployment):
            return
        key, found = (deployment.table, deployment.version), ""
        try:
            fault = fault_of_input(self._agent, deployment)
            fault = fault or self._fault_of_connector(deployment) or self._fault_of_silence(deployment)
            found = self._agent.files.identity(deployment.folder, deployment.stored_as)
        except (TryAgain, Refused) as why:
            fault = TableFault(TableFaultKind.UNREAD, why.summary, why.remedy)
        changes: dict[str, Any] = {"table_id": found} if found and found != deployment.table_id else {}
        error = {"error": fault.sentence, "error_class": fault.kind} if fault else {"error": "", "error_class": ""}
        # An entry that the catalog refused has its own error, which is cleared when it is accepted.
        said = {"error": deployment.error, "error_class": deployment.error_class}
        if said != error and deployment.error_class != TableFaultKind.NOT_IN_CATALOG:
            changes |= error
        if not changes:
            return
        with self._agent.locks.holding(key, by="a comparison of tables", wait_s=0):
            if self._agent.ledger.deployment(*key) != deployment:
                # Since the row was read, a run has registered the table again.
                return
            self._agent.ledger.update_deployment(*key, **changes)
        if fault is not None and "error" in changes:
            self._agent.event(EventKind.EXCEPTION, fault.kind, about=key, detail=fault.sentence, fingerprint=fault.kind)
        if deployment.table_id and "table_id" in changes:
            words = f"{deployment.table} was re-created: its id is {found} and was {deployment.table_id}"
            readers = "streaming readers get an error, and readers that join it as a static side read the new one"
            kind = TableFaultKind.REPLACED
            self._agent.event(EventKind.EXCEPTION, kind, about=key, detail=f"{words}; {readers}", fingerprint=found)

    def _fault_of_connector(self, deployment: Deployment) -> TableFault | None:
        if not (url := connector_of(deployment)):
            return None
        if url not in self._connectors:
            self._connectors[url] = fault_of_connector(url)
        return self._connectors[url]

    def _fault_of_silence(self, deployment: Deployment) -> TableFault | None:
        """Return the fault of topics without a new message for too long.

        A message counts from its timestamp, or from the time at which the agent saw the topics grow if that is later:
        timestamps may be those of events in the past, or of a clock that is behind.
        """
        if not (allowed := allowed_silence(deployment)):
            return None
        now, (end, newest_at) = self._agent.clock(), self._agent.files.newest_message(deployment.folder)
        known = self._ends.get(deployment.table)
        if known is None or known.end != end:
            self._ends[deployment.table] = _TopicEnd(end, now, grew=known is not None)
            return None
        is_dated = newest_at is not None and newest_at < known.seen_at and not known.grew
        since = newest_at if is_dated and newest_at is not None else known.seen_at
        return silence_fault(deployment.table, since, now, allowed)

    def _tell_of_other_writers(self, deployment: Deployment) -> None:
        key = (deployment.table, deployment.version)
        found = self._agent.files.written_by_hand(deployment.folder, deployment.format)
        if found is None:
            return
        version, operation = found
        place = table_format(deployment.format).place_in(deployment.folder)
        commit = self._agent.files.log_mark(place, version)
        # A table that was restored gets another commit with the same version number.
        mark = f"{BY_HAND} {version} {commit.commit}" if commit and commit.commit else ""
        if not mark or self._reported.get(key) == mark:
            return
        by = f"were written by hand ({operation} in version {version}), not by its statement"
        risk = f"a key may occur twice or be missing; headgate plan {deployment.table} --rebuild reads everything again"
        words = f"rows of {physical_name(*key)} {by}: {risk}"
        kind = EventKind.EXCEPTION
        known = self._agent.ledger.events_of(deployment.table, kind)
        if not any((event.version, event.fingerprint) == (deployment.version, mark) for event in known):
            self._agent.event(kind, BY_HAND, about=key, detail=words, fingerprint=mark)
        self._reported[key] = mark


def fault_that_ended(agent: AgentContext, deployment: Deployment, error_class: str) -> TableFault | None:
    """Return the change to a table that made Spark end a statement, or None if there is no such change.

    Spark's error names neither the table nor a missing external table that is joined as a static side (Delta 4.4.0).
    """
    if not (error_class.startswith(_OF_TABLES) or reads_inputs(agent, deployment)):
        return None
    try:
        return fault_of_tables(agent, deployment)
    except HeadgateError:
        return None


def _runs(deployment: Deployment) -> bool:
    ours = not (deployment.external or deployment.deleted)
    return ours and deployment.wanted == WantedState.RUNNING and deployment.state in ALIVE
