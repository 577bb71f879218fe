"""Ledgers of overlays on disk: of pr-123 with that of its base dev, and of one beside the environment of an agent."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ledger_rows import deployment_row, environment_row, external_row

from core.model.names import TableName as T
from core.observed.served_environment import ServedEnvironment
from core.observed.versions import Binding, Deployment
from core.project.naming import OWN_SOURCES, Naming
from core.project.overlay import OVERLAY_FILE, Overlay, overlay_as_text
from core.project.revision import RevisionTexts, revision_hash
from pipelines.agent.context import AgentContext
from pipelines.agent.runs.compared_versions import LedgerVersions
from pipelines.agent.runs.overlay_versions import OverlayVersions
from state.ledger import Ledger, create_or_open

COLUMNS = "(id BIGINT, kind STRING)"


def texts(table: str, query: str = "", *, format: str = "parquet", location: str = "") -> RevisionTexts:
    where = f" LOCATION '{location}'" if location else ""
    ddl = f"CREATE TABLE {table} {COLUMNS} USING {format}{where};"
    return RevisionTexts(ddl, f"INSERT INTO {table} {query};" if query else "")


@dataclass
class TwoLedgers:
    """landed → orders → paid → report. The base serves orders@v3; the overlay changes paid and inherits orders."""

    folder: Path
    base: Ledger
    own: Ledger
    overlay: Overlay
    format: str = "parquet"

    @property
    def versions(self) -> OverlayVersions:
        return OverlayVersions(LedgerVersions(self.base), LedgerVersions(self.own), self.overlay, "pr-123")

    def at(self, environment: str, table: str, version: int, place: str = "tables") -> str:
        return f"{self.folder}/{environment}/{place}/{environment}_{table}__v{version}"

    def put(self, environment: str, table: str, version: int, query: str, **fields: Any) -> Deployment:
        """Register a version that reads the table after FROM STREAM; `reads` is its version."""
        parent = T(query.split("FROM STREAM ")[1].split()[0])
        told = texts(table, query, format=self.format)
        row = deployment_row(
            table, version=version, texts=told, revision=revision_hash(told), format=self.format,
            folder=self.at(environment, table, version), checkpoint=self.at(environment, table, version, "checkpoints"),
            bindings=(Binding(parent, fields.pop("reads", 0), True),), **fields,
        )  # fmt: skip
        (self.base if environment == "dev" else self.own).put_deployment(row)
        return row

    def inherit(self, table: str, version: int) -> None:
        """Register a table of the base as an external table of the overlay."""
        place = self.at("dev", table, version) + ("/delta" if self.format == "delta" else "")
        told = texts(table, format=self.format, location=place)
        self.own.put_deployment(
            external_row(table, texts=told, revision=revision_hash(told), folder=place, format=self.format, active=True)
        )
        self.overlay = replace(self.overlay, inherited={**self.overlay.inherited, T(table): version})

    def write_overlay(self, home: Path) -> None:
        home.mkdir(parents=True, exist_ok=True)
        (home / OVERLAY_FILE).write_text(overlay_as_text(self.overlay))


PAID = "SELECT id, kind FROM STREAM orders WHERE id > 3"
CHANGED = "SELECT id, kind FROM STREAM orders WHERE id > 5"


def two_ledgers(folder: Path, own: Ledger | None = None, *, format: str = "parquet") -> TwoLedgers:
    """Create both ledgers, unless that of the overlay is given, with the sample in them."""
    home = folder / "home-dev"
    overlay = Overlay("dev", str(home), str(folder / "dev"), str(folder), 1.0, "ana", 2.0)
    base = create_or_open(home / "ledger.db", environment_row(environment="dev", ledger_id="base"))
    mine = own or create_or_open(folder / "home-pr" / "ledger.db", environment_row(environment="pr-123"))
    two = TwoLedgers(folder, base, mine, overlay, format)
    landed = external_row("landed", texts=texts("landed", format="json", location="/in"), folder="/in", format="json")
    for ledger in (two.base, two.own):
        ledger.put_deployment(landed)
    two.put("dev", "orders", 2, "SELECT id, kind FROM STREAM landed WHERE id > 0", active=False)
    two.put("dev", "orders", 3, "SELECT id, kind FROM STREAM landed")
    two.put("dev", "paid", 1, PAID, reads=3)
    two.put("dev", "report", 2, "SELECT id, kind FROM STREAM paid", reads=1)
    two.inherit("orders", 3)
    two.put("pr-123", "paid", 1, CHANGED)
    two.put("pr-123", "report", 1, "SELECT id, kind FROM STREAM paid", reads=1)
    return two


def overlay_of(agent: AgentContext, inherited: dict[str, int], *, base_home: str = "", name: str = "pr-1") -> Ledger:
    """Create an overlay of an agent's environment, with a statement `mine` that streams `a`; return its ledger."""
    home = Path(agent.places.home).parent / name
    ledger = create_or_open(home / "ledger.db", environment_row(environment=name, project_id=agent.project_id))
    ledger.put_agent(None, None, serves=ServedEnvironment("/data.pr-1", Naming(prefix="pr_1_"), OWN_SOURCES))
    mine = RevisionTexts(f"CREATE TABLE mine {COLUMNS} USING delta;", "INSERT INTO mine SELECT id FROM STREAM a;")
    places = {"folder": "/t/pr_1_mine__v1", "checkpoint": "/c/pr_1_mine__v1"}
    ledger.put_deployment(deployment_row("mine", texts=mine, bindings=(Binding(T("a"), 0, True),), **places))
    read = {T(table): version for table, version in inherited.items()}
    overlay = Overlay("dev", base_home or agent.places.home, "/data", "/branch", 1.0, "ana", 9e9, inherited=read)
    (home / OVERLAY_FILE).write_text(overlay_as_text(overlay))
    return ledger
