"""Builds ledger rows in one line: every field has a default, and a test overrides the fields that matter to it."""

import json
from collections.abc import Iterable
from typing import Any

from core.model.actions import Action
from core.model.events import EventCause, EventKind, StateChange
from core.model.names import TableName
from core.model.reasons import Reason
from core.model.states import PoolState, State
from core.observed.versions import Binding, Deployment, Measurement, StatementLine
from core.plan.codec import canonical_text, plan_as_json
from core.plan.model import Plan, PlanNode, Step
from core.plan.request import PlanRequest
from core.policy.roles_and_rules import Policy, policy_as_json
from core.project.revision import RevisionTexts
from core.run.records import RunRow
from state.ledger import Ledger
from state.registry import IN_FORCE
from state.row_types import EnvironmentRow, EventRow, PlanRow, PolicyRow, PoolRow, SampleRow
from state.runs import insert_run

LANDED = TableName("landed")


def environment_row(**fields: Any) -> EnvironmentRow:
    """Return the row of an environment whose agent has never started."""
    every: dict[str, Any] = dict(
        ledger_id="ledger", project_id="p-id", project="p", environment="dev", protected=False, agent_pid=None,
        agent_started_at=None, agent_seen_at=None, pools=(pool_row(),),
    )  # fmt: skip
    return EnvironmentRow(**(every | fields))


def pool_row(name: str = "local", *, state: str = "up", **fields: Any) -> PoolRow:
    """Return the row of the one pool of an environment."""
    return PoolRow(**(dict(name=name, state=PoolState(state), generation=1, session_id="s") | fields))


def deployment_row(table: str = "a", **fields: Any) -> Deployment:
    """Return the row of version 1, running and reading the external table `landed`."""
    every: dict[str, Any] = dict(
        table=TableName(table), version=1, product="p", layer="fact", owner="", revision="r",
        texts=RevisionTexts("d", "m", ""), compiled="SELECT 1", compiled_ddl=f"CREATE TABLE {table}__v1",
        columns=("id",), format="parquet", folder=f"/t/{table}__v1", checkpoint=f"/c/{table}__v1", checkpoint_id="",
        trigger="1 second", mode="append", stateful=False, wanted="running", state="running", state_since=0.0,
        active=True, bindings=(Binding(LANDED, 0, True),),
    )  # fmt: skip
    return Deployment(**(every | fields))


def external_row(table: str = "landed", **fields: Any) -> Deployment:
    """Return the row of an external table, without a checkpoint or reads."""
    plain: dict[str, Any] = dict(
        version=0, layer="source", revision="x", texts=RevisionTexts("d", "", ""), compiled="", compiled_ddl="",
        checkpoint="", bindings=(), external=True,
    )  # fmt: skip
    return deployment_row(table, **(plain | fields))


def plan_row(plan: Plan, **fields: Any) -> PlanRow:
    """Return the row of a plan that ana submitted and nobody has applied."""
    every: dict[str, Any] = dict(
        hash=plan.hash, body=canonical_text(plan_as_json(plan)), author="ana", created_at=1.0, expires_at=9e9,
        status="open",
    )  # fmt: skip
    return PlanRow(**(every | fields))


def plan_of(table: TableName, *, steps: tuple[Step, ...] = (), **node: Any) -> Plan:
    """Return a plan that acts on one table; `node` overrides fields of its node."""
    every: dict[str, Any] = dict(
        table=table, product="p", layer="fact", stateful=False, action=Action.RESTART, change=None, evidence=(),
        classified=True, strategy="", reason=Reason.UNCHANGED, because_of=(), level=0, loses=(),
    )  # fmt: skip
    digest = "7f3a" * 16
    request = PlanRequest(tables=(table,))
    return Plan(digest, "p-id", "dev", False, "1", request, (PlanNode(**(every | node)),), (table,), steps)


def run_row(plan_hash: str = "h", **fields: Any) -> RunRow:
    """Return the row of a run by ana, in progress and without steps."""
    every: dict[str, Any] = dict(id="7f3a-1", actor="ana", state="running", started_at=1.0, ended_at=None)
    return RunRow(plan_hash=plan_hash, **(every | fields))


def policy_row(policy: Policy, **fields: Any) -> PolicyRow:
    """Return the row of a policy that ana recorded, now in force."""
    every: dict[str, Any] = dict(
        id=0, at=1.0, actor="ana", actor_uid=1, digest=policy.digest, body=policy_as_json(policy), status=IN_FORCE
    )
    return PolicyRow(**(every | fields))


def sample_row(at: float, **fields: Any) -> SampleRow:
    """Return a sample without any measured value."""
    every: dict[str, Any] = dict.fromkeys(
        ("lag_rows", "lag_files", "lag_bytes", "in_rows_s", "out_rows_s", "batch_ms"), None
    )
    return SampleRow(at, **(every | fields))


def create_run(ledger: Ledger, run: RunRow, tables: Iterable[TableName] = (), reads: Iterable[TableName] = ()) -> None:
    """Write a run with its steps, as applying a plan does, but without writing the plan."""
    with ledger._transaction() as connection:
        insert_run(connection, run, tables, reads)


def statement_line(row: Deployment, figures: Measurement | None = None, **fields: Any) -> StatementLine:
    """Return a version and its measurement as a line of the ledger's lists."""
    every: dict[str, Any] = {}
    for source in (figures, row):
        every |= {name: getattr(source, name) for name in StatementLine._fields if hasattr(source, name)}
    bound = json.dumps([[one.parent, one.version, one.streamed] for one in row.bindings])
    return StatementLine(**(every | {"bound": bound} | fields))


def state_event(
    at: float,
    about: tuple[str, int],
    states: tuple[str, str],
    *,
    cause: EventCause = EventCause.NONE,
    by: str = "",
    detail: str = "",
) -> EventRow:
    """Return the event that the agent writes when a version changes from one state to another."""
    change = StateChange(states[0], State(states[1]), cause, by)
    return EventRow(
        int(at), float(at), *about, EventKind.STATE, change.sentence, detail, before=states[0], state=states[1],
        cause=cause, by=by,
    )  # fmt: skip
