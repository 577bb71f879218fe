"""What the console asks of `tui.services`: readings that may be slow, and acts.

None of it is called on the event loop, but for the one that says so.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from core.model.problems import Problem
from core.plan.model import Plan
from core.project.revision import RevisionTexts
from state.ledger_snapshot import LedgerSnapshot, StatementDetails
from state.row_types import ApprovalRow, PlanRow, RunRow
from tui.presentation.screen_content.statement_detail import DeclaredDetails

if TYPE_CHECKING:
    from state.ledger import LedgerReader
    from tui.agent_client.agent_commands import AgentCommands


@dataclass(frozen=True, slots=True)
class PlanView:
    """A plan with its row of the ledger and its approvals."""

    plan: Plan
    row: PlanRow
    approvals: tuple[ApprovalRow, ...] = ()


@dataclass(frozen=True, slots=True)
class RunView:
    """A run with the plan that it executes."""

    run: RunRow
    plan: PlanView | None = None


@dataclass(frozen=True, slots=True)
class TableDrift:
    """A table whose files differ from what is deployed, or that is staged; `would` is what a plan would do."""

    table: str
    change: str
    would: str
    reason: str = ""
    old: RevisionTexts = field(default_factory=RevisionTexts)
    new: RevisionTexts = field(default_factory=RevisionTexts)
    folder: str = ""


@dataclass(frozen=True, slots=True)
class ProjectView:
    """The project folder as it is now; `missing` says why it could not be read."""

    drift: tuple[TableDrift, ...] = ()
    problems: tuple[Problem, ...] = ()
    missing: str = ""


class ConsoleBackendProtocol(Protocol):
    """Everything the console can ask; calls raise HeadgateErrors."""

    def snapshot(self, previous: LedgerSnapshot | None) -> LedgerSnapshot:
        """Read the ledger; the same object again when nothing changed. Never raises: `problem` says what is wrong."""

    def detail(self, table: str) -> StatementDetails:
        """Read what the ledger knows of one statement; equal values when nothing changed."""

    def declared(self, table: str, column: str | None = None) -> DeclaredDetails:
        """Read the files of one statement; with a column its lineage too, of the first one for an empty name."""

    @property
    def reader(self) -> "LedgerReader":
        """The ledger's reader, for what one screen alone shows."""

    @property
    def agent(self) -> "AgentCommands":
        """The agent, for acts; `confirmation` is pure and quick, and is called on the loop."""

    def started_environments(self) -> tuple[str, ...]:
        """List the project's environments that were started here; raises UsageError when its folder is gone."""

    def project(self) -> ProjectView: ...
    def plan(self, hash_prefix: str) -> PlanView | None: ...
    def run(self, run_id: str) -> RunView | None: ...
    def submit(self, actor: str) -> str:
        """Plan what the actor has staged in this folder and submit it; returns the plan's hash."""

    def continuation(self, run_id: str) -> str:
        """Submit the plan that goes on from a failed run with the texts of now; empty where they did not change."""
