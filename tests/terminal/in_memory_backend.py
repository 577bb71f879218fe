"""A pizzeria in memory, which answers the console without a ledger, agent or Spark."""

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from core.lineage.column_lineage import ColumnLineage, LineageEdge
from core.lineage.column_lineage import LineageNode as ColumnNode
from core.model.act_outcomes import ActOutcome, ActResult
from core.model.errors import ConfirmationNeeded, HeadgateError
from core.model.events import EventCause
from core.model.names import TableName
from core.observed.spark_work import Executor, WorkOfPool
from core.plan.confirmation import Confirmation, confirmation_for_swap
from core.policy.unlocking import Unlock
from core.project.revision import RevisionTexts
from core.run.records import RunRow
from core.sql.lineage.model import ColumnOrigin, InputKind
from state.ledger_snapshot import LedgerSnapshot, StatementDetails
from state.row_types import AuditRow, CommandRow, EventRow, PlanRow, SampleRow, StagedRow
from tests.support.ledger_rows import environment_row, state_event, statement_line
from tests.terminal.pizzeria_values import NOW, SQL, TABLES, deployment, measurement, sample_plan, sample_run
from tui.agent_client.agent_commands import PeekedRows, UnlockAnswer
from tui.presentation.reports.table_history import HistoryEntry
from tui.presentation.screen_content.changes import ChangeRow
from tui.presentation.screen_content.lineage_tab import ColumnDetails
from tui.presentation.screen_content.statement_detail import DeclaredDetails
from tui.presentation.view.pools import PoolUse, uses_of_pools
from tui.screens.backend import PlanView, ProjectView, RunView


class FakeBackend:
    """A backend that answers at once, from values that a test can change, and records operations in `calls`."""

    def __init__(self, *, protected: bool = False, now: float = NOW) -> None:
        self.protected = protected
        self.now = now
        self.calls: list[tuple[object, ...]] = []
        self.reader = self.agent = self
        self.problems_in_files = 0
        self.lost = ""
        """Why the schemas cannot be read; empty if they can."""
        self.work = WorkOfPool((Executor("driver", "127.0.0.1", 2, 1, 3_600_000, 90_000, 812_000_000),))
        self.staged_marks: tuple[StagedRow, ...] = (
            StagedRow("alice", "/p", TableName("oven_load"), "deploy", now - 60),
        )
        rows = tuple(deployment(*table) for table in TABLES)
        self.current = LedgerSnapshot(
            read_at=now,
            facts=environment_row(
                project="pizzeria",
                environment="prod" if protected else "dev",
                protected=protected,
                agent_pid=4711,
                agent_started_at=now - 4000,
                agent_seen_at=now - 1,
            ),
            statements=tuple(
                statement_line(row, None if row.external else measurement(row.table, row.version)) for row in rows
            ),
            staged=self.staged_marks,
            unlocks=(Unlock(1, "alice", "OPS-1", now - 60, now + 1740, "", 0.0, 1800.0),) if protected else (),
            commands=(
                CommandRow(
                    id=2,
                    at=now - 30,
                    actor="alice",
                    op="stop",
                    subject="crm_orders",
                    line="headgate stop crm_orders --env dev",
                    outcome="done",
                    detail="",
                    ended_at=now,
                    took_ms=210,
                ),
            ),
            events=(
                replace(
                    state_event(now - 30, ("crm_orders", 1), ("running", "stopped"), cause=EventCause.STOP, by="alice"),
                    id=4,
                ),
                replace(state_event(now - 660, ("orders_paid", 1), ("running", "failed")), id=3),
                EventRow(2, now - 660, "orders_paid", 1, "exception", "CAST_INVALID_INPUT", "the value 'two'", "f", 3),
                EventRow(1, now - 4000, "", 0, "pool", "the pool is up"),
            ),
        )

    def snapshot(self, previous: LedgerSnapshot | None) -> LedgerSnapshot:
        return self.current

    def check_files(self) -> None:
        """Do nothing: the pizzeria has no files."""

    def change(self, table: str, /, **fields: object) -> None:
        """Change fields of a table's line in the lists."""
        self.current = replace(
            self.current,
            statements=tuple(
                one._replace(**fields) if one.table == table else one  # type: ignore[arg-type]  # names checked by the caller
                for one in self.current.statements
            ),
        )

    def rename(self, table: str, name: str) -> None:
        """Rename a table."""
        self.change(table, table=TableName(name))

    def drop(self, table: str) -> None:
        """Remove a table."""
        left = tuple(one for one in self.current.statements if one.table != table)
        self.current = replace(self.current, statements=left)

    def detail(self, table: str) -> StatementDetails:
        lags = (200, 900, 2400, 5200, 9880, 9400, 8100, 6000, 5100, 4400, 3900, 3300, 2800, 2300, 1700, 1204)
        samples = tuple(
            SampleRow(self.now - 15 * (len(lags) - index), lag, 3, 1000, 200.0 + index, 218.0, 1400 - index)
            for index, lag in enumerate(lags)
        )
        events = (
            EventRow(
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
            replace(state_event(self.now - 700, (table, 2), ("running", "failed")), id=2),
        )
        rows = tuple(deployment(*made) for made in TABLES if made[0] == table)
        figures = next((measurement(table, row.version) for row in rows if not row.external), None)
        return StatementDetails(TableName(table), rows, figures, samples=samples, events=events)

    def history(self, table: str) -> Sequence[HistoryEntry]:
        at, plan, run = self.now - 900, "7f3a" * 16, "9f2c" * 4
        return (
            HistoryEntry(at, "deploy", "rebuild v3→v4: filter before an aggregate, done in 2m", "alice", plan, run, 4),
            HistoryEntry(at + 130, "serves", "v4 began to serve", "alice", plan, run, 4),
            HistoryEntry(at + 240, "failure", "[CAST_INVALID_INPUT] the value 'two'", version=4, bad=True),
        )

    def declared(self, table: str, column: str | None = None) -> DeclaredDetails:
        declared = SQL.format(table, "order_items").replace("10 seconds", "30 seconds")
        columns = None if column is None else self.columns(table, column)
        return DeclaredDetails(declared if table == "oven_load" else None, columns=columns)

    def columns(self, table: str, column: str) -> ColumnDetails:
        """Return column details in which two columns of the table come from a landed one."""
        names = ("pizza", "letters")
        chosen = column or names[0]
        source, target = ColumnOrigin(TableName("src_orders"), "pizza"), ColumnOrigin(TableName(table), chosen)
        text = "length(pizza)" if chosen == "letters" else "pizza"
        edge = LineageEdge(source, target, InputKind.VALUE, "SELECT", text, (), (), f"dml.{table}.sql", 2)
        nodes = (
            ColumnNode(target, "string", landed=False, expression=text),
            ColumnNode(source, "string", landed=True, format="json", location="in"),
        )
        up = ColumnLineage(target, "up", nodes, (edge,), ())
        return ColumnDetails(names, chosen, up, ColumnLineage(target, "down", nodes[:1], (), ()))

    def project(self) -> ProjectView:
        old = SQL.format("oven_load", "order_items")
        return ProjectView(
            drift=(
                ChangeRow(
                    "oven_load",
                    "filter before an aggregate",
                    "rebuild + 1",
                    "the window changed: Spark accepts it silently, counts would be wrong",
                    RevisionTexts(dml=old),
                    RevisionTexts(dml=old.replace("10 seconds", "30 seconds")),
                    "pipelines/facts/kitchen/oven_load",
                ),
                ChangeRow(
                    "menu_sales",
                    "comment",
                    "record",
                    "only comments differ",
                    RevisionTexts(dml="-- a\n"),
                    RevisionTexts(dml="-- b\n"),
                ),
            )
        )

    def plan(self, hash_prefix: str) -> PlanView | None:
        return PlanView(
            sample_plan(self.protected), PlanRow("7f3a" * 16, "{}", "alice", self.now - 120, self.now + 3480, "open")
        )

    def runs(self) -> Sequence[RunRow]:
        return (sample_run(self.now),)

    def selected(self, words: Sequence[str], *, act: str) -> tuple[str, ...]:
        return ("oven_load", "order_items") if words == ("1+oven_load",) else tuple(words)

    def sql_file(self, table: str) -> str:
        return os.environ.get("EDITED_FILE", f"/nowhere/{table}.sql")

    def peek(self, table: str, *, version: int | None, limit: int) -> PeekedRows:
        return PeekedRows(("order_id", "pizza"), [[n, "margherita"] for n in range(3)])

    def log_lines(self, table: str) -> Sequence[str]:
        return ("2026-11-21T14:00:00.000Z ERROR MicroBatchExecution: Query till@v1 terminated", "\tat x.Y(Z.scala:1)")

    def last_run(self) -> str:
        return self.runs()[0].id

    def run(self, run_id: str) -> RunView | None:
        return RunView(sample_run(self.now), self.plan(""))

    def pools(self) -> Sequence[PoolUse]:
        facts = self.current.facts
        return uses_of_pools(facts, {}, self.current.statements) if facts is not None else ()

    def pool_work(self, pool: str) -> WorkOfPool:
        return self.work

    def events(self, table: str | None = None, limit: int = 100) -> Sequence[EventRow]:
        return tuple(one for one in self.current.events if table in (None, one.table))

    def audits(self) -> Sequence[AuditRow]:
        return (
            AuditRow(2, self.now - 30, "alice", "stop", "crm_orders", "", "yes", "done"),
            AuditRow(1, self.now - 900, "bob", "apply", "oven_load", "7f3a" * 16, "dev 7f3a", "done"),
        )

    def commands(self) -> Sequence[CommandRow]:
        return self.current.commands

    def environments(self) -> Mapping[str, bool]:
        return {"dev": True, "prod": True, "stage": False}

    def close(self) -> None:
        """Do nothing: the pizzeria has no ledger."""

    def confirmation(self, act: str, tables: Sequence[str]) -> Confirmation:
        if len(tables) > 1:
            return Confirmation("C2", str(len(tables)))
        return Confirmation("C2", tables[0]) if self.protected else Confirmation("C1", "yes")

    def act(self, act: str, tables: Sequence[str], *, confirm: str) -> tuple[ActOutcome, ...]:
        if confirm != self.confirmation(act, tables).text:
            raise ConfirmationNeeded(f"{act} needs its text", remedy="type it")
        self.calls.append((act, tuple(tables), confirm))
        came = {"stop": ActResult.STOPPED, "start": ActResult.STARTED, "restart": ActResult.RESTARTED}[act]
        return tuple(ActOutcome(TableName(table), 1, came, None, 200.0) for table in tables)

    def stage(self, tables: Sequence[str], *, verb: str) -> None:
        self.calls.append(("stage", tuple(tables), verb))

    def unstage(self, tables: Sequence[str]) -> tuple[str, ...]:
        self.calls.append(("unstage", tuple(tables)))
        return tuple(tables)

    def submit(self, actor: str) -> str:
        self.calls.append(("submit",))
        return "7f3a" * 16

    def apply(self, plan_hash: str, *, confirm: str) -> str:
        self.calls.append(("apply", plan_hash, confirm))
        return "9f2c" * 4

    def approve(self, plan_hash: str, *, confirm: str) -> tuple[int, int]:
        self.calls.append(("approve", plan_hash, confirm))
        return 1, 1

    def undo(self, word: str) -> str:
        self.calls.append(("undo", word))
        return "7f3a" * 16

    def submit_plan_by_verb(self, verb: str, words: tuple[str, ...], *, retain: str = "") -> str:
        self.calls.append((verb, " ".join((*words, *(("for", retain) if retain else ())))))
        return "7f3a" * 16

    def promote(self, words: tuple[str, ...], source: str) -> str:
        self.calls.append(("promote", words, source))
        return "7f3a" * 16

    def drain(self, pool: str, to: str = "") -> str:
        self.calls.append(("drain", pool, to))
        return "7f3a" * 16

    def environment_diff(self, source: str, words: Sequence[str]) -> tuple[str, ...]:
        return (f"TABLE        {source.upper()}  HERE", "order_items  v2   v1", "", "1 table differs, 0 the same")

    def schema(self, table: str) -> tuple[str, ...]:
        if self.lost:
            raise HeadgateError(self.lost, remedy="headgate doctor")
        return (f"{table}  compatibility: backward", "", "VERSION  SINCE  STATE   COLUMNS")

    def close_ticket(self, run: str, reader: str) -> str:
        self.calls.append(("close", run, reader))
        return f"run {run[:10]}: the ticket of {reader} is closed"

    def continuation(self, run_id: str) -> str:
        return ""

    def confirmation_of_swap(self, run_id: str) -> Confirmation:
        return confirmation_for_swap(run_id, environment="prod" if self.protected else "dev")

    def swap(self, run_id: str, *, confirm: str) -> None:
        self.calls.append(("swap", run_id, confirm))

    def unlock(self, length: str, ticket: str) -> UnlockAnswer | None:
        self.calls.append(("unlock", length, ticket))
        if not self.protected:
            return None
        unlock = Unlock(1, "alice", ticket, self.now, self.now + 1800, "", 0.0, 1800.0)
        self.current = replace(self.current, unlocks=(unlock,))
        return UnlockAnswer("alice", ticket, 1800.0, unlock.until)

    def lock(self) -> tuple[bool, bool]:
        self.calls.append(("lock",))
        ended, self.current = bool(self.current.unlocks), replace(self.current, unlocks=())
        return ended, self.protected

    def run_control(self, run_id: str, verb: str, *, step: int = 0, confirm: str = "") -> None:
        self.calls.append((verb, run_id, confirm))


class StillBackend(FakeBackend):
    """A FakeBackend whose agent is alive and reports nothing new."""

    def snapshot(self, previous: LedgerSnapshot | None) -> LedgerSnapshot:
        facts = self.current.facts
        assert facts is not None
        return replace(self.current, facts=replace(facts, agent_seen_at=time.time() - 1))


class MovingBackend(FakeBackend):
    """A FakeBackend with a moving clock: lags change at every reading, as with a real agent."""

    def snapshot(self, previous: LedgerSnapshot | None) -> LedgerSnapshot:
        now = time.time()
        facts = self.current.facts
        assert facts is not None
        shift = now - self.now
        self.now = now
        lines = tuple(
            line._replace(
                state_since=line.state_since + shift,
                lag_rows=None if line.lag_rows is None else max(line.lag_rows + int(now * 7) % 5 - 2, 0),
            )
            for line in self.current.statements
        )
        commands = tuple(replace(command, at=now - 30) for command in self.current.commands)
        self.current = replace(
            self.current,
            read_at=now,
            facts=replace(facts, agent_seen_at=now - 1),
            statements=lines,
            commands=commands,
        )
        return self.current


def never_started(name: str) -> FakeBackend:
    """Return the backend of an environment without a ledger."""
    found = FakeBackend()
    words, remedy = f"pizzeria {name} has never been started on this machine", f"start it: headgate up --env {name}"
    found.current = LedgerSnapshot(NOW, problem=words, remedy=remedy)
    return found


if __name__ == "__main__":
    import sys

    from tui.presentation.screen_content.screen_frame import ConsoleIdentity
    from tui.screens.environment_tab import OpenedEnvironment
    from tui.screens.startup import run_console

    safe = "--protected" in sys.argv
    kind = StillBackend if "--still" in sys.argv else MovingBackend
    pizzeria = kind(protected=safe, now=time.time() if kind is StillBackend else NOW)
    if "--clients" in sys.argv:
        pizzeria.rename("clients", sys.argv[sys.argv.index("--clients") + 1])
    environment = "prod" if safe else "dev"
    prod = kind(protected=True, now=time.time() if kind is StillBackend else NOW)
    beside = {"prod": prod, "stage": never_started("stage")}

    def opened(name: str) -> OpenedEnvironment:
        return OpenedEnvironment(ConsoleIdentity("pizzeria", name, name == "prod", "alice"), beside[name])

    code = run_console(
        ConsoleIdentity("pizzeria", environment, safe, "alice"),
        pizzeria.snapshot,
        lambda: pizzeria,
        open_environment=opened,
        also=tuple(beside) if "--several" in sys.argv else (),
    )
    print(f"calls {pizzeria.calls}, prod {prod.calls}")
    sys.exit(code)
