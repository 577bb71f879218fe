"""State of one run while its steps are performed: plan, versions, background work, and stops by operators."""

from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from threading import Event
from typing import Any

from core.model.errors import LedgerUnavailable, NotRecorded, Refused, TryAgain
from core.model.names import TableName, query_name
from core.model.states import State, WantedState
from core.model.table_formats import table_format
from core.observed.aligned_positions import AlignedPair
from core.observed.versions import Deployment
from core.plan.model import Plan, PlanNode, Step
from core.ports.storage import Checkpoints
from core.run.model import RunState
from core.run.state_machine import GatePolled, StepFailed
from core.validation.verdicts import CheckResult
from pipelines.agent.context import AgentContext
from pipelines.agent.deployment_compiler import compile_deployment
from pipelines.agent.runs.compared_versions import LedgerVersions
from pipelines.agent.runs.version_comparison import VersionComparison
from pipelines.agent.statements.deployment_lifecycle import start
from pipelines.agent.tables.replication_slots import with_slot_address
from pipelines.agent.tables.table_identities import register
from state.operator_commands import LatestCommandRow
from state.plans import local_time


@dataclass(slots=True)
class OpenUpkeep:
    """An OPTIMIZE or VACUUM in progress for a step."""

    tag: str
    work: "Future[None]" = field(default_factory=Future)
    ended: Event = field(default_factory=Event)
    """Set when the result is no longer needed."""


@dataclass(slots=True)
class OpenValidation:
    """A validation in progress for a step."""

    opened_at: float
    """When the step began, in seconds of `AgentContext.monotonic`."""
    looked_at: float
    """When the files read by the serving version were last checked, in seconds of `AgentContext.monotonic`."""
    pair: AlignedPair | None = None
    work: "Future[tuple[CheckResult, ...]] | None" = None
    comparison: VersionComparison | None = None


def overtaken(agent: AgentContext, node: PlanNode) -> str:
    """Return the name of a table's serving version if the plan neither replaces nor creates it; otherwise empty."""
    serving = next((d for d in agent.ledger.versions(node.table) if d.active and not d.deleted), None)
    if serving is None or serving.external or serving.version in (node.from_version, node.version):
        return ""
    return query_name(node.table, serving.version)


def running_readers(agent: AgentContext, table: TableName, version: int) -> str:
    """Return the names of a version's readers that should be running, separated by commas; empty if there are none."""
    return ", ".join(
        sorted(
            query_name(d.table, d.version)
            for d in agent.ledger.deployments()
            if d.wanted == WantedState.RUNNING
            and (d.table, d.version) != (table, version)
            and any(b.parent == table and b.version == version for b in d.bindings)
        )
    )


class RunContext:
    """Data shared by the steps of one run."""

    def __init__(self, agent: AgentContext, plan: Plan, run_id: str) -> None:
        self.agent = agent
        self.compared_versions = LedgerVersions(agent.ledger)
        self.plan = plan
        self.id = run_id
        self.nodes = {node.table: node for node in plan.nodes}
        self.continuation_notes: dict[int, str] = {}
        """Descriptions of where restarted statements continue, by step number."""
        self.validations: dict[int, OpenValidation] = {}
        """Open validations by step number."""
        self.upkeep: dict[int, OpenUpkeep] = {}
        """Running OPTIMIZE and VACUUM operations by step number."""
        self.half_moved: dict[int, bool] = {}
        """Whether an unfinished swap may have moved some of its pointers, by step number."""
        self.waits: dict[int, float] = {}
        """When each step began to wait for a matching batch, in seconds of `AgentContext.monotonic`, by step number."""
        self._before_start: dict[tuple[str, int], LatestCommandRow | None] = {}
        """The command that a start by this run replaced, by query name and serial number.

        It is restored if the start is refused.
        """

    def versions(self, step: Step) -> list[tuple[TableName, int]]:
        """Return the versions that a step affects."""
        return [(table, self.nodes[table].version) for table in step.tables] or [(step.table, step.version)]

    def frozen(self) -> str | None:
        """Return why no pointer may move now, or None if no freeze applies. Rollbacks are exempt from freezes."""
        until = self.agent.frozen() if self.plan.request.verb != "rollback" else None
        return None if until is None else f"waits: {self.agent.layout.environment.name} is {until}: no pointer moves"

    def stopped_by_operator(self, table: TableName, version: int) -> bool:
        """True if an operator has stopped a version during this run, so that no step may start it or let it serve."""
        locks, ledger = self.agent.locks, self.agent.ledger
        waits = locks.has_unrecorded_stop((table, version), after=ledger.command_stamp_of_run(self.id).serial)
        return waits or ledger.stopped_during(self.id, table, version) is not None

    def is_cancelled(self) -> bool:
        """True if a cancel of this run waits to be carried out, as far as the ledger can be read."""
        with suppress(LedgerUnavailable):
            return any(command.act == "cancel" for command in self.agent.ledger.run_commands(self.id))
        return False

    def stopped_words(self, table: TableName, version: int) -> str:
        """Describe how the run can continue, and who stopped the table and when, if the ledger records that."""
        stop = self.agent.ledger.stopped_during(self.id, table, version)
        who = f"{stop.actor} at {local_time(stop.at)}" if stop else "an operator"
        retry, cancel = (f"headgate runs {verb} {self.id}" for verb in ("retry", "cancel"))
        return f"{table} was stopped by {who} during this run; {retry} starts it anyway, {cancel} leaves it"

    def restart_stopped_version(self, step: Step, table: TableName, version: int) -> StepFailed | GatePolled | None:
        """Restart a version that was stopped before a retry, or whose start was interrupted by a kill.

        Returns None if the version was started or needs no start, and otherwise the reason why it was not started.
        While the run is paused, nothing is started, but gates are still checked.
        """
        deployment = self.agent.ledger.deployment(table, version)
        if deployment is None or deployment.external:
            return None
        was_cut_off = deployment.state == State.STOPPED and not deployment.query_id
        if deployment.wanted == WantedState.RUNNING and not was_cut_off:
            return None
        run = self.agent.ledger.run(self.id)
        if run is not None and run.state == RunState.PAUSED:
            name = query_name(table, version)
            return GatePolled(step.n, f"{name} is stopped: it starts once the run is resumed")
        again = self.start_unless_stopped(replace(step, table=table, version=version))
        return again if isinstance(again, StepFailed) else None

    def start_unless_stopped(
        self, step: Step, before: Callable[[Deployment], bool] = lambda found: False, *, after_stop: bool = False
    ) -> Deployment | StepFailed:
        """Call `before` and start the step's version, unless an operator has stopped the version during this run.

        `before` returns True if it has stopped a running query; `after_stop` is True if the caller has already done so.
        If the start raises Refused, the version's desired state is reset to what it was before the start.
        """
        key, stamp = (step.table, step.version), self.agent.ledger.command_stamp_of_run(self.id)
        stops, name = self.agent.locks.stops(key), query_name(*key)
        if self._should_stay_stopped(self.deployed(step)):
            # A second attempt of this start finds the desired state already set to running, and must not overwrite this
            # entry.
            self._before_start[name, stamp.serial] = self.agent.ledger.latest_command(name)
        if self.stopped_by_operator(*key) or not self.agent.ledger.want_running(*key, stamp):
            return StepFailed(step.n, self.stopped_words(*key))
        try:
            after_stop = before(self.deployed(step)) or after_stop
            start(self.agent, self.deployed(step), stops=stops, after_stop=after_stop, cancelled=self.is_cancelled)
        except Refused:
            self.take_back(step)
            raise
        except NotRecorded:
            # The query is running, so there is nothing to take back.
            self._before_start.pop((name, stamp.serial), None)
            raise
        self._before_start.pop((name, stamp.serial), None)
        self.agent.locks.mark_started((name,), stamp.serial)
        return self.deployed(step)

    def take_back(self, step: Step) -> None:
        """Undo a start command that was refused or abandoned; the version gets its previous desired state."""
        name, stamp = query_name(step.table, step.version), self.agent.ledger.command_stamp_of_run(self.id)
        if (name, stamp.serial) in self._before_start:
            self.agent.ledger.take_back(step.table, step.version, stamp, self._before_start[name, stamp.serial])

    def start_as_before(self, step: Step, before: Deployment) -> Deployment | StepFailed:
        """Restart a version after a failed change for which it was stopped, unless its desired state was stopped."""
        return before if self._should_stay_stopped(before) else self.start_unless_stopped(step, after_stop=True)

    def _should_stay_stopped(self, found: Deployment) -> bool:
        waits = self.agent.locks.has_unrecorded_stop((found.table, found.version))
        return waits or found.wanted == WantedState.STOPPED

    def register(self, version: Deployment, *, logs: Checkpoints | None = None) -> None:
        """Register a version's tables in the pool that needs them, and in every other pool that can be reached."""
        self.agent.pools.add_to_catalogs(
            lambda pool: register(self.agent, pool, version, logs=logs), needed=self.agent.pools.of(version)
        )

    def node(self, step: Step) -> PlanNode:
        return self.nodes[step.table]

    def compiled_version(self, step: Step) -> Deployment:
        """Compile the step's version from the plan's SQL and YAML."""
        node = self.node(step)
        external = [binding.parent for binding in node.bindings if not binding.version]
        compiled = compile_deployment(
            replace(node, version=step.version),
            self.agent.layout,
            now=self.agent.clock(),
            plan_hash=self.plan.hash,
            views=[parent for parent in external if self._is_view(parent)],
        )
        return with_slot_address(self.agent, compiled)

    def _is_view(self, external: TableName) -> bool:
        found = self.agent.ledger.deployment(external, 0)
        return found is not None and not table_format(found.format).has_files

    def deployed(self, step: Step) -> Deployment:
        """Return the registry row of the step's version, or raise TryAgain if there is none."""
        found = self.agent.ledger.deployment(step.table, step.version)
        if found is None:
            raise TryAgain(
                f"{query_name(step.table, step.version)} is not in the registry",
                remedy="plan again from the current state",
            )
        return found

    def running_readers(self, step: Step) -> str:
        """Return the step's readers that should be running, separated by commas; empty if there are none."""
        return running_readers(self.agent, step.table, step.version)

    def folder_note(self, version: Deployment) -> dict[str, Any]:
        """Return the note to store in table and checkpoint folders.

        With this note, restarts and adoptions need no catalog.
        """
        return {
            "table": version.table,
            "version": version.version,
            "ddl": version.compiled_ddl,
            "revision": version.revision,
            "run": self.id,
            "plan": self.plan.hash,
            "checkpoint": version.checkpoint,
        }
