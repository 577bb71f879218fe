"""An agent that accepts, approves and applies plans over four tables: landed → a → b, and c of another product."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import small_project
from ledger_rows import policy_row

from core.model.names import TableName
from core.observed.versions import Binding, Deployment
from core.plan.codec import plan_as_json
from core.plan.model import Plan
from core.plan.request import PlanRequest
from core.planner.planner import make_plan
from core.policy.roles_and_rules import Policy
from core.project_reader.revision_reader import revision_of
from pipelines.agent.context import AgentContext
from pipelines.agent.measurements.table_statistics_collector import TableStatisticsCollector
from pipelines.agent.requests.command_handler import CommandHandler
from pipelines.agent.requests.socket_server import Caller
from pipelines.agent.statements.statement_control import StatementControl
from pipelines.spark_connect.query_progress import PoolUtilization
from state.emergency_journal import EmergencyJournal
from state.planner_input_from_registry import observe

NOW = 1_000_000.0
T = TableName
LEE, BOB = (Caller(pid=1, uid=uid, login_uid=None) for uid in (70001, 70002))
"""User ids that no user of the machine has, so that callers are named by their number."""
REBUILD_A = PlanRequest(tables=(T("a"),), rebuild=True, nonce="n")


class Driven:
    """A driver of runs that only records which runs it is told to drive."""

    def __init__(self) -> None:
        self.driven: list[str] = []

    def drive(self, run_id: str) -> None:
        self.driven.append(run_id)


@dataclass
class Desk:
    """An agent that runs the statements of landed → a → b, and of c in another product."""

    agent: AgentContext
    commands: CommandHandler
    runs: Driven
    parts: tuple[Any, ...]
    """The arguments of the command objects, besides the context."""
    now: float = NOW

    def plan(self, request: PlanRequest = REBUILD_A, files: dict[str, str] | None = None, **more: Any) -> Plan:
        """Return a plan made as a console makes it, by default for a rebuild of a."""
        ledger = self.agent.ledger
        seen = observe(
            ledger.deployments(include_deleted=True),
            ledger.table_statistics(),
            ledger.taken_versions(),
            ledger.table_serials(),
            **more,
        )
        project = small_project.project(files or small_project.texts())
        known = {"answers": ledger.spark_analyses(), "policy": ledger.recorded_policy(), "headroom": ledger.headroom()}
        return make_plan(project, "dev", seen, request, **known)

    def hand_over(self, made: Plan, caller: Caller = LEE, **more: Any) -> dict[str, Any]:
        args = {"texts": small_project.texts(), "request": plan_as_json(made)["request"], "hash": made.hash}
        return self.commands.handle(caller, {"op": "submit_plan", "args": {**args, "planner": made.planner, **more}})

    def hand_over_file(self, plan: Plan, caller: Caller = LEE, *, made_at: float = NOW, **more: Any) -> dict[str, Any]:
        return self.hand_over(plan, caller, plan=plan_as_json(plan), created_at=made_at, **more)

    def approve(self, plan: Plan, caller: Caller = BOB) -> dict[str, Any]:
        return self.commands.handle(caller, {"op": "approve", "args": {"hash": plan.hash}, "confirm": plan.hash[:4]})

    def apply(self, plan: Plan, caller: Caller = LEE, confirm: str | None = None) -> str:
        typed = f"dev {plan.hash[:4]}" if confirm is None else confirm
        answer = self.commands.handle(caller, {"op": "apply", "args": {"hash": plan.hash}, "confirm": typed})
        return str(answer["run"])

    def rule(self, **rules: Any) -> None:
        """Put a policy with these rules into effect."""
        policy = Policy(**rules)
        self.agent.ledger.put_policy(policy_row(policy, at=NOW, actor="lee"))


def deployed(name: str, parent: str, revision: Any) -> Deployment:
    version = 1 if parent else 0
    bindings = (Binding(T(parent), 0 if parent == "landed" else 1, True),) if parent else ()
    return Deployment(
        table=T(name), version=version, product="p", layer="fact", owner="", revision=revision.hash,
        texts=revision.texts, compiled="SELECT", compiled_ddl="CREATE", columns=("id", "kind"), format="parquet",
        folder=f"/t/{name}", checkpoint=f"/c/{name}" if parent else "", checkpoint_id=name, trigger="10 seconds",
        mode="append", stateful=False, wanted="running", state="running", state_since=1.0, active=True,
        bindings=bindings, started_at=1.0, external=not parent,
    )  # fmt: skip


def move(desk: Desk, table: str, **fields: Any) -> None:
    desk.agent.ledger.update_deployment(T(table), 1, **fields)


def desk_in(agent: AgentContext, tmp_path: Path) -> Desk:
    project = small_project.project(small_project.texts())
    agent.project_id = project.id
    for name, parent in (("landed", ""), ("a", "landed"), ("b", "a"), ("c", "a")):
        agent.ledger.put_deployment(deployed(name, parent, revision_of(project.tables[T(name)])))
    runs = Driven()
    acts, figures = (
        StatementControl(agent, EmergencyJournal(tmp_path / "e")),
        TableStatisticsCollector(agent, PoolUtilization()),
    )
    parts: tuple[Any, ...] = (acts, runs, figures, lambda **asked: None)
    desk = Desk(agent, CommandHandler(agent, *parts), runs, parts)
    agent.clock = lambda: desk.now
    return desk
