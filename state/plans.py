"""Submitted plans and their approvals. Each plan is applied at most once, by the run named in its row.

An open plan is superseded if a table in its scope is changed, or planned differently, after the plan was made. It is
not reopened, even if the environment returns to its earlier state.
"""

import json
import sqlite3
import time
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from core.model.errors import Refused, Stale
from core.model.names import TableName
from core.run.records import RunRow
from state.registry import TableAct, cordon, move_serials
from state.row_mapping import field_names, row_from_values, values_by_column
from state.row_types import ApprovalRow, PlanRow, StagedRow
from state.runs import insert_run
from state.transactions import LedgerReads, LedgerWrites, upsert

if TYPE_CHECKING:
    from core.plan.preconditions import TableEffect

_ACT_SINCE = """FROM plan_table t JOIN table_act a ON a."table" = t."table" AND a.serial > t.serial
  WHERE t.plan_hash = plan.hash ORDER BY a.at DESC, a."table" LIMIT 1"""
_SUPERSEDED = {
    "superseded_by": f"(SELECT a.what || ' on ' || a.\"table\" {_ACT_SINCE})",
    "superseded_at": f"(SELECT a.at {_ACT_SINCE})",
    "status": f"(SELECT 'superseded' {_ACT_SINCE})",
}
_PLAN = "SELECT {} FROM plan".format(
    ", ".join(
        f"CASE WHEN plan.status = 'open' THEN coalesce({_SUPERSEDED[name]}, plan.{name}) ELSE plan.{name} END AS {name}"
        if name in _SUPERSEDED
        else f"plan.{name}"
        for name in field_names(PlanRow)
    )
)
"""SQL for plans; an open plan is superseded if the serials of its tables show a later operator action or run."""

_OTHERWISE = """(SELECT group_concat("table", ', ') FROM (SELECT older."table" FROM plan_table older
  JOIN plan_table newer ON newer."table" = older."table" WHERE older.plan_hash = {} AND newer.plan_hash = {}
  AND older.acts AND newer.says NOT IN ('', older.says) ORDER BY older."table" LIMIT 3))"""
"""SQL for up to three tables that a newer plan handles differently from an older plan; NULL if there are none."""

NO_EFFECTS: "Mapping[TableName, TableEffect]" = MappingProxyType({})


class PlanReads(LedgerReads):
    """Methods that read plans, approvals and staged tables."""

    def plan(self, hash: str) -> PlanRow | None:
        """Return a plan by its full hash; None if there is no such plan."""
        return self._row(PlanRow, f"{_PLAN} WHERE hash = ?1", (hash,))

    def plan_hashes(self, hash_prefix: str, limit: int = 10) -> tuple[str, ...]:
        """Return the hashes of plans whose hash starts with a prefix, newest first."""
        sql = "SELECT hash FROM plan WHERE substr(hash, 1, length(?1)) = ?1 ORDER BY created_at DESC LIMIT ?2"
        return tuple(str(found) for (found,) in self._values(sql, (hash_prefix, limit)))

    def plans(self, limit: int = 50) -> tuple[PlanRow, ...]:
        """List the latest plans, newest first."""
        return self._rows(PlanRow, f"{_PLAN} ORDER BY created_at DESC, hash LIMIT ?", (limit,))

    def open_requests(self, now: float) -> tuple[dict[str, Any], ...]:
        """Return the requests of the latest open plans, as written by `request_as_json`, newest first."""
        sql = f"""SELECT json_extract(body, '$.request') FROM ({_PLAN}) WHERE status = 'open' AND expires_at > ?
          ORDER BY created_at DESC LIMIT 20"""
        return tuple(json.loads(asked) for (asked,) in self._values(sql, (now,)) if asked)

    def promotion_of(self, plan_hash: str) -> dict[str, Any] | None:
        """Return the request of a plan, as written by `request_as_json`, if the plan is a promotion; otherwise None."""
        sql = "SELECT json_extract(body, '$.request') FROM plan WHERE hash = ? AND instr(body, '\"promoted_from\":')"
        found = self._values(sql, (plan_hash,))
        return dict(json.loads(found[0][0])) if found else None

    def plans_about(self, table: TableName, limit: int = 50) -> tuple[str, ...]:
        """Return the hashes of the latest plans that act on a table, newest first."""
        sql = (
            "SELECT hash FROM plan WHERE EXISTS (SELECT 1 FROM json_each(body, '$.order') WHERE value = ?1) "
            "ORDER BY created_at DESC, hash LIMIT ?2"
        )
        return tuple(str(found) for (found,) in self._values(sql, (table, limit)))

    def is_in_plans(self, text: str) -> bool:
        """True if a plan, or a text of the project for which it was made, contains a text. Reads all plans."""
        sql = "SELECT EXISTS (SELECT 1 FROM plan WHERE instr(body, ?1) OR instr(texts, ?1))"
        return bool(self._values(sql, (text,))[0][0])

    def approvals(self, plan_hash: str) -> tuple[ApprovalRow, ...]:
        """List the approvals of a plan, oldest first."""
        return self._rows(ApprovalRow, "SELECT * FROM approval WHERE plan_hash = ? ORDER BY at, uid", (plan_hash,))

    def staged(self) -> tuple[StagedRow, ...]:
        """List all staged tables, sorted by actor, folder and table."""
        return self._rows(StagedRow, 'SELECT * FROM staged ORDER BY actor, folder, "table"')


class PlanWrites(PlanReads, LedgerWrites):
    """Methods that write plans, approvals and staged tables."""

    def put_plan(
        self, plan: PlanRow, effects: "Mapping[TableName, TableEffect]" = NO_EFFECTS, *, saved: bool = False
    ) -> None:
        """Write a submitted plan, and supersede open plans that contradict it.

        An open plan with the same hash keeps its author, approvals and times; its body is replaced unless the new plan
        was `saved`. A plan that was applied is left unchanged. A plan that had expired or was superseded is replaced,
        and loses its approvals.

        `effects` is the plan's effect on each table; open plans with a different effect on one of these tables are
        superseded. A submitted plan is treated as newer than all other plans, whatever their times, because a clock may
        have been wrong. A `saved` plan is treated as made at its recorded time. Raises Stale if a later plan has a
        different effect on a table in `effects`.
        """
        with self._transaction() as connection:
            found = connection.execute(
                f"SELECT status, expires_at, superseded_at FROM ({_PLAN} WHERE hash = ?)", (plan.hash,)
            ).fetchone()
            closed = found is not None and not saved and found[0] in ("superseded", "expired")
            if (
                found is None
                or closed
                or (
                    found[0] != "applied"
                    and (plan.created_at >= found[1] or (found[2] is not None and plan.created_at >= found[2]))
                )
            ):
                connection.execute("DELETE FROM approval WHERE plan_hash = ?", (plan.hash,))
                upsert(connection, "plan", values_by_column(plan), key=("hash",))
                connection.execute("DELETE FROM plan_table WHERE plan_hash = ?", (plan.hash,))
            elif not saved and found[0] == "open":
                # Costs and Spark's confirmation are not part of the hash, and may have been unknown before.
                connection.execute("UPDATE plan SET body = ? WHERE hash = ?", (plan.body, plan.hash))
            connection.executemany(
                "INSERT INTO plan_table VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
                [(plan.hash, table, effect.serial, effect.acts, effect.says) for table, effect in effects.items()],
            )
            if saved:
                _refuse_older(connection, plan)
            _supersede(connection, plan, saved=saved)

    def supersede_others(
        self, plan: PlanRow, effects: "Mapping[TableName, TableEffect]", *, saved: bool = False
    ) -> None:
        """Supersede the open plans that contradict a plan without actions; that plan is not stored.

        `effects` is the plan's effect on each table. A plan with a different effect on one of these tables contradicts
        it.
        """
        with self._transaction() as connection:
            connection.executemany(
                "INSERT INTO plan_table VALUES (?, ?, ?, ?, ?)",
                [(plan.hash, table, effect.serial, effect.acts, effect.says) for table, effect in effects.items()],
            )
            _supersede(connection, plan, saved=saved)
            connection.execute("DELETE FROM plan_table WHERE plan_hash = ?", (plan.hash,))

    def approve(self, approval: ApprovalRow) -> None:
        """Record a user's approval of a plan. Raises Refused or Stale if the plan is unknown or no longer open."""
        with self._transaction() as connection:
            _refuse_not_open(connection, approval.plan_hash, approval.at)
            connection.execute(
                "INSERT INTO approval (plan_hash, uid, login, at, process_uid) VALUES (?, ?, ?, ?, ?) "
                "ON CONFLICT DO NOTHING",
                (approval.plan_hash, approval.uid, approval.login, approval.at, approval.process_uid),
            )

    def apply_plan(
        self,
        plan_hash: str,
        run: RunRow,
        tables: Iterable[TableName] = (),
        reads: Iterable[TableName] = (),
        *,
        now: float,
        cordons: str = "",
    ) -> None:
        """Mark an open plan as applied and write its run, in one transaction, which also cordons the pool `cordons`.

        The run changes `tables` and the tables of its steps, and only reads the tables in `reads`. Raises Stale if the
        plan is superseded, Refused if it is unknown or not open for another reason, Refused if an open run has a
        conflicting lease on one of these tables, and RunIdTaken if the run's id is in use.
        """
        with self._transaction() as connection:
            _refuse_not_open(connection, plan_hash, now)
            insert_run(connection, run, tables, reads)
            if cordons:
                cordon(connection, cordons, now, run.actor)
            acted_on = {*tables, *(step.table for step in run.steps if step.table)}
            move_serials(connection, sorted(acted_on), TableAct(f"run {run.id} of {run.actor}", now))
            connection.execute("UPDATE plan SET status = 'applied', run_id = ? WHERE hash = ?", (run.id, plan_hash))

    def stage(self, staged: Iterable[StagedRow]) -> None:
        """Stage tables in one transaction.

        If an actor has already staged a table in a folder, the table's verb is replaced.
        """
        with self._transaction() as connection:
            for one in staged:
                upsert(connection, "staged", values_by_column(one), key=("actor", "folder", "table"))

    def unstage(self, actor: str, folder: str, tables: Iterable[TableName]) -> None:
        """Unstage tables that an actor has staged in a project folder."""
        with self._transaction() as connection:
            connection.executemany(
                'DELETE FROM staged WHERE actor = ? AND folder = ? AND "table" = ?',
                [(actor, folder, table) for table in tables],
            )


def approvals_of_others(plan: PlanRow, approvals: Iterable[ApprovalRow]) -> tuple[ApprovalRow, ...]:
    """Return the approvals of a plan that count: at most one per user id, and none by the author."""
    counted: list[ApprovalRow] = []
    seen = {plan.author_uid, plan.author_process_uid} - {None}
    for approval in approvals:
        theirs = {approval.uid, approval.process_uid} - {None}
        if seen.isdisjoint(theirs):
            counted.append(approval)
            seen |= theirs
    return tuple(counted)


def refuse_closed(row: PlanRow, *, now: float) -> None:
    """Raise Refused if a plan is applied, expired or refused, and Stale if it is superseded."""
    short = row.hash[:12]
    if row.status == "applied":
        raise Refused(f"plan {short} was already applied by run {row.run_id}", remedy="plan again")
    if row.status == "superseded":
        raise _superseded(short, row.superseded_by, row.superseded_at)
    if row.status == "expired" or now >= row.expires_at:
        raise Refused(f"plan {short} has expired", remedy="plan again")
    if row.status != "open":
        raise Refused(f"plan {short} is {row.status}", remedy="plan again")


def _superseded(short: str, by: str, at: float | None) -> Stale:
    when = f", {local_time(at)}" if at else ""
    return Stale(f"plan {short} is stale: it was superseded by {by}{when}", remedy="plan again")


def local_time(at: float) -> str:
    """Format epoch seconds in the local time zone: `11-22 14:02:11`."""
    return time.strftime("%m-%d %H:%M:%S", time.localtime(at))


def _refuse_not_open(connection: sqlite3.Connection, plan_hash: str, now: float) -> None:
    cursor = connection.execute(f"{_PLAN} WHERE hash = ?", (plan_hash,))
    found = cursor.fetchone()
    if found is None:
        raise Refused(f"plan {plan_hash[:12]} is unknown here", remedy="submit the plan again")
    refuse_closed(row_from_values(PlanRow, tuple(column[0] for column in cursor.description), found), now=now)


def _refuse_older(connection: sqlite3.Connection, plan: PlanRow) -> None:
    """Raise Stale for a saved plan if a later plan has a different effect on one of its tables."""
    later = connection.execute(
        f"SELECT hash, author, created_at, {_OTHERWISE.format('?1', 'plan.hash')} AS tables FROM plan "
        "WHERE created_at > ?2 AND tables IS NOT NULL ORDER BY created_at DESC LIMIT 1",
        (plan.hash, plan.created_at),
    ).fetchone()
    if later is not None:
        raise _superseded(plan.hash[:12], f"plan {later[0][:12]} of {later[1]} on {later[3]}", later[2])


def _supersede(connection: sqlite3.Connection, plan: PlanRow, *, saved: bool) -> None:
    tables = _OTHERWISE.format("plan.hash", "?1")
    older = "created_at <= ?3" if saved else "TRUE"
    connection.execute(
        f"UPDATE plan SET status = 'superseded', superseded_by = ?2 || {tables}, superseded_at = ?3 "
        f"WHERE status = 'open' AND expires_at > ?3 AND {older} AND hash <> ?1 AND {tables} IS NOT NULL",
        (plan.hash, f"plan {plan.hash[:12]} of {plan.author} on ", plan.created_at),
    )
