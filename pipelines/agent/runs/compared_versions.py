"""The versions among which a comparison chooses: a read-only view of deployments, measurements, runs and plans."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from core.model.actions import StepKind
from core.model.names import TableName, query_name
from core.observed.aligned_positions import Version
from core.observed.versions import Deployment, Measurement
from core.plan.codec import plan_from_json
from core.project.revision import RevisionTexts
from core.run.model import StepState
from state.ledger import Ledger, LedgerReader

_BEGAN = frozenset((StepKind.CREATE, StepKind.RESTART, StepKind.REWRITE))
"""Steps after which a version runs the texts of their plan."""


class ComparedVersions(Protocol):
    """Versions with what is known about them. Every version has a number that no other version of its table has."""

    def deployed(self) -> Mapping[Version, Deployment]:
        """Return all versions that are not deleted, as they are now."""

    def find(self, table: TableName, version: int) -> Deployment | None:
        """Return one version, even if it is deleted; None if it is unknown."""

    def measurement(self, table: TableName, version: int) -> Measurement | None:
        """Return the latest measurement of a version; None before the first measurement."""

    def earlier_texts(self, table: TableName, version: int) -> tuple[RevisionTexts, ...]:
        """Return the texts that a version ran before its present ones, from the plans of its runs."""

    def name(self, table: TableName, version: int) -> str:
        """Return the name of a version for people, such as `orders@v3`."""


@dataclass(frozen=True, slots=True)
class LedgerVersions:
    """The versions of one ledger."""

    ledger: Ledger | LedgerReader

    def deployed(self) -> Mapping[Version, Deployment]:
        return {(found.table, found.version): found for found in self.ledger.deployments()}

    def find(self, table: TableName, version: int) -> Deployment | None:
        return self.ledger.deployment(table, version)

    def measurement(self, table: TableName, version: int) -> Measurement | None:
        return self.ledger.measurement(table, version)

    def earlier_texts(self, table: TableName, version: int) -> tuple[RevisionTexts, ...]:
        found: dict[tuple[str, str], RevisionTexts] = {}
        for run in self.ledger.runs_of(table):
            if not any(
                (step.table, step.version, step.state) == (table, version, StepState.DONE) and step.do in _BEGAN
                for step in run.steps
            ):
                continue
            kept = self.ledger.plan(run.plan_hash)
            nodes = plan_from_json(json.loads(kept.body)).nodes if kept is not None else ()
            for texts in (node.texts for node in nodes if node.table == table and node.texts.dml):
                found.setdefault((texts.ddl, texts.dml), texts)
        now = self.find(table, version)
        if now is not None:
            found.pop((now.texts.ddl, now.texts.dml), None)
        return tuple(found.values())

    def name(self, table: TableName, version: int) -> str:
        return query_name(table, version)
