"""Replication slots for external tables of database changes: one for each table that has a reader.

A slot makes the database keep its log. It is therefore advanced to the position that the slowest reader has committed,
and dropped once nothing reads the table. While a reader has no committed position, the slot is not advanced.
"""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from core.model.errors import Busy, HeadgateError
from core.model.names import TableName
from core.model.states import ALIVE
from core.model.table_formats import table_format
from core.observed.versions import Deployment
from core.sql.compiler import compile_ddl
from core.sql.postgres_changes import change_address, read_address, slot_name, with_slot
from pipelines.agent.context import AgentContext
from pipelines.agent.deployment_compiler import parsed_ddl, streamed_reads, streamed_sources
from pipelines.storage.change_slots import ChangeSlots, create_slot, drop_slot

log = logging.getLogger(__name__)

EVERY_S = 5.0
"""Seconds between two rounds."""

_ByVersion = Mapping[tuple[TableName, int], Deployment]


def with_slot_address(agent: AgentContext, planned: Deployment) -> Deployment:
    """Add the replication slot to an external table of database changes. A registered table keeps its slot.

    The name of a new slot contains the id of the ledger, so that two environments never share one.
    """
    if not table_format(planned.format).changes:
        return planned
    before, ddl = agent.ledger.deployment(planned.table, 0), parsed_ddl(planned)
    has_slot = before is not None and table_format(before.format).changes
    slot = read_address(before.folder).slot if before and has_slot else _new_slot(agent, planned.table)
    ddl = with_slot(ddl, slot)
    compiled = compile_ddl(ddl, agent.layout.catalog_name(planned.table, 0), ddl.location)
    return replace(planned, compiled_ddl=compiled, folder=change_address(ddl))


def _new_slot(agent: AgentContext, table: TableName) -> str:
    return slot_name(agent.ledger_id, agent.layout.naming.of(table))


def create_slots(agent: AgentContext, deployment: Deployment) -> None:
    """Create the missing slots of a new version's sources. Existing slots are kept.

    The version must already be in the registry, because slots of tables without readers are dropped.
    """
    parents = (agent.ledger.deployment(b.parent, b.version) for b in deployment.bindings if b.streamed)
    for parent in parents:
        if parent is not None and table_format(parent.format).changes:
            agent.faults.pass_by("slot missing")
            with agent.locks.holding((parent.table, 0), by="the creation of its slot"):
                create_slot(parent.table, parent.folder)
            agent.faults.pass_by("slot created")


@dataclass(slots=True)
class SlotUpkeep:
    """Advances and drops the slots of an environment."""

    agent: AgentContext
    _slots: ChangeSlots = field(default_factory=ChangeSlots)
    _failures: dict[TableName, str] = field(default_factory=dict)
    """The last failure by table, so that each is logged once."""
    _dropped: set[str] = field(default_factory=set)
    """Addresses of tables without readers whose slots are known to be gone."""

    def round(self) -> None:
        """Advance each slot to the position of its slowest reader, and drop slots without readers."""
        self.agent.identity.refuse_doubt()
        for table in [d for d in self.agent.ledger.deployments() if table_format(d.format).changes]:
            try:
                with self.agent.locks.holding((table.table, 0), by="the upkeep of its slot", wait_s=0):
                    self._keep(table)
                self._failures.pop(table.table, None)
            except Busy:
                continue
            except HeadgateError as error:
                if self._failures.get(table.table) != error.summary:
                    log.warning("the slot of %s was not advanced: %s", table.table, error.summary)
                self._failures[table.table] = error.summary

    def _keep(self, table: Deployment) -> None:
        by_version = {(d.table, d.version): d for d in self.agent.ledger.deployments()}
        if (now := by_version.get((table.table, 0))) is None:
            return
        readers = [*_reader_positions(self.agent, now, by_version)]
        if not readers:
            if now.folder not in self._dropped and drop_slot(now.table, now.folder):
                log.info("dropped the slot of %s, which nothing reads", now.table)
            self._dropped.add(now.folder)
            return
        self._dropped.discard(now.folder)
        in_use = any(reader.state in ALIVE for reader, _ in readers)
        self._slots.advance(now.table, now.folder, [position for _, position in readers], in_use=in_use)


def holder_of_log(agent: AgentContext, table: Deployment, by_version: _ByVersion) -> Deployment | None:
    """Return the version for which a database keeps its log; None if that version is running or if there is none.

    This is the reader with the lowest position. Readers that cannot continue are ignored, as the slot has passed them.
    """
    positions = (each for each in _reader_positions(agent, table, by_version) if each[0].checkpoint_ok)
    found = min(positions, key=lambda each: each[1] or 0, default=None)
    return None if found is None or found[0].state in ALIVE else found[0]


def _reader_positions(
    agent: AgentContext, table: Deployment, by_version: _ByVersion
) -> Iterator[tuple[Deployment, int | None]]:
    """Yield each version that reads a database's changes, with its committed position (None before its first batch)."""
    for reader in by_version.values():
        for ordinal in _ordinals(reader, table, by_version):
            yield reader, agent.files.position(reader.checkpoint, ordinal)


def _ordinals(reader: Deployment, table: Deployment, by_version: _ByVersion) -> Iterator[int]:
    if any((b.parent, b.version, b.streamed) == (table.table, 0, True) for b in reader.bindings):
        for ordinal, source, _, _ in streamed_sources(reader, streamed_reads(reader), by_version):
            if source == table.table:
                yield ordinal
