"""Runs, their steps, and pending operator actions on runs.

An open run (`ended_at` is None) has a lease on each table that it changes or reads.
"""

import secrets
import sqlite3
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from core.model.errors import Refused, UsageError
from core.model.names import TableName
from core.run.model import ACCEPTED_IN, OperatorControl, RunState, skipped_note
from core.run.records import OVERLAY_COMPARISON, CheckResultRow, MigrationTicket, RunRow, StepRow
from state.audit_log import put_audit
from state.measurements import put_event
from state.operator_commands import NEWEST_SERIAL
from state.row_mapping import Value, values_by_column
from state.row_types import AuditRow, EventRow
from state.transactions import LedgerReads, LedgerWrites, insert, upsert

if TYPE_CHECKING:
    from core.observed.planner_input import StepDurations

_LETTERS = "0123456789abcdefghjkmnpqrstvwxyz"
"""Base-32 digits that cannot be confused with each other."""
_NO_EVIDENCE = "{}"
"""Value of the column `evidence`, which is no longer read."""


def draw_run_id(plan_hash: str) -> str:
    """Return a new run id: four characters of the plan's hash and 25 random bits.

    Neither a time nor a counter would be unique, since clocks are set back and ledgers are restored.
    """
    return f"{plan_hash[:4]}-{''.join(secrets.choice(_LETTERS) for _ in range(5))}"


class RunIdTaken(Exception):
    """Raised if the ledger already has a run with this id; the caller then draws another id."""


_CONTINUED_BY = "coalesce((SELECT next.id FROM run next WHERE next.continues = run.id), '')"


_RUN = f"SELECT run.*, {_CONTINUED_BY} AS continued_by FROM run"


@dataclass(frozen=True, slots=True)
class RunCommandRow:
    """An operator action on a run that is pending, that is, not yet carried out."""

    serial: int
    """Number that increases in the order in which actions are accepted. It is never reused."""
    act: str
    """The action, as in `core.run.model.OperatorControl`."""
    step: int
    """Number of the step to skip; 0 for every other action."""
    actor: str
    at: float
    statement_serial: int
    """Serial number of the latest command on a statement when this action was last requested.

    See `state.operator_commands`. The ledger may not contain that command yet, because a start waits for its version to
    be free.
    """


def control_of(command: RunCommandRow) -> OperatorControl:
    """Convert a pending operator action to an input for the run's state machine."""
    return OperatorControl(command.act, command.step, command.actor)


def refuse_impossible_action(run_id: str, state: str, act: str) -> None:
    """Raise UsageError if an operator action is not possible in the run's state."""
    if RunState(state) in ACCEPTED_IN[act]:
        return
    remedy = f"headgate runs retry {run_id} goes on with it" if state == RunState.FAILED else "make a new plan"
    raise UsageError(f"run {run_id} is {state}: there is nothing to {act}", remedy=remedy)


def refuse_cancelled(connection: sqlite3.Connection, run_id: str) -> None:
    """Raise UsageError if cancellation of the run is pending, because no other action is then accepted."""
    sql = "SELECT actor FROM run_word WHERE run_id = ? AND act = 'cancel'"
    if (found := connection.execute(sql, (run_id,)).fetchone()) is not None:
        raise UsageError(f"run {run_id} is being cancelled by {found[0]}", remedy=f"headgate runs {run_id} shows it")


def put_pending_action(
    connection: sqlite3.Connection, run_id: str, control: OperatorControl, at: float, drawn: int = 0
) -> None:
    """Write an operator action on a run within the caller's transaction.

    If the latest action is the same, only that action is updated. `drawn` is the latest serial number of a command on a
    statement; the ledger may not contain that command yet.
    """
    ((recorded,),) = connection.execute(NEWEST_SERIAL)
    statement_serial = max(recorded, drawn)
    sql = "SELECT act, step, serial FROM run_word WHERE run_id = ? ORDER BY serial DESC LIMIT 1"
    newest = connection.execute(sql, (run_id,)).fetchone()
    if newest is not None and newest[:2] == (control.act, control.n):
        again = "UPDATE run_word SET statement_serial = ? WHERE serial = ?"
        connection.execute(again, (statement_serial, newest[2]))
        return
    refuse_cancelled(connection, run_id)
    record: dict[str, Value] = {"run_id": run_id, "act": control.act, "step": control.n, "actor": control.by, "at": at}
    insert(connection, "run_word", record | {"statement_serial": statement_serial})


class RunReads(LedgerReads):
    """Methods that read runs, tickets and check results."""

    def run(self, id: str) -> RunRow | None:
        """Return a run by its full id; None if there is no such run."""
        found = self._runs("WHERE id = ?1", (id,))
        return found[0] if found else None

    def run_ids(self, prefix: str, limit: int = 10) -> tuple[str, ...]:
        """Return the ids of runs that start with a prefix, newest first; a full match is returned alone."""
        sql = "SELECT id FROM run WHERE substr(id, 1, length(?1)) = ?1 ORDER BY id = ?1 DESC, started_at DESC LIMIT ?2"
        found = tuple(str(id) for (id,) in self._values(sql, (prefix, limit)))
        return found[:1] if found[:1] == (prefix,) else found

    def runs(self, limit: int = 50) -> tuple[RunRow, ...]:
        """List the latest runs, newest first, with their steps."""
        return self._runs("ORDER BY started_at DESC, id LIMIT ?1", (limit,))

    def runs_of(self, table: TableName, limit: int = 50) -> tuple[RunRow, ...]:
        """List the latest runs that may change a table, newest first, with their steps."""
        held = 'SELECT run_id FROM run_table WHERE "table" = ?1 AND NOT reads'
        return self._runs(f"WHERE id IN ({held}) ORDER BY started_at DESC, id LIMIT ?2", (table, limit))

    def open_runs(self) -> tuple[RunRow, ...]:
        """List the runs that have not finished, oldest first."""
        return self._runs("WHERE ended_at IS NULL ORDER BY started_at, id", ())

    def run_commands(self, run_id: str) -> tuple[RunCommandRow, ...]:
        """List the pending operator actions on a run, in the order in which they were accepted."""
        sql = "SELECT serial, act, step, actor, at, statement_serial FROM run_word WHERE run_id = ? ORDER BY serial"
        return self._rows(RunCommandRow, sql, (run_id,))

    def runs_with_commands(self) -> tuple[str, ...]:
        """List the ids of runs with pending operator actions, including finished runs."""
        return tuple(id for (id,) in self._values("SELECT DISTINCT run_id FROM run_word ORDER BY run_id"))

    def failed_runs(self) -> tuple[RunRow, ...]:
        """List the failed runs that nobody has acknowledged and no other run continues, newest first."""
        return self._runs(
            "WHERE state = 'failed' AND acknowledged_by = '' AND continued_by = '' ORDER BY ended_at DESC, id", ()
        )

    def runs_with_scheduled_stops(self) -> tuple[str, ...]:
        """Return the ids of runs whose new version of a table serves while an old version waits to be stopped."""
        soaking = 'SELECT "table" FROM deployment WHERE stops_at IS NOT NULL'
        sql = f"SELECT DISTINCT served_by FROM deployment WHERE active AND served_by <> '' AND \"table\" IN ({soaking})"
        return tuple(run for (run,) in self._values(sql))

    def step_durations(self, limit: int = 2000) -> "StepDurations":
        """Return typical step durations, computed from the latest `limit` steps that succeeded at the first attempt."""
        from core.observed.planner_input import MeasuredStep, step_durations

        found = self._values(
            'SELECT "do", "table", ended_at - started_at FROM step WHERE state = \'done\' AND tries = 1 '
            "AND ended_at >= started_at ORDER BY ended_at DESC LIMIT ?",
            (limit,),
        )
        return step_durations(MeasuredStep(*values) for values in found)

    def _runs(self, which: str, parameters: tuple[Value, ...]) -> tuple[RunRow, ...]:
        with self._connected():
            runs = self._rows(RunRow, f"SELECT * FROM ({_RUN}) {which}", parameters)
            return tuple(
                replace(run, steps=self._rows(StepRow, "SELECT * FROM step WHERE run_id = ? ORDER BY n", (run.id,)))
                for run in runs
            )

    def tickets(self, run_id: str | None = None) -> tuple[MigrationTicket, ...]:
        """List the migration tickets of a run, or of all runs, sorted by table and reader."""
        which = "WHERE ?1 IS NULL OR run_id = ?1"
        return self._rows(
            MigrationTicket, f'SELECT * FROM migration_ticket {which} ORDER BY "table", reader, run_id', (run_id,)
        )

    def unclosed_tickets(self) -> tuple[MigrationTicket, ...]:
        """Return the migration tickets that are not closed, sorted by table and reader."""
        sql = 'SELECT * FROM migration_ticket WHERE closed_at IS NULL ORDER BY "table", reader, run_id'
        return self._rows(MigrationTicket, sql)

    def check_results(self, run_id: str, table: TableName | None = None) -> tuple[CheckResultRow, ...]:
        """List the check results of a run, for one table or for all, sorted by table and check number."""
        return self._rows(
            CheckResultRow,
            'SELECT * FROM check_result WHERE run_id = ?1 AND (?2 IS NULL OR "table" = ?2) ORDER BY "table", n',
            (run_id, table),
        )

    def uncompared_tables(self, run_id: str) -> tuple[TableName, ...]:
        """Return, sorted by name, the tables of a run whose rows were not compared because a check was skipped."""
        sql = "SELECT DISTINCT \"table\" FROM check_result WHERE run_id = ? AND verdict = 'skipped' ORDER BY 1"
        return tuple(table for (table,) in self._values(sql, (run_id,)))


class RunWrites(RunReads, LedgerWrites):
    """Methods that write runs, tickets and check results."""

    def put_run_state(self, run_id: str, state: str, *, ended_at: float | None = None) -> None:
        """Set the state and end time of a run; the end time is None if the run is open.

        A finished run releases its tables. An open run leases them again; then Refused is raised if another run has a
        conflicting lease or continues this run.
        """
        with self._transaction() as connection:
            if ended_at is None:
                _refuse_not_reopenable(connection, run_id)
            done = connection.execute(
                "UPDATE run SET state = ?, ended_at = ?, acknowledged_by = '' WHERE id = ?", (state, ended_at, run_id)
            )
            assert done.rowcount == 1, f"run {run_id} is not in the ledger"

    def advance_run(
        self,
        run_id: str,
        *,
        was: str,
        state: str,
        ended_at: float | None,
        steps: Iterable[StepRow],
        heard: Iterable[int] = (),
        told: Iterable[EventRow | AuditRow] = (),
        dropped: Callable[[RunCommandRow], EventRow] | None = None,
    ) -> bool:
        """Write a run's state, some of its steps, events and audit entries, in one transaction.

        Returns False, without changes, if the state is no longer `was`. Operator actions with a serial number in
        `heard` are deleted. Unless `dropped` is None, all other pending actions are also deleted, except a cancel that
        is still possible, and `dropped` creates an event for each of them. A reopened run leases its tables again;
        raises Refused if another run has a conflicting lease.
        """
        with self._transaction() as connection:
            if connection.execute("SELECT state FROM run WHERE id = ?", (run_id,)).fetchone() != (was,):
                return False
            if state != was:
                if ended_at is None:
                    _refuse_not_reopenable(connection, run_id)
                connection.execute(
                    "UPDATE run SET state = ?, ended_at = ?, acknowledged_by = '' WHERE id = ?",
                    (state, ended_at, run_id),
                )
            for step in steps:
                _put_step(connection, run_id, step)
            for serial in heard:
                connection.execute("DELETE FROM run_word WHERE serial = ?", (serial,))
            if dropped is not None:
                told = [*told, *map(dropped, _drop_commands(connection, run_id, state))]
            for row in told:
                if isinstance(row, AuditRow):
                    put_audit(connection, row)
                else:
                    put_event(connection, row)
            return True

    def put_run_command(self, run_id: str, control: OperatorControl, *, at: float, drawn: int = 0) -> None:
        """Store an operator action until the run has carried it out; `drawn` is as in `put_pending_action`.

        Raises UsageError if the action is not possible in the run's state or a cancel is pending, and Refused if
        another run continues this one.
        """
        with self._transaction() as connection:
            ((state,),) = connection.execute("SELECT state FROM run WHERE id = ?", (run_id,))
            refuse_impossible_action(run_id, state, control.act)
            _refuse_continued(connection, run_id)
            put_pending_action(connection, run_id, control, at, drawn)

    def acknowledge_run(self, run_id: str, by: str) -> None:
        """Record who acknowledged a failed run. Later acknowledgements are ignored."""
        with self._transaction() as connection:
            connection.execute("UPDATE run SET acknowledged_by = ? WHERE id = ? AND acknowledged_by = ''", (by, run_id))

    def retry_run(self, run_id: str, *, serial: int, skipping: int = 0, by: str = "", at: float = 0.0) -> None:
        """Record the retry of a run, or the skip of its failed step, so that it takes effect even if the agent dies.

        Failed and blocked steps wait again, and a finished run leases its tables again. A retry sets the run's
        `serial`, so that earlier stop commands no longer affect it. Operator actions that were pending when the run
        failed are dropped. Raises Refused if another run has a conflicting lease or continues this one, and UsageError
        if a cancel is pending or the action is not possible.
        """
        control = OperatorControl("skip" if skipping else "retry", skipping, by)
        with self._transaction() as connection:
            ((state,),) = connection.execute("SELECT state FROM run WHERE id = ?", (run_id,))
            refuse_impossible_action(run_id, state, control.act)
            refuse_cancelled(connection, run_id)
            _refuse_not_reopenable(connection, run_id)
            had_failed = "EXISTS (SELECT 1 FROM run WHERE id = ?1 AND state = 'failed')"
            connection.execute(f"DELETE FROM run_word WHERE run_id = ?1 AND {had_failed}", (run_id,))
            put_pending_action(connection, run_id, control, at)
            connection.execute(
                "UPDATE run SET state = 'running', ended_at = NULL, acknowledged_by = '' "
                "WHERE id = ? AND state = 'failed'",
                (run_id,),
            )
            if skipping:
                is_it = "run_id = ? AND n = ? AND state = 'failed'"
                found = connection.execute(f"SELECT do, note FROM step WHERE {is_it}", (run_id, skipping))
                for do, note in found.fetchall():
                    connection.execute(
                        f"UPDATE step SET state = 'skipped', note = ?, ended_at = ? WHERE {is_it}",
                        (skipped_note(do, note), at, run_id, skipping),
                    )
            else:
                connection.execute("UPDATE run SET serial = ? WHERE id = ?", (serial, run_id))
            connection.execute(
                "UPDATE step SET state = 'waits', note = '', ended_at = NULL "
                "WHERE run_id = ? AND state IN ('failed', 'blocked')",
                (run_id,),
            )

    def put_step(self, run_id: str, step: StepRow) -> None:
        """Write all fields of a step except its predicted duration."""
        with self._transaction() as connection:
            _put_step(connection, run_id, step)

    def open_tickets(self, tickets: Iterable[MigrationTicket]) -> None:
        """Write new migration tickets. Tickets that already exist are not changed."""
        with self._transaction() as connection:
            for ticket in tickets:
                values = values_by_column(ticket)
                columns = ", ".join(f'"{name}"' for name in values)
                marks = ", ".join("?" * len(values))
                sql = f"INSERT OR IGNORE INTO migration_ticket ({columns}) VALUES ({marks})"
                connection.execute(sql, tuple(values.values()))

    def close_ticket(self, run_id: str, reader: str, *, by: str, at: float) -> int:
        """Close a reader's open migration tickets of a run and return their number.

        Raises Refused if there are none.
        """
        with self._transaction() as connection:
            closed = connection.execute(
                "UPDATE migration_ticket SET closed_at = ?, closed_by = ? "
                "WHERE run_id = ? AND reader = ? AND closed_at IS NULL",
                (at, by, run_id, reader),
            ).rowcount
        if not closed:
            raise Refused(f"run {run_id} has no open ticket of {reader}", remedy=f"headgate release show {run_id}")
        return closed

    def put_check_results(self, run_id: str, table: TableName, results: Iterable[CheckResultRow]) -> None:
        """Write the check results of a table, replacing the results of an earlier comparison in the same run."""
        with self._transaction() as connection:
            connection.execute('DELETE FROM check_result WHERE run_id = ? AND "table" = ?', (run_id, table))
            for result in results:
                insert(connection, "check_result", values_by_column(result))

    def put_overlay_comparison(self, results: Iterable[CheckResultRow]) -> None:
        """Write the results of a finished comparison with the base, replacing those of the previous one, or nothing."""
        with self._transaction() as connection:
            connection.execute("DELETE FROM check_result WHERE run_id = ?", (OVERLAY_COMPARISON,))
            for result in results:
                insert(connection, "check_result", values_by_column(result))


def insert_run(
    connection: sqlite3.Connection, run: RunRow, tables: Iterable[TableName], reads: Iterable[TableName]
) -> None:
    """Write a run with its steps and leases, within the caller's transaction.

    Raises Refused if another open run changes a table that this run changes or reads, if another open run reads a table
    that this run changes, or if the run that this run continues cannot be continued. Raises RunIdTaken if the id is in
    use.
    """
    if connection.execute("SELECT 1 FROM run WHERE id = ?", (run.id,)).fetchone():
        raise RunIdTaken(run.id)
    if run.continues:
        _refuse_not_continuable(connection, run.continues)
    touched = {*tables, *(step.table for step in run.steps if step.table)}
    leases = {table: table not in touched for table in sorted({*touched, *reads})}
    _refuse_held(connection, run.id, leases)
    insert(connection, "run", values_by_column(run, without=("steps", "continued_by")))
    for table, only_reads in leases.items():
        connection.execute("INSERT OR IGNORE INTO run_table VALUES (?, ?, ?)", (run.id, table, only_reads))
    for step in run.steps:
        insert(connection, "step", {"run_id": run.id, "evidence": _NO_EVIDENCE, **values_by_column(step)})


def _put_step(connection: sqlite3.Connection, run_id: str, step: StepRow) -> None:
    values = values_by_column(step, without=("predicted_low_s", "predicted_high_s"))
    upsert(connection, "step", {"run_id": run_id, "evidence": _NO_EVIDENCE, **values}, key=("run_id", "n"))


def _drop_commands(connection: sqlite3.Connection, run_id: str, state: str) -> tuple[RunCommandRow, ...]:
    """Delete and return a run's pending operator actions in order, except a cancel that `state` still allows."""
    kept = "cancel" if RunState(state) in ACCEPTED_IN["cancel"] else ""
    sql = "DELETE FROM run_word WHERE run_id = ? AND act <> ? RETURNING serial, act, step, actor, at, statement_serial"
    return tuple(RunCommandRow(*values) for values in sorted(connection.execute(sql, (run_id, kept))))


def _refuse_not_continuable(connection: sqlite3.Connection, run_id: str) -> None:
    found = connection.execute("SELECT state FROM run WHERE id = ?", (run_id,)).fetchone()
    if found is None or found[0] != "failed":
        raise Refused(f"run {run_id} {f'is {found[0]}' if found else 'is unknown'}", remedy="plan again")
    _refuse_continued(connection, run_id)
    refuse_cancelled(connection, run_id)


def refuse_continued(run_id: str, continued_by: str) -> None:
    """Raise Refused if another run has continued this one and thereby taken over its versions.

    `continued_by` is the id of the other run, or empty if there is none.
    """
    if continued_by:
        raise Refused(f"run {run_id} was continued by run {continued_by}", remedy=f"headgate runs {continued_by}")


def _refuse_continued(connection: sqlite3.Connection, run_id: str) -> None:
    after = connection.execute("SELECT id FROM run WHERE continues = ?", (run_id,)).fetchone()
    refuse_continued(run_id, after[0] if after else "")


def _refuse_not_reopenable(connection: sqlite3.Connection, run_id: str) -> None:
    _refuse_continued(connection, run_id)
    leases = connection.execute('SELECT "table", reads FROM run_table WHERE run_id = ?', (run_id,)).fetchall()
    _refuse_held(connection, run_id, dict(leases))


def _refuse_held(connection: sqlite3.Connection, run_id: str, leases: Mapping[str, bool]) -> None:
    """Raise Refused if leases conflict with the leases of another open run.

    `leases` maps a table to True if the run only reads it.
    """
    for table, only_reads in leases.items():
        held = connection.execute(
            "SELECT run.id, run.actor, t.reads FROM run_table t JOIN run ON run.id = t.run_id "
            'WHERE t."table" = ?1 AND run.ended_at IS NULL AND run.id <> ?2 AND NOT (t.reads AND ?3)',
            (table, run_id, only_reads),
        ).fetchone()
        if held:
            raise Refused(
                f"{table} is being {'read' if held[2] else 'changed'} by run {held[0]} of {held[1]}",
                remedy=f"wait for run {held[0]} to end, or cancel it",
            )
