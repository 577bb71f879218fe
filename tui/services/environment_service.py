"""Everything a front end does, bound to one environment: the console is given one of these and nothing else.

Every method blocks, may be called from any thread, and raises HeadgateErrors only.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from core.model.names import TableName
from core.plan.model import Plan
from core.plan.request import PlanRequest
from state.ledger import LedgerReader
from state.migrations import SCHEMA_VERSION
from state.row_types import AuditRow, CommandRow, EventRow, PlanRow, RunRow, SampleRow
from tui.agent_client import agent_commands, agent_process
from tui.agent_client.socket_client import AgentClient
from tui.project_folder import environment_selection
from tui.project_folder.environment_selection import SelectedEnvironment
from tui.project_folder.project_reader import ProjectReader
from tui.services import (
    deployed_statements,
    inventory_lineage,
    plan_files,
    planner_input,
    run_continuation,
    submitted_plans,
)
from tui.services import plan_submission as planning
from tui.services.deployed_statements import EnvironmentStatus, ProjectDrift, StatementVersions

if TYPE_CHECKING:
    from core.changes.spark_analysis import AnalysisAnswer, AnalysisQuestion
    from core.lineage.column_lineage import ColumnLineage, LineageTracer
    from core.observed.planner_input import PlannerInput
    from core.plan.confirmation import Confirmation
    from core.plan.file import SavedPlan
    from core.project.model import Project
    from core.project_files.git_comparison import GitComparison
    from core.reports.impact import Impact
    from core.reports.inventory import InventoryEntry
    from tui.project_folder.project_reader import ProjectDeclaration


class EnvironmentService:
    """Reads the ledger, computes plans and sends commands, for one environment of one project."""

    def __init__(self, place: SelectedEnvironment, environ: Mapping[str, str]) -> None:
        self.place = place
        self.client = AgentClient(place.where.socket, ledger=SCHEMA_VERSION, title=place.title)
        self._environ = dict(environ)
        self._projects = ProjectReader(place, environ)
        self._lock = threading.Lock()
        self._reader: LedgerReader | None = None
        self._tracing = threading.Lock()
        self._tracer: tuple[Project, LineageTracer] | None = None

    # Looking: the ledger, read-only. All raise LedgerUnavailable (never started, unreadable) and VersionMismatch.

    @property
    def reader(self) -> LedgerReader:
        """The ledger's reader, opened on first use."""
        with self._lock:
            if self._reader is None:
                self._reader = deployed_statements.open_reader(self.place)
            return self._reader

    def data_version(self) -> int:
        """Return a number that differs once anything was written; cheap enough for every frame."""
        return self.reader.data_version()

    def snapshot(self) -> EnvironmentStatus:
        """Read one moment of the environment."""
        return deployed_statements.environment_status(self.reader)

    def detail(self, table: str) -> StatementVersions:
        """Read one statement with its versions and readers; raises UsageError when it never was deployed."""
        return deployed_statements.statement_versions(self.reader, table)

    def samples(self, table: TableName, version: int, since: float) -> tuple[SampleRow, ...]:
        """List a version's samples from `since` (epoch seconds), oldest first."""
        return self.reader.samples(table, version, since)

    def events(self, table: TableName | None = None, limit: int = 200) -> tuple[EventRow, ...]:
        """List events, newest first, of one table or of all."""
        return self.reader.events(table, limit)

    def plan_row(self, hash_prefix: str) -> PlanRow:
        """Find a submitted plan's row; raises UsageError."""
        return submitted_plans.find_submitted_plan(self.reader, hash_prefix)[0]

    def plan(self, hash_prefix: str) -> Plan:
        """Find a submitted plan; raises UsageError."""
        return submitted_plans.find_submitted_plan(self.reader, hash_prefix)[1]

    def plans(self, limit: int = 50) -> tuple[PlanRow, ...]:
        """List submitted plans, newest first."""
        return self.reader.plans(limit)

    def run(self, id_prefix: str) -> RunRow:
        """Find a run; raises UsageError."""
        return agent_commands.find_run(self.reader, id_prefix)

    def runs(self, limit: int = 50) -> tuple[RunRow, ...]:
        """List runs, newest first."""
        return self.reader.runs(limit)

    def audits(self, limit: int = 200) -> tuple[AuditRow, ...]:
        """List who did what, newest first."""
        return self.reader.audits(limit)

    def commands(self, limit: int = 100) -> tuple[CommandRow, ...]:
        """List accepted and refused commands, newest first."""
        return self.reader.commands(limit)

    # The project's files. All raise InvalidProject with every Problem, or UsageError when the folder is gone.

    def project(self) -> "Project":
        """Read the project; files that did not change are not read again."""
        return self._projects.read().project

    def inventory(self) -> "tuple[InventoryEntry, ...]":
        """List every table that is declared or deployed, by name; before the first start nothing is deployed."""
        return inventory_lineage.inventory(self.place, self.project(), lambda: self.reader)

    def declared(self) -> "ProjectDeclaration":
        """Return the project with its texts and warnings."""
        return self._projects.read()

    def since(self, reference: str) -> "GitComparison":
        """Compare the files with those of a git commit; raises UsageError for a reference that is none."""
        return self._projects.since(reference)

    def drift(self) -> ProjectDrift:
        """Compare the files with what is deployed."""
        return deployed_statements.project_drift(self.project(), self.reader.deployments(include_deleted=True))

    def lineage(self, column: str, direction: str) -> "ColumnLineage":
        """Follow `table` or `table.column` of the declared project up or down; raises UsageError for an unknown one."""
        with self._traced() as (_, tracer):
            return inventory_lineage.trace(tracer, column, direction)

    def impact(self, words: str, known: "PlannerInput", *, children: str = "") -> "Impact":
        """Answer what would happen below `table` if it were rebuilt or dropped, or lost `table.column`; UsageError."""
        from core.reports.impact import impact_of

        with self._traced() as (project, tracer):
            root = inventory_lineage.root_of(tracer, known.observed, words)
            facts = self._projects.facts
            return impact_of(project, self.place.environment, known, root, tracer, children=children, facts=facts)

    @contextmanager
    def _traced(self) -> "Iterator[tuple[Project, LineageTracer]]":
        """Yield the shared lineage tracer of the current project: it reads each statement once."""
        project = self.project()
        with self._tracing:
            if self._tracer is None or self._tracer[0] is not project:
                self._tracer = (project, inventory_lineage.tracer_of(project))
            yield self._tracer

    def preview(self, tables: Iterable[TableName], *, verb: str = "deploy", children: str = "") -> Plan:
        """Compute what staging these tables would do, without the agent; refusals are in the plan."""
        return self.compute(PlanRequest(verb=verb, tables=tuple(sorted(tables)), children=children))

    def compute(self, request: PlanRequest) -> Plan:
        """Compute a plan over the ledger's values, without the agent; refusals are in the plan."""
        return self.compute_over(self.project(), planner_input.planner_input(self.reader), request)

    def compute_over(self, project: "Project", known: "PlannerInput", request: PlanRequest) -> Plan:
        """Compute a plan over what is known from elsewhere, or over nothing; refusals are in the plan."""
        found = planning.compute(project, self.place.environment, known, request, self._projects.facts)
        self._projects.save_facts()
        return found

    # Acting: over the agent's socket. All raise AgentUnreachable, TryAgain, VersionMismatch and what the agent refuses.

    def confirmation(self, act: str, tables: Iterable[TableName]) -> "Confirmation":
        """Compute what an act on these tables asks to be typed; the agent computes it again."""
        return agent_commands.confirmation(self.place, act, tables)

    def stop(self, tables: Sequence[TableName], *, confirm: str) -> tuple[dict[str, Any], ...]:
        """Stop statements; each answer carries table, version, outcome and milliseconds."""
        return agent_commands.send_statement_command(self.place, self.client, "stop", tables, confirm=confirm)

    def start(self, tables: Sequence[TableName], *, confirm: str) -> tuple[dict[str, Any], ...]:
        """Start stopped statements on their checkpoints."""
        return agent_commands.send_statement_command(self.place, self.client, "start", tables, confirm=confirm)

    def restart(self, tables: Sequence[TableName], *, confirm: str) -> tuple[dict[str, Any], ...]:
        """Stop and start statements on their checkpoints."""
        return agent_commands.send_statement_command(self.place, self.client, "restart", tables, confirm=confirm)

    def stage(self, tables: Sequence[TableName], *, verb: str = "deploy") -> None:
        """Stage tables for the next plan of this user in this project folder; verb is deploy or delete."""
        agent_commands.stage(self.place, self.client, tables, verb=verb)

    def unstage(self, tables: Sequence[TableName]) -> tuple[str, ...]:
        """Take tables of this user and folder off the stage; returns those that were on it."""
        return agent_commands.unstage(self.place, self.client, tables)

    def submit(
        self, request: PlanRequest, *, first: Plan | None = None, asking_s: float = planning.SPARK_ANALYSIS_S
    ) -> planning.SubmittedPlan:
        """Compute a plan and hand it to the agent; raises Refused with the first refusal, Stale, InvalidProject.

        Spark is asked about its statements first, for at most `asking_s`; 0 asks nothing. `first` is a plan of this
        very request that was made just now.
        """
        declared, facts = self._projects.read(), self._projects.facts
        line = agent_commands.plan_command(self.place, request)
        return planning.submit(
            self.place,
            self.client,
            self.reader,
            request,
            declared=declared,
            facts=facts,
            line=line,
            first=first,
            asking_s=asking_s,
        )

    def submit_saved(self, saved: "SavedPlan") -> planning.SubmittedPlan:
        """Hand a saved plan over; raises Refused, Stale where the agent does not plan the same."""
        line = agent_commands.equivalent_command(self.place, "apply", saved.plan.hash[:12])
        return plan_files.hand_over(self.place, self.client, saved, line=line)

    def approve(self, plan_hash: str, *, confirm: str) -> tuple[int, int]:
        """Approve a plan as this login; returns how many approvals it has, and how many it needs."""
        return agent_commands.approve(self.place, self.client, plan_hash, confirm=confirm)

    def opinion(
        self, questions: "Sequence[AnalysisQuestion]", *, seconds: float
    ) -> "tuple[tuple[AnalysisAnswer | None, ...], str]":
        """Ask Spark about statements, through the agent; None where it did not say, with one sentence on why."""
        return planning.ask_spark(self.client, questions, seconds=seconds)

    def apply(self, plan_hash: str, *, confirm: str) -> str:
        """Execute a submitted plan; returns the run's id at once. Raises Stale when its scope has changed."""
        return agent_commands.apply(self.place, self.client, plan_hash, confirm=confirm)

    def continuation(self, run_id: str) -> run_continuation.RunContinuation | None:
        """Submit the plan that goes on from a failed run with today's texts; None where its texts did not change.

        Raises Refused where the run did not fail or goes on elsewhere, and what `submit` raises.
        """
        run = self.run(run_id)
        run_continuation.refuse_running(run)
        row, plan = submitted_plans.find_submitted_plan(self.reader, run.plan_hash)
        if run.state != "failed" or plan.request.verb == "delete":
            return None
        if run_continuation.same_files(row, self._projects.texts()):
            return None
        edits = run_continuation.find_edits(plan, run, self.project())
        if not edits:
            return None
        return run_continuation.RunContinuation(run, edits, self.submit(run_continuation.request_of(plan, run)))

    def run_control(self, run_id: str, act: str, *, step: int = 0, confirm: str = "") -> None:
        """Pause, resume, cancel, retry or skip (the last with a step's number)."""
        agent_commands.run_control(self.place, self.client, run_id, act, step=step, confirm=confirm)

    def peek(
        self, table: str, *, version: int | None = None, limit: int = 20
    ) -> tuple[tuple[str, ...], list[list[Any]]]:
        """Read some rows of a table, through the agent; columns, then rows of plain JSON values."""
        return agent_commands.peek(self.client, table, version=version, limit=limit)

    # The agent.

    def actor(self) -> str:
        """Ask the agent under which name it knows this user."""
        return str(self.client.call("status").get("actor", ""))

    def started_environments(self) -> tuple[str, ...]:
        """List the project's environments that have a ledger on this machine."""
        return environment_selection.started_environments(self.place, self._environ)

    def agent_answers(self) -> bool:
        """Return whether an agent listens on the socket now."""
        return agent_process.is_listening(self.client)

    def ensure_agent(self, progress: Callable[[agent_process.WaitProgress], None]) -> None:
        """Start the agent if none answers and the environment is not protected, and wait for its pool."""
        agent_process.ensure_running(self.place, self.client, self._environ, progress=progress)

    def close(self) -> None:
        """Close the ledger."""
        with self._lock:
            if self._reader is not None:
                self._reader.close()
                self._reader = None

    def wait_for_change(self, version: int, seconds: float) -> int:
        """Return the data version once it differs from `version`, or after `seconds`."""
        ends_at = time.monotonic() + seconds
        while (now := self.data_version()) == version and time.monotonic() < ends_at:
            time.sleep(0.05)
        return now
