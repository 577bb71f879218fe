"""Checks of plans that drain a pool, and of plans that would start statements in a cordoned one."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from core.model.actions import Action
from core.model.errors import Refused, Stale
from core.model.events import EventKind
from core.model.names import TableName
from core.model.states import PoolState
from core.observed.planner_input import ObservedDeployment
from core.plan.codec import plan_from_json
from core.plan.model import Plan, PlanNode
from core.planner.pool_drain import plan_drain
from core.planner.pool_load import Full, Load, loads_after, loads_of, settings_of
from core.project.model import Environment
from core.project.resources import UNLIMITED, over_capacity
from pipelines.agent.context import AgentContext

_STARTS = frozenset({Action.START, Action.RESUME, Action.RESTART, Action.REBUILD, Action.UNDELETE})


@dataclass(frozen=True, slots=True)
class PoolDrains:
    """Refuses drains that do not empty their pool, and records those that begin."""

    agent: AgentContext

    def refuse(self, plan: Plan, environment: Environment) -> None:
        """Raise Refused or Stale if a plan is a drain that would leave something running in its pool.

        A drain of a lost pool is refused while the pool can be asked, or the manager of its cluster says that its
        server's application runs. `environment` is that of the plan's files, whose
        capacities may have been edited since the agent started.
        """
        request = plan.request
        if not request.drains:
            return
        pool = self.agent.pools.named(request.drains)
        facts, deployments = self.agent.ledger.facts(), self.agent.ledger.deployments()
        row = facts.pool_named(pool.name)
        state = row.state if row is not None else PoolState.UP
        if request.lost and state.answers:
            remedy = f"headgate pool drain {pool.name}"
            raise Refused(f"{pool.name} is {state}, so it can be asked: drain it without --lost", remedy=remedy)
        cordoned = {row.name for row in facts.pools if row.cordoned_at is not None or row.state.is_fault}
        found = plan_drain(
            environment,
            deployments,
            pool.name,
            to=request.drains_to,
            cordoned=cordoned,
            lost=request.lost,
            manager_says=pool.client.manager_word() if request.lost else None,
            statistics=self.agent.ledger.table_statistics(),
        )
        if found.refusals:
            why = "; ".join(map(str, found.refusals))
            raise Refused(f"{pool.name} cannot be drained: {why}", remedy=str(found.refusals[0].remedy))
        if others := sorted(found.moves.keys() - set(request.tables)):
            raise Stale(f"{others[0]} runs in {pool.name} by now", remedy="plan the drain again")
        for run in self.agent.ledger.open_runs():
            if found_there := self._starts_in(run.plan_hash, pool.name):
                raise Refused(
                    f"run {run.id} starts {found_there[0].table} in {pool.name}",
                    remedy=f"drain {pool.name} when that run has ended: headgate runs {run.id}",
                )
        if request.lost and pool.declared.url is None and pool.client.holds_catalog:
            raise Refused(
                f"the server of {pool.name} runs on this machine, so something may run there",
                remedy=f"end it (its process id is in headgate pool show {pool.name}), and drain it without --lost",
            )

    def refuse_cordoned(self, plan: Plan) -> None:
        """Raise Refused if a plan, made before a pool was cordoned, would start a statement there."""
        if not self.agent.pools.are_several:
            return
        for row in self.agent.ledger.facts().pools:
            if row.cordoned_at is None:
                continue
            for node in self._starting_in(plan, row.name):
                there = self.agent.ledger.deployment(node.table, node.version)
                if there is None or self.agent.pools.of(there).name != row.name:
                    raise Refused(
                        f"{node.table} would start in {row.name}, which was cordoned by {row.cordoned_by}",
                        remedy=f"plan again, with another pool in its yml, or headgate pool uncordon {row.name}",
                    )

    def refuse_full(
        self, plan: Plan, environment: Environment, observed: Mapping[TableName, ObservedDeployment]
    ) -> None:
        """Raise Stale if a pool would hold more than its capacity, as it has filled up since the plan was made.

        What open runs have yet to start counts as well.
        """
        if all(pool.capacity == UNLIMITED for pool in environment.pools):
            return
        before = loads_of(environment, observed.values())
        for run in self.agent.ledger.open_runs():
            if (other := self._plan(run.plan_hash)) is not None:
                waiting = [
                    node for node in other.nodes if self.agent.ledger.deployment(node.table, node.version) is None
                ]
                before = self._after(environment, before, observed, waiting, other)
        after = self._after(environment, before, observed, plan.nodes, plan)
        for pool in environment.pools:
            if over := over_capacity(pool.capacity, after[pool.name], before[pool.name]):
                full = Full.NOW_HOLDS.of(pool=pool.name, over=over)
                raise Stale(f"the plan is stale: {full}", remedy="plan again")

    def _after(
        self,
        environment: Environment,
        before: Mapping[str, Load],
        observed: Mapping[TableName, ObservedDeployment],
        nodes: Sequence[PlanNode],
        plan: Plan,
    ) -> dict[str, Load]:
        def pool_then(node: PlanNode) -> str:
            seen = observed.get(node.table, ObservedDeployment())
            return node.pool or environment.pool_holding(seen.pool).name

        return loads_after(environment, before, observed=observed, nodes=nodes, steps=plan.steps, pool_then=pool_then)

    def state_gone(self, actor: str, plan: Plan) -> None:
        """Record in the audit log, before a run begins, that a login states that nothing runs in a lost pool."""
        request = plan.request
        if request.lost:
            said = f"states that nothing runs in {request.drains} any more"
            self.agent.audit(actor, "state_pool_gone", request.drains, plan_hash=plan.hash, outcome=said)

    def record(self, actor: str, plan: Plan, run: str) -> None:
        """Record in the events that a run drains a pool."""
        if plan.request.drains:
            what = f"takes no new statements: it is drained by {actor}, run {run}"
            self.agent.record_completed_change(EventKind.POOL, f"the pool {plan.request.drains} {what}")

    def _plan(self, plan_hash: str) -> Plan | None:
        row = self.agent.ledger.plan(plan_hash)
        return plan_from_json(json.loads(row.body)) if row is not None else None

    def _starts_in(self, plan_hash: str, pool: str) -> list[PlanNode]:
        plan = self._plan(plan_hash)
        return self._starting_in(plan, pool) if plan is not None else []

    def _starting_in(self, plan: Plan, pool: str) -> list[PlanNode]:
        starting = [node for node in plan.nodes if node.action in _STARTS and node.version and node.texts.dml]
        environment = self.agent.layout.environment
        return [
            node
            for node in starting
            # Plans of planner versions before 13 have no pools.
            if (node.pool or environment.pool_of(settings_of(node.texts.yml)).name) == pool
        ]
