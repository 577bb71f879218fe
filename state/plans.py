"""Submitted plans with their approvals: each is applied at most once, by the one run that its row names."""

import sqlite3
from collections.abc import Iterable

from core.model.errors import Refused
from core.model.names import TableName
from state.row_mapping import values_by_column
from state.row_types import ApprovalRow, PlanRow, RunRow
from state.runs import insert_run
from state.transactions import LedgerReads, LedgerWrites, upsert


class PlanReads(LedgerReads):
    """Reads of plans."""

    def plan(self, hash_prefix: str) -> PlanRow | None:
        """Read the plan whose hash begins so, the newest of several; None when there is none."""
        return self._row(
            PlanRow,
            "SELECT * FROM plan WHERE substr(hash, 1, length(?1)) = ?1 ORDER BY created_at DESC LIMIT 1",
            (hash_prefix,),
        )

    def plan_hashes(self, hash_prefix: str, limit: int = 10) -> tuple[str, ...]:
        """List the hashes that begin so, newest first."""
        sql = "SELECT hash FROM plan WHERE substr(hash, 1, length(?1)) = ?1 ORDER BY created_at DESC LIMIT ?2"
        return tuple(str(found) for (found,) in self._values(sql, (hash_prefix, limit)))

    def plans(self, limit: int = 50) -> tuple[PlanRow, ...]:
        """List the newest plans, newest first."""
        return self._rows(PlanRow, "SELECT * FROM plan ORDER BY created_at DESC, hash LIMIT ?", (limit,))

    def plans_about(self, table: TableName, limit: int = 50) -> tuple[str, ...]:
        """List the hashes of the newest plans that act on a table, newest first."""
        sql = (
            "SELECT hash FROM plan WHERE EXISTS (SELECT 1 FROM json_each(body, '$.order') WHERE value = ?1) "
            "ORDER BY created_at DESC, hash LIMIT ?2"
        )
        return tuple(str(found) for (found,) in self._values(sql, (table, limit)))

    def approvals(self, plan_hash: str) -> tuple[ApprovalRow, ...]:
        """List who approved a plan, in the order in which they did."""
        return self._rows(ApprovalRow, "SELECT * FROM approval WHERE plan_hash = ? ORDER BY at, uid", (plan_hash,))


class PlanWrites(PlanReads, LedgerWrites):
    """Writes of plans."""

    def put_plan(self, plan: PlanRow) -> None:
        """Write a submitted plan; one that was applied, or that is there and open, is left to its first author.

        One that had expired is written anew, without its approvals.
        """
        with self._transaction() as connection:
            found = connection.execute("SELECT status, expires_at FROM plan WHERE hash = ?", (plan.hash,)).fetchone()
            if found is None or (found[0] != "applied" and plan.created_at >= found[1]):
                connection.execute("DELETE FROM approval WHERE plan_hash = ?", (plan.hash,))
                upsert(connection, "plan", values_by_column(plan), key=("hash",))

    def approve(self, approval: ApprovalRow) -> None:
        """Write an approval, once for each login; refused when the plan is unknown, used, refused or expired."""
        with self._transaction() as connection:
            _refuse_taken(connection, approval.plan_hash, approval.at)
            connection.execute(
                "INSERT INTO approval (plan_hash, uid, login, at) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
                (approval.plan_hash, approval.uid, approval.login, approval.at),
            )

    def take_plan(
        self,
        plan_hash: str,
        run: RunRow,
        tables: Iterable[TableName] = (),
        reads: Iterable[TableName] = (),
        *,
        now: float,
    ) -> None:
        """Mark an open plan applied and write its run, both or neither.

        Refused when the plan is unknown, used, refused or expired; when an open run holds one of the tables that it
        changes (`tables` and those of its steps) or only `reads`.
        """
        with self._transaction() as connection:
            _refuse_taken(connection, plan_hash, now)
            insert_run(connection, run, tables, reads)
            connection.execute("UPDATE plan SET status = 'applied', run_id = ? WHERE hash = ?", (run.id, plan_hash))


def refuse_closed(plan_hash: str, status: str, expires_at: float, run_id: str, *, now: float) -> None:
    """Raise Refused for a plan that was applied, has expired or was refused."""
    short = plan_hash[:12]
    if status == "applied":
        raise Refused(f"plan {short} was already applied by run {run_id}", remedy="plan again")
    if status == "expired" or now >= expires_at:
        raise Refused(f"plan {short} has expired", remedy="plan again")
    if status != "open":
        raise Refused(f"plan {short} is {status}", remedy="plan again")


def _refuse_taken(connection: sqlite3.Connection, plan_hash: str, now: float) -> None:
    found = connection.execute("SELECT status, expires_at, run_id FROM plan WHERE hash = ?", (plan_hash,)).fetchone()
    if found is None:
        raise Refused(f"plan {plan_hash[:12]} is unknown here", remedy="submit the plan again")
    refuse_closed(plan_hash, *found, now=now)
