"""Rebuilds registry rows that are missing from the ledger or outdated, from the records in the data folder."""

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from core.model.errors import HeadgateError, TryAgain
from core.model.names import TableName, physical_name, query_name, split_query
from core.model.states import State, WantedState
from core.observed.versions import Deployment
from core.text.sentence import Sentence
from pipelines.agent.context import AgentContext
from pipelines.agent.identity.registry_records import (
    durable,
    newer_serving,
    record_serving,
    recorded_row,
    why_not_ours_to_write,
)
from pipelines.agent.statements.deployment_lifecycle import refuse_other_checkpoint
from pipelines.storage.data_folder_records import RegistryRecord, read_record, record_names

SHOWN = 8
"""Number of characters of a revision hash that are displayed."""


@dataclass(frozen=True, slots=True)
class FoundVersion:
    """A version whose record was written by another ledger, or is newer than the version's row in this ledger."""

    table: TableName
    version: int
    row: Deployment | None
    """The row that an adoption registers; None if it registers nothing and only reserves the version number."""
    line: str
    """Description of the version and of what an adoption does with it."""
    ledger: str = ""
    """Id of the ledger that wrote the version's record. The version's folders may also belong to that ledger."""


class RegistryRebuild:
    """Compares records with the ledger, checkpoints and tables, and registers consistent versions."""

    def __init__(self, agent: AgentContext) -> None:
        self._agent = agent

    def found(self) -> tuple[FoundVersion, ...]:
        """Return the versions that are missing from the ledger or outdated in it, ordered by query name."""
        serving = self.serving()
        judged = (self._judged(*key, serving) for key in self._recorded())
        return tuple(one for one in judged if one is not None)

    def serving(self) -> Mapping[TableName, int]:
        """Return the serving versions by table from the data folder's record, if it is newer than the ledger.

        The mapping is empty if the record is not newer, or cannot be read now.
        """
        try:
            found = newer_serving(self._agent)
        except TryAgain:
            return {}
        return {TableName(table): int(version) for table, version in found.row.items()} if found else {}

    def register(self, found: tuple[FoundVersion, ...]) -> None:
        """Write the versions in `found` to the ledger, then record which of them serve."""
        ledger, serving = self._agent.ledger, newer_serving(self._agent)
        for one in found:
            if one.row is None:
                ledger.block_version_number(one.table, one.version)
            else:
                ledger.put_deployment(_with_id(one.row, ledger.deployment(one.table, one.version)))
        if serving is not None:
            there = {(d.table, d.version) for d in ledger.deployments()}
            known = {TableName(t): int(v) for t, v in serving.row.items() if (TableName(t), int(v)) in there}
            ledger.activate(known, served=record_serving(self._agent, known, run=""))

    def _recorded(self) -> Iterator[tuple[TableName, int]]:
        for name in record_names(self._agent.layout.data):
            if (key := split_query(name)) is not None:
                yield key

    def _judged(self, table: TableName, version: int, serving: Mapping[TableName, int]) -> FoundVersion | None:
        """Return what an adoption would do with a version; None if it would do nothing, or if the record of a version
        that is in the ledger cannot be read now.
        """
        name, now = query_name(table, version), self._agent.ledger.deployment(table, version)
        stays = f"it stays as it is, and version {version} of {table} is not used again"
        try:
            record = read_record(self._agent.layout.data, name)
        except TryAgain as error:
            return None if now else FoundVersion(table, version, None, f"{name}: {error.summary}; {stays}")
        if record is None or (now and not why_not_ours_to_write(record, now, self._agent.ledger_id)):
            return None
        try:
            row = recorded_row(_with_known_texts(record, now), self._agent.clock())
        except ValueError as error:
            why = record.withheld or str(error)
            if now is None:
                return FoundVersion(table, version, None, f"{name}: {why}; {stays}")
            row = replace(now, wanted=WantedState.STOPPED)
            line = f"{name}: {_revisions(record, now)}, and {why}: the ledger's text is kept, wanted stopped"
            return FoundVersion(table, version, row, line, record.ledger)
        if refused := self._why_not_ours(row, record):
            return FoundVersion(table, version, None, f"{name}: {refused}; {stays}")
        row, comes = self._at_rest(row, record, now)
        serves = serving[table] == version if table in serving else row.active and not row.external
        line = f"{name}: {_revisions(record, now)}: {comes}{', serves' if serves else ''}"
        return FoundVersion(table, version, row, line, record.ledger)

    def _why_not_ours(self, row: Deployment, record: RegistryRecord) -> Sentence | None:
        if row.external or row.deleted:
            return None
        layout = self._agent.layout
        ours = layout.is_checkpoint(row.checkpoint, row.table, row.version)
        if row.folder != layout.table_folder(row.table, row.version) or not ours:
            return Sentence(f"it was recorded at {row.folder}, which is not in this data folder")
        try:
            found = self._agent.files.read(row.checkpoint)
        except TryAgain:
            return None
        if found and found.owner not in (self._agent.ledger_id, record.ledger):
            return Sentence(f"its checkpoint belongs to another ledger ({found.owner or 'no owner file'})")
        return None

    def _at_rest(self, row: Deployment, record: RegistryRecord, now: Deployment | None) -> tuple[Deployment, str]:
        row = replace(row, recorded=record.count, active=row.external or bool(now and now.active))
        if row.external:
            return replace(row, state=State.RUNNING), "external table"
        if row.deleted:
            return replace(row, state=State.ABSENT, active=False), "deleted, its files are kept until they are purged"
        try:
            batch = refuse_other_checkpoint(self._agent, row, owners=(record.ledger,))
            found = self._agent.files.read(row.checkpoint)
        except HeadgateError as error:
            stopped = replace(row, wanted=WantedState.STOPPED, checkpoint_ok=False, lost=error.summary)
            return stopped, f"wanted stopped, because {error.summary}; {error.remedy}"
        if found is None or not found.id:
            return replace(row, wanted=WantedState.STOPPED), "was never started, wanted stopped"
        began = found.committed_at or row.created_at
        # The reconciler restarts versions that have a query id and are wanted running.
        row = replace(row, query_id=found.id, checkpoint_id=found.id, started_at=began)
        return row, continuation_words(batch, row.wanted)


def continuation_words(batch: int | None, wanted: str) -> str:
    """Describe how a version continues after batch `batch`, and its desired state.

    `batch` is None before the first batch.
    """
    if wanted == WantedState.STOPPED:
        return f"is {'before its first batch' if batch is None else f'at batch {batch}'}, wanted stopped"
    return f"{'begins' if batch is None else f'continues after batch {batch}'}, wanted {wanted}"


def serving_lines(serving: Mapping[TableName, int], before: tuple[Deployment, ...]) -> tuple[str, ...]:
    """Return a line for each version that serves according to a newer record but not according to the ledger."""
    known = {(d.table, d.version) for d in before if not d.active}
    return tuple(
        f"{physical_name(table, version)} serves by the data folder's record, which is newer than the ledger"
        for table, version in sorted(serving.items())
        if (table, version) in known
    )


def _with_known_texts(record: RegistryRecord, now: Deployment | None) -> RegistryRecord:
    if not record.withheld or now is None or now.revision != record.row.get("revision"):
        return record
    return replace(record, row={**durable(now), **record.row})


def _with_id(row: Deployment, now: Deployment | None) -> Deployment:
    """Return a version with an id, which records of versions before ledger schema 107 lack."""
    if row.external or row.version_id:
        return row
    return replace(row, version_id=now.version_id if now is not None else str(uuid.uuid4()))


def _revisions(record: RegistryRecord, now: Deployment | None) -> str:
    if now is None:
        return "is not in the ledger, and is registered"
    recorded = str(record.row.get("revision", ""))
    if recorded == now.revision:
        return "has a newer record than the ledger, which is used"
    return (
        f"has revision {recorded[:SHOWN]} by its record, which is newer than revision {now.revision[:SHOWN]} of the "
        "ledger and is used"
    )
