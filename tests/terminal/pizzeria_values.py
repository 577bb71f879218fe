"""The pizzeria as values: its statements, their measurements, one plan and one run of it."""

from core.changes.kinds import ChangeKind
from core.model.actions import Action, StepKind
from core.model.evidence import Edit, EditKind, EditPlace
from core.model.names import TableName
from core.model.reasons import Reason
from core.observed.versions import Binding, Deployment, Measurement
from core.plan.model import Guard, LeftBehind, Plan, PlanNode, Step, Undo
from core.plan.request import PlanRequest
from core.project.revision import RevisionTexts
from core.run.records import RunRow, StepRow

NOW = 1_800_000_000.0
SQL = (
    "INSERT INTO {0}\nSELECT order_id, pizza, window(order_time, '10 seconds') AS w\n"
    "FROM STREAM {1}\nWHERE status <> 'void'\n"
)
TABLES: tuple[tuple[str, str, str, str, tuple[tuple[str, bool], ...]], ...] = (
    # name, product, layer, state, parents (name, streamed)
    ("src_orders", "kitchen", "source", "running", (("landed_orders", True),)),
    ("landed_orders", "kitchen", "source", "external", ()),
    ("order_items", "kitchen", "intermediate", "running", (("src_orders", True),)),
    ("orders_paid", "kitchen", "intermediate", "failed", (("src_orders", True), ("payments", True))),
    ("oven_load", "kitchen", "fact", "running", (("order_items", True), ("pizzas", False))),
    ("pizza_per_10s", "kitchen", "fact", "starting", (("order_items", True),)),
    ("payments", "sales", "source", "running", (("landed_payments", True),)),
    ("landed_payments", "sales", "source", "external", ()),
    ("pizzas", "sales", "dimension", "external", ()),
    ("menu_sales", "sales", "fact", "running", (("order_items", True), ("pizzas", False))),
    ("till", "sales", "fact", "running", (("payments", True),)),
    ("clients", "crm", "dimension", "running", (("landed_clients", True),)),
    ("landed_clients", "crm", "source", "external", ()),
    ("crm_orders", "crm", "fact", "stopped", (("src_orders", True), ("clients", True))),
)
FIGURES = {
    "src_orders": (0, "idle", 0.0, None, 220.0),
    "order_items": (12, "steady", 0.0, None, 640.0),
    "orders_paid": (41_200, "growing", 15.0, None, 0.0),
    "oven_load": (1_204, "draining", -5.0, 240.0, 220.0),
    "pizza_per_10s": (None, "unknown", None, None, None),
    "payments": (3, "steady", 0.0, None, 90.0),
    "menu_sales": (2, "steady", 0.0, None, 640.0),
    "till": (0, "idle", 0.0, None, 90.0),
    "clients": (0, "idle", 0.0, None, 1.0),
    "crm_orders": (880, "stalled", 0.0, None, 0.0),
}


def deployment(name: str, product: str, layer: str, state: str, parents: tuple[tuple[str, bool], ...]) -> Deployment:
    external = state == "external"
    first = parents[0][0] if parents else ""
    return Deployment(
        table=TableName(name),
        version=0 if external else 4 if name == "oven_load" else 1,
        product=product,
        layer=layer,
        owner=f"{product}-team",
        revision="a" * 64,
        texts=RevisionTexts(
            ddl=f"CREATE TABLE {name} (order_id BIGINT, pizza STRING)", dml="" if external else SQL.format(name, first)
        ),
        compiled="",
        compiled_ddl="",
        columns=("order_id", "pizza", "w"),
        format="parquet",
        folder=f"/data/tables/{name}__v1",
        checkpoint="" if external else f"/data/checkpoints/{name}__v1",
        checkpoint_id="" if external else "9f2c1d0e",
        trigger="3 seconds",
        mode="append",
        stateful=layer == "fact",
        wanted="stopped" if state == "stopped" else "running",
        state="running" if external else state,
        state_since=NOW - 4320,
        active=True,
        bindings=tuple(
            Binding(TableName(parent), 0 if parent.startswith("landed") or parent == "pizzas" else 1, streamed)
            for parent, streamed in parents
        ),
        restarts=2 if state == "failed" else 0,
        error_class="CAST_INVALID_INPUT" if state == "failed" else "",
        error='The value \'two\' of the type "STRING" cannot be cast to "INT"' if state == "failed" else "",
        started_at=NOW - 4320,
        created_at=NOW - 86_400,
        plan_hash="7f3a" * 16,
        external=external,
    )


BEHIND_S = ((0, 0.0), (100, 6.0), (1000, 480.0), (10_000, 250.0), (10**9, 2760.0))
"""Pairs of a maximum number of pending rows and the age, in seconds, of the oldest pending input up to that number."""


def measurement(name: str, version: int) -> Measurement:
    """Return a statement's latest measurement."""
    lag, trend, rate, eta, rows_in = FIGURES[name]
    behind_s = None if lag is None else next(age_s for rows, age_s in BEHIND_S if lag <= rows)
    return Measurement(
        table=TableName(name),
        version=version,
        at=NOW,
        lag_rows=lag,
        lag_files=3,
        lag_bytes=120_000,
        behind_s=behind_s,
        fault="behind" if (behind_s or 0.0) > 60.0 else "",
        trend=trend,
        rate_rows_s=rate,
        eta_s=eta,
        in_rows_s=rows_in,
        out_rows_s=rows_in,
        rows_total=182_344,
        batch=1482,
        batch_ms=1400,
        durations={"queryPlanning": 56, "getBatch": 154, "addBatch": 994, "walCommit": 196},
        watermark="2026-11-21T14:01:47.000Z",
        state_rows=18_220,
        state_bytes=2_400_000,
        dropped_by_watermark=0,
        committed_at=NOW - 3,
        sources=(
            {"table": "order_items", "rows": lag, "files": 3, "bytes": 120_000, "behind_s": behind_s, "exact": True},
        ),
    )


def sample_plan(protected: bool = False) -> Plan:
    """Return the plan shown in the design of the review screen."""
    old = SQL.format("order_items", "src_orders")
    new = old.replace("status <> 'void'", "status <> 'void' AND vat IS NOT NULL")

    def node(table: str, action: Action, reason: Reason, **more: object) -> PlanNode:
        values: dict[str, object] = {
            "table": TableName(table),
            "product": "kitchen",
            "layer": "fact",
            "stateful": True,
            "action": action,
            "change": ChangeKind.STATE_CHANGED,
            "evidence": (Edit(EditKind.FILTER, after="amount > 0", place=EditPlace.BEFORE_STATE),),
            "classified": True,
            "strategy": "earliest",
            "reason": reason,
            "because_of": (),
            "level": 0,
            "loses": (),
            "from_version": 1,
            "version": 1,
        }
        return PlanNode(**{**values, **more})  # type: ignore[arg-type]  # a builder of tests

    nodes = (
        node(
            "order_items",
            Action.REBUILD,
            Reason.ASKED,
            version=2,
            predicted_low_s=40.0,
            predicted_high_s=90.0,
            old=RevisionTexts(dml=old),
            texts=RevisionTexts(dml=new),
        ),
        node(
            "oven_load",
            Action.REBUILD,
            Reason.ASKED,
            from_version=4,
            version=5,
            predicted_low_s=40.0,
            predicted_high_s=95.0,
            because_of=(TableName("order_items"),),
        ),
        node("menu_sales", Action.RECORD, Reason.SAME_MEANING),
        node("till", Action.RESTART, Reason.IN_PLACE, predicted_low_s=2.0, predicted_high_s=9.0),
        node("src_orders", Action.KEEP, Reason.UNCHANGED),
        node(
            "crm_orders",
            Action.DELETE,
            Reason.DELETED,
            loses=("table crm_orders__v1, 18,220 rows", "its checkpoint"),
            undo="none",
        ),
    )
    steps = tuple(
        Step(n, do, TableName(table), version, after, "")
        for n, (do, table, version, after) in enumerate(
            (
                (StepKind.CREATE, "order_items", 2, ()),
                (StepKind.START, "order_items", 2, (1,)),
                (StepKind.CATCH_UP, "order_items", 2, (2,)),
                (StepKind.CREATE, "oven_load", 5, ()),
                (StepKind.START, "oven_load", 5, (2, 4)),
                (StepKind.SWAP, "order_items", 2, (3, 5)),
                (StepKind.STOP, "order_items", 1, (6,)),
            ),
            1,
        )
    )
    return Plan(
        "7f3a" * 16,
        "p1",
        "prod" if protected else "dev",
        protected,
        "1",
        PlanRequest(tables=(TableName("order_items"),)),
        nodes,
        tuple(one.table for one in nodes if one.action is not Action.KEEP),
        steps,
        left_behind=(LeftBehind(TableName("crm_orders"), "crm", "order_items__v1", "crm-team"),),
        guards=(
            Guard("history", "ok", "orders from 08-01, needed from 08-01"),
            Guard("pool", "warn", "62 % -> 91 % while both run"),
        ),
        undo=(
            Undo(
                "plan undo",
                (TableName("order_items"), TableName("oven_load")),
                "rebuild",
                81_000,
                20.0,
                "soon",
                41.0,
                95.0,
            ),
            Undo("", (TableName("crm_orders"),), "its files are kept in the trash for 7 days after the run"),
        ),
    )


def sample_run(now: float) -> RunRow:
    """Return the run shown in the design of the run screen."""
    states = ("done", "done", "gate", "waits", "waits", "waits", "kept")
    notes = ("", "", "lag 81k → 12k, 18 s left", "", "", "", "left behind: crm_orders reads it")
    steps = tuple(
        StepRow(
            step.n,
            str(step.do),
            step.table,
            step.version,
            state,
            note=note,
            started_at=now - 60 if state in ("done", "gate") else None,
            ended_at=now - 58.9 if state == "done" else None,
        )
        for step, state, note in zip(sample_plan().steps, states, notes, strict=True)
    )
    return RunRow("9f2c" * 4, "7f3a" * 16, "alice", "running", now - 72, None, steps)
