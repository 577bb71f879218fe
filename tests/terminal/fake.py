"""A pizzeria in memory: what the console asks for, without ledger, agent or Spark."""

import time
from collections.abc import Sequence
from dataclasses import replace

from core.errors import ConfirmationNeeded
from core.lineage import Edge, Lineage
from core.lineage import Node as ColumnNode
from core.names import TableName
from core.plan import Action, Binding, Do, Guard, LeftBehind, Node, Observed, Plan, Request, Step, Texts
from core.sql.inputs import Kind, Origin
from state.rows import (
    Audit,
    Command,
    Deployment,
    Event,
    Facts,
    Measurement,
    PlanRow,
    RunRow,
    SampleRow,
    Staged,
    StepRow,
)
from tui.presentation.columns import ColumnFacts
from tui.presentation.detail import DetailFacts
from tui.presentation.snapshot import Snapshot
from tui.screens.asks import Confirmation, Drift, PlanView, ProjectView, RunView

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
    """Make a deployment of the pizzeria."""
    external = state == "external"
    first = parents[0][0] if parents else ""
    return Deployment(
        table=TableName(name),
        version=0 if external else 4 if name == "oven_load" else 1,
        product=product,
        layer=layer,
        owner=f"{product}-team",
        revision="a" * 64,
        texts=Texts(
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
        error='[CAST_INVALID_INPUT] The value \'two\' of the type "STRING" cannot be cast to "INT"'
        if state == "failed"
        else "",
        started_at=NOW - 4320,
        created_at=NOW - 86_400,
        plan_hash="7f3a" * 16,
        external=external,
    )


def measurement(name: str, version: int) -> Measurement:
    """Make the latest figures of a statement."""
    lag, trend, rate, eta, rows_in = FIGURES[name]
    return Measurement(
        table=TableName(name),
        version=version,
        at=NOW,
        lag_rows=lag,
        lag_files=3,
        lag_bytes=120_000,
        oldest_s=14.0,
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
        sources=({"table": "order_items", "rows": lag, "files": 3, "bytes": 120_000, "oldest_s": 14.0, "exact": True},),
    )


class FakeOperations:
    """Answers at once from values that a test can change; acts are recorded in `calls`."""

    def __init__(self, *, protected: bool = False, now: float = NOW) -> None:
        self.protected = protected
        self.now = now
        self.calls: list[tuple[object, ...]] = []
        self.staged_marks: tuple[Staged, ...] = (Staged("alice", "/p", TableName("oven_load"), "deploy", now - 60),)
        rows = tuple(deployment(*table) for table in TABLES)
        self.current = Snapshot(
            read_at=now,
            facts=Facts(
                "l1",
                "p1",
                "pizzeria",
                "prod" if protected else "dev",
                protected,
                4711,
                now - 4000,
                now - 1,
                "local",
                "up",
                "",
                1,
                "s1",
            ),
            deployments=rows,
            measurements={
                (row.table, row.version): measurement(row.table, row.version) for row in rows if not row.external
            },
            staged=self.staged_marks,
            commands=(
                Command(
                    2,
                    now - 30,
                    "alice",
                    "stop",
                    "crm_orders",
                    "headgate stop crm_orders --env dev",
                    "done",
                    "",
                    now,
                    210,
                ),
            ),
        )

    def glance(self) -> Snapshot:
        return self.snapshot(None)

    def snapshot(self, previous: Snapshot | None) -> Snapshot:
        return self.current

    def change(self, table: str, **figures: object) -> None:
        """Change the figures of a table."""
        row = next(row for row in self.current.deployments if row.table == table)
        key = (row.table, row.version)
        figure = replace(self.current.measurements[key], **figures)  # type: ignore[arg-type]  # names checked by the caller
        self.current = replace(self.current, measurements={**self.current.measurements, key: figure})

    def drop(self, table: str) -> None:
        """Let a table vanish."""
        rows = tuple(row for row in self.current.deployments if row.table != table)
        self.current = replace(self.current, deployments=rows)

    def detail(self, table: str, *, files: bool = False, column: str | None = None) -> DetailFacts:
        lags = (200, 900, 2400, 5200, 9880, 9400, 8100, 6000, 5100, 4400, 3900, 3300, 2800, 2300, 1700, 1204)
        samples = tuple(
            SampleRow(self.now - 15 * (len(lags) - index), lag, 3, 1000, 200.0 + index, 218.0, 1400 - index)
            for index, lag in enumerate(lags)
        )
        events = (
            Event(
                1,
                self.now - 660,
                table,
                2,
                "exception",
                "[CAST_INVALID_INPUT] The value 'two' cannot be cast to INT",
                "org.apache.spark.SparkNumberFormatException",
                "f1",
                3,
                self.now - 900,
            ),
            Event(2, self.now - 700, table, 2, "state", "running -> failed"),
        )
        rows = tuple(row for row in self.current.deployments if row.table == table)
        figures = self.current.measurements.get((table, rows[0].version)) if rows else None
        declared = rows[0].texts.dml.replace("10 seconds", "30 seconds") if table == "oven_load" and rows else None
        found = DetailFacts(table, samples, events, figures, rows, declared_dml=declared)
        return found if column is None else replace(found, columns=self.columns(table, column))

    def columns(self, table: str, column: str) -> ColumnFacts:
        """Give each table two columns that stand on one that landed."""
        names = ("pizza", "letters")
        chosen = column or names[0]
        source, target = Origin(TableName("src_orders"), "pizza"), Origin(TableName(table), chosen)
        text = "length(pizza)" if chosen == "letters" else "pizza"
        edge = Edge(source, target, Kind.VALUE, "SELECT", text, (), (), f"dml.{table}.sql", 2)
        nodes = (
            ColumnNode(target, "string", landed=False, expression=text),
            ColumnNode(source, "string", landed=True, format="json", location="in"),
        )
        up = Lineage(target, "up", nodes, (edge,), ())
        return ColumnFacts(names, chosen, up, Lineage(target, "down", nodes[:1], (), ()))

    def project(self) -> ProjectView:
        old = SQL.format("oven_load", "order_items")
        return ProjectView(
            drift=(
                Drift(
                    "oven_load",
                    "filter before an aggregate",
                    "rebuild + 1",
                    "6a",
                    "the window changed: Spark accepts it silently, counts would be wrong",
                    Texts(dml=old),
                    Texts(dml=old.replace("10 seconds", "30 seconds")),
                    "pipelines/facts/kitchen/oven_load",
                ),
                Drift(
                    "menu_sales",
                    "comment",
                    "record",
                    "1",
                    "only comments differ",
                    Texts(dml="-- a\n"),
                    Texts(dml="-- b\n"),
                ),
            )
        )

    def plan(self, hash_prefix: str) -> PlanView | None:
        return PlanView(
            sample_plan(self.protected), PlanRow("7f3a" * 16, "{}", "alice", self.now - 120, self.now + 3480, "open")
        )

    def runs(self) -> Sequence[RunRow]:
        return (sample_run(self.now),)

    def run(self, run_id: str) -> RunView | None:
        return RunView(sample_run(self.now), self.plan(""))

    def audits(self) -> Sequence[Audit]:
        return (
            Audit(2, self.now - 30, "alice", "stop", "crm_orders", "", "yes", "done"),
            Audit(1, self.now - 900, "bob", "apply", "oven_load", "7f3a" * 16, "dev 7f3a", "done"),
        )

    def commands(self) -> Sequence[Command]:
        return self.current.commands

    def environments(self) -> Sequence[str]:
        return ("dev", "prod")

    def confirmation(self, act: str, tables: Sequence[str]) -> Confirmation:
        if len(tables) > 1:
            return Confirmation("C2", str(len(tables)))
        return Confirmation("C2", tables[0]) if self.protected else Confirmation("C1", "yes")

    def confirmation_for_plan(self, plan: Plan) -> Confirmation:
        return Confirmation("C3", f"{plan.environment} {plan.hash[:4]}")

    def _act(self, act: str, tables: Sequence[str], confirm: str) -> str:
        if confirm != self.confirmation(act, tables).text:
            raise ConfirmationNeeded(f"{act} needs its text", remedy="type it")
        self.calls.append((act, tuple(tables), confirm))
        return f"{act} {', '.join(tables)}: done in 0.2 s"

    def stop(self, tables: Sequence[str], confirm: str) -> str:
        return self._act("stop", tables, confirm)

    def start(self, tables: Sequence[str], confirm: str) -> str:
        return self._act("start", tables, confirm)

    def restart(self, tables: Sequence[str], confirm: str) -> str:
        return self._act("restart", tables, confirm)

    def stage(self, tables: Sequence[str], verb: str) -> str:
        self.calls.append(("stage", tuple(tables), verb))
        return f"staged {', '.join(tables)}: {verb}"

    def unstage(self, tables: Sequence[str]) -> str:
        self.calls.append(("unstage", tuple(tables)))
        return f"unstaged {', '.join(tables)}"

    def figures(self, table: str, version: int) -> Measurement | None:
        return self.current.measurements.get((table, version))

    def submit(self, actor: str) -> str:
        self.calls.append(("submit",))
        return "7f3a" * 16

    def apply(self, plan_hash: str, confirm: str) -> str:
        self.calls.append(("apply", plan_hash, confirm))
        return "9f2c" * 4

    def run_control(self, run_id: str, act: str, confirm: str) -> str:
        self.calls.append((act, run_id, confirm))
        return f"run {run_id[:4]}: {act}"


def sample_plan(protected: bool = False) -> Plan:
    """Make the plan of the drawing of Review."""
    old = SQL.format("order_items", "src_orders")
    new = old.replace("status <> 'void'", "status <> 'void' AND vat IS NOT NULL")

    def node(table: str, action: Action, reason: str, **more: object) -> Node:
        values: dict[str, object] = {
            "table": TableName(table),
            "product": "kitchen",
            "layer": "fact",
            "stateful": True,
            "action": action,
            "row": "6a",
            "evidence": ("the WHERE below the aggregate changed",),
            "classified": True,
            "strategy": "earliest",
            "reason": reason,
            "because_of": (),
            "level": 0,
            "loses": (),
            "from_version": 1,
            "version": 1,
        }
        return Node(**{**values, **more})  # type: ignore[arg-type]  # a builder of tests

    nodes = (
        node(
            "order_items",
            Action.REBUILD,
            "filter before an aggregate",
            version=2,
            eta_s=120.0,
            old=Texts(dml=old),
            texts=Texts(dml=new),
        ),
        node(
            "oven_load",
            Action.REBUILD,
            "parent rebuilt, stateful",
            from_version=4,
            version=5,
            eta_s=180.0,
            because_of=(TableName("order_items"),),
        ),
        node("menu_sales", Action.RECORD, "comment"),
        node("till", Action.RESTART, "filter, stateless", eta_s=4.0),
        node("src_orders", Action.KEEP, "no change"),
        node("crm_orders", Action.DELETE, "asked for", loses=("table crm_orders__v1, 18,220 rows", "its checkpoint")),
    )
    steps = tuple(
        Step(n, do, TableName(table), version, after, "", "swap back")
        for n, (do, table, version, after) in enumerate(
            (
                (Do.CREATE, "order_items", 2, ()),
                (Do.START, "order_items", 2, (1,)),
                (Do.CATCH_UP, "order_items", 2, (2,)),
                (Do.CREATE, "oven_load", 5, ()),
                (Do.START, "oven_load", 5, (2, 4)),
                (Do.SWAP, "order_items", 2, (3, 5)),
                (Do.STOP, "order_items", 1, (6,)),
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
        Request(tables=(TableName("order_items"),)),
        nodes,
        tuple(one.table for one in nodes if one.action is not Action.KEEP),
        steps,
        left_behind=(LeftBehind(TableName("crm_orders"), "crm", "order_items__v1", "crm-team"),),
        guards=(
            Guard("history", "ok", "orders from 08-01, needed from 08-01"),
            Guard("pool", "warn", "62 % -> 91 % while both run"),
        ),
    )


def sample_run(now: float) -> RunRow:
    """Make the run of the drawing."""
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


def observed() -> Observed:
    """Make an empty observation."""
    return Observed()


class StillOperations(FakeOperations):
    """The same with an agent that is alive and has nothing new to say."""

    def snapshot(self, previous: Snapshot | None) -> Snapshot:
        facts = self.current.facts
        assert facts is not None
        return replace(self.current, facts=replace(facts, agent_seen_at=time.time() - 1))


class MovingOperations(FakeOperations):
    """The same with a clock: lags move at every reading, as they do with a real agent."""

    def snapshot(self, previous: Snapshot | None) -> Snapshot:
        now = time.time()
        facts = self.current.facts
        assert facts is not None
        shift = now - self.now
        self.now = now
        rows = tuple(replace(row, state_since=row.state_since + shift) for row in self.current.deployments)
        figures = {
            key: replace(
                value, lag_rows=None if value.lag_rows is None else max(value.lag_rows + int(now * 7) % 5 - 2, 0)
            )
            for key, value in self.current.measurements.items()
        }
        commands = tuple(replace(command, at=now - 30) for command in self.current.commands)
        self.current = replace(
            self.current,
            read_at=now,
            facts=replace(facts, agent_seen_at=now - 1),
            deployments=rows,
            measurements=figures,
            commands=commands,
        )
        return self.current


if __name__ == "__main__":
    import sys

    from tui.app import run_console

    safe = "--protected" in sys.argv
    kind = StillOperations if "--still" in sys.argv else MovingOperations
    pizzeria = kind(protected=safe, now=time.time() if kind is StillOperations else NOW)
    environment = "prod" if safe else "dev"
    code = run_console(pizzeria, project="pizzeria", environment=environment, protected=safe, user="alice")
    print(f"calls {pizzeria.calls}")
    sys.exit(code)
