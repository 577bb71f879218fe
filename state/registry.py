"""The registry: deployed versions of tables, the row of the environment, and the environment's recorded policies.

The row of a deleted version is kept for a time: `drop_after` is set when the version is deleted, and `purged_at` when
its files are gone.
"""

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from core.changes.pinned_settings import recorded_pool
from core.model.errors import Refused
from core.model.names import TableName
from core.model.states import State
from core.observed.served_environment import ServedEnvironment
from core.observed.versions import Deployment, Measurement, StatementLine
from core.policy.roles_and_rules import Policy, policy_from_json
from core.policy.unlocking import Unlock
from core.project.model import Pool
from state.row_mapping import Value, field_names, sqlite_value, values_by_column
from state.row_types import ClockCheck, EnvironmentRow, PolicyRow, PoolRow
from state.transactions import (
    NEWEST_CHANGE,
    TREND_OF_STATE,
    LedgerReads,
    LedgerWrites,
    insert,
    upsert,
    while_it_may_run,
)

_DEPLOYMENT = "SELECT deployment.*, revision.texts FROM deployment JOIN revision USING (revision)"

_LINE_COLUMNS = {
    "bound": "d.bindings",
    "trend": TREND_OF_STATE,
    "in_rows_s": while_it_may_run("in_rows_s"),
    "out_rows_s": while_it_may_run("out_rows_s"),
    "exact": "m.exact IS NOT 0",
    "keyed": "d.mode LIKE 'upsert%'",
    "deleted": "d.drop_after IS NOT NULL",
    "time_left": "coalesce(m.time_left, '')",
    "limited": "m.trend = 'growing' AND instr(lower(d.compiled), 'maxfilespertrigger') > 0",
}
"""SQL for the fields of a line that are not plain columns of `deployment` or `measurement`."""

_MEASURED = {*field_names(Measurement)} - {"table", "version"}

_LINE = f"""SELECT {
    ", ".join(
        _LINE_COLUMNS.get(name, f'{"m" if name in _MEASURED else "d"}."{name}"') for name in StatementLine._fields
    )
}
FROM deployment d LEFT JOIN measurement m ON m.deployment = d.id"""

_NOT_DELETED = f'{_LINE} WHERE d.drop_after IS NULL ORDER BY d."table", d.version'

_CHANGED = f"""{_LINE} WHERE d.id IN (
  SELECT id FROM deployment WHERE changed > ?1 UNION SELECT deployment FROM measurement WHERE changed > ?1)"""


@dataclass(frozen=True, slots=True)
class TableAct:
    """An operator action or run that changed the SQL, version or desired state of tables."""

    what: str
    """Description of the action or run for display, such as `run 7f3a-1 of ana`."""
    at: float


class RegistryReads(LedgerReads):
    """Methods that read the registry."""

    def facts(self) -> EnvironmentRow:
        """Return the row that describes the environment, which always exists."""
        found = self._row(EnvironmentRow, "SELECT * FROM facts")
        assert found, "a ledger has its facts from the transaction that made it"
        return replace(found, pools=self._rows(PoolRow, "SELECT * FROM pool ORDER BY n"))

    def deployments(self, *, include_deleted: bool = False) -> tuple[Deployment, ...]:
        """Return the versions of all tables, sorted by table and version; for screens, `statements` is faster.

        Deleted versions are included only with `include_deleted`.
        """
        where = "" if include_deleted else " WHERE drop_after IS NULL"
        return self._rows(Deployment, f'{_DEPLOYMENT}{where} ORDER BY "table", version')

    def recorded_pools(self) -> dict[tuple[TableName, int], str]:
        """Return the name of the pool that each version records, by version; versions that record none are omitted.

        `EnvironmentRow.pool_of` interprets it.
        """
        sql = """SELECT "table", version, json_extract(pool, '$.name') FROM deployment
            WHERE drop_after IS NULL AND NOT external AND pool IS NOT NULL"""
        return {(table, version): name for table, version, name in self._values(sql)}

    def declared_resources(self) -> dict[tuple[TableName, int], str]:
        """Return the yml of each version that declares `resources`."""
        sql = """SELECT "table", version, json_extract(texts, '$.yml') FROM deployment JOIN revision USING (revision)
            WHERE drop_after IS NULL AND NOT external AND instr(texts, 'resources:')"""
        return {(table, version): yml for table, version, yml in self._values(sql)}

    def registered_since(self, change: int) -> tuple[int, tuple[Deployment, ...]]:
        """Return the latest change number, and the versions changed after number `change`, including deleted ones."""
        # The number is read first, as in `changed_since`.
        return self.change_number(), self._rows(Deployment, f"{_DEPLOYMENT} WHERE changed > ?", (change,))

    def deployment(self, table: TableName, version: int) -> Deployment | None:
        """Return one version, even if it is deleted; None if it is unknown."""
        return self._row(Deployment, f'{_DEPLOYMENT} WHERE "table" = ? AND version = ?', (table, version))

    def versions(self, table: TableName) -> tuple[Deployment, ...]:
        """List all versions of a table, newest first, including deleted ones."""
        return self._rows(Deployment, f'{_DEPLOYMENT} WHERE "table" = ? ORDER BY version DESC', (table,))

    def clones(self, table: TableName, version: int) -> tuple[Deployment, ...]:
        """Return the clones of a version, including deleted ones whose files still exist."""
        return tuple(d for d in self.versions(table) if 0 < d.clone_of == version and (not d.deleted or d.trash))

    def deleted_tables(self) -> tuple[TableName, ...]:
        """List the tables whose versions are all deleted, sorted by name."""
        sql = 'SELECT "table" FROM deployment GROUP BY "table" HAVING min(drop_after IS NOT NULL) ORDER BY "table"'
        return tuple(table for (table,) in self._values(sql))

    def taken_versions(self) -> dict[TableName, int]:
        """Return, by table, the highest version number that must not be reused because its folder has foreign files."""
        return dict(self._values('SELECT "table", max(version) FROM taken_version GROUP BY "table"'))

    def change_number(self) -> int:
        """Return the number of the latest change to any version or measurement."""
        return int(self._values(NEWEST_CHANGE)[0][0])

    def clock_check(self) -> ClockCheck | None:
        """Return the last check of the wall clock; None before the first check."""
        return self._row(ClockCheck, "SELECT * FROM clock_check")

    def statements(self) -> tuple[StatementLine, ...]:
        """Return all existing versions as statement lines, sorted by table and version; takes 7 µs per version."""
        return tuple([_line(values) for values in self._values(_NOT_DELETED)])

    def changed_since(self, change: int) -> tuple[int, tuple[StatementLine, ...]]:
        """Return the latest change number, and the lines changed after number `change`, deleted versions included.

        The cost depends only on the number of changes. If `change` is 0, the lines are those of `statements`.
        """
        with self._connected() as connection:
            # The number is read first: a change that is written between the two statements is then read twice, never
            # missed.
            (newest,) = connection.execute(NEWEST_CHANGE).fetchone()
            if not change:
                return newest, self.statements()
            found = connection.execute(_CHANGED, (change,)).fetchall() if newest > change else []
        return newest, tuple([_line(values) for values in found])

    def table_serials(self) -> dict[TableName, int]:
        """Return the serial of each table, which every operator action or run on the table advances."""
        return dict(self._values('SELECT "table", serial FROM table_act'))

    def table_acts(self) -> dict[TableName, TableAct]:
        """Return the last operator action or run that changed each table."""
        return {
            table: TableAct(what, at) for table, what, at in self._values('SELECT "table", what, at FROM table_act')
        }


class RegistryWrites(RegistryReads, LedgerWrites):
    """Methods that write the registry. Since nothing else writes it, `deployments` is cached until the next write."""

    _generation = 0
    _listed: Mapping[bool, tuple[int, tuple[Deployment, ...]]] = MappingProxyType({})

    def deployments(self, *, include_deleted: bool = False) -> tuple[Deployment, ...]:
        """Return the versions of all tables, sorted by table and version.

        Deleted versions are included only with `include_deleted`.
        """
        generation = self._generation
        kept = self._listed.get(include_deleted)
        if kept and kept[0] == generation:
            return kept[1]
        found = super().deployments(include_deleted=include_deleted)
        self._listed = {**self._listed, include_deleted: (generation, found)}
        return found

    def heartbeat(self, at: float) -> None:
        """Record that the agent is alive at `at`, from which the age of all data is measured."""
        with self._transaction() as connection:
            connection.execute("UPDATE facts SET agent_seen_at = ?", (at,))

    def put_mark(self, mark: int) -> None:
        """Advance the mark in the ledger (see `EnvironmentRow`).

        The caller must then advance the mark in the data folder.
        """
        with self._transaction() as connection:
            connection.execute("UPDATE facts SET mark = ?", (mark,))

    def put_doubt(self, doubt: str) -> None:
        """Record why the environment may not be the one in the ledger. An empty string removes the doubt."""
        with self._transaction() as connection:
            connection.execute("UPDATE facts SET doubt = ?", (doubt,))

    def begin_epoch(self, *, above: int) -> int:
        """Start a new ledger epoch, higher than both the current one and `above`, and return it.

        All unlocks end, because one that an operator has ended since must not return. The environment must then be
        adopted.
        """
        with self._transaction() as connection:
            connection.execute("UPDATE facts SET epoch = max(epoch, ?) + 1", (above,))
            connection.execute("DELETE FROM unlock")
        return self.facts().epoch

    def adopt(self, *, epoch: int, mark: int) -> None:
        """Record an adoption: set the new epoch and mark, and clear the doubt about the environment."""
        with self._transaction() as connection:
            connection.execute("UPDATE facts SET epoch = ?, mark = ?, doubt = ''", (epoch, mark))

    def put_agent(self, pid: int | None, started_at: float | None, *, serves: ServedEnvironment | None = None) -> None:
        """Record the pid and start time of the agent, and what it serves. Pid and time are None when it exits.

        Without `serves`, the record of what was last served stays.
        """
        values = pid, started_at, sqlite_value(serves)
        with self._transaction() as connection:
            connection.execute(
                "UPDATE facts SET agent_pid = ?, agent_started_at = ?, serves = coalesce(?, serves)", values
            )

    def put_pool(self, place: str = "", **fields: Value) -> None:
        """Set some of the columns that describe the pool at `place`, other than what is declared or cordoned."""
        observed = ("name", "state", "detail", "generation", "session_id", "began_at", "engine", "application")
        _only(fields, (*observed, "silent_since", "manager_says"))
        assignments = ", ".join(f"{name} = ?" for name in fields)
        with self._transaction() as connection:
            connection.execute(f"UPDATE pool SET {assignments} WHERE place = ?", (*fields.values(), place))

    def cordon_pool(self, name: str, at: float | None, by: str) -> bool:
        """Record that a pool takes no new statements from `at` on, or takes them again if `at` is None.

        Returns False, without changes, if that is so already.
        """
        with self._transaction() as connection:
            return cordon(connection, name, at, by)

    def declare_pools(self, declared: Sequence[tuple[str, Pool]]) -> None:
        """Record the declared pools in order, each with its place; forget pools at other places.

        A pool that is known keeps its session, its state and its cordon.
        """
        places = [place for place, _ in declared]
        with self._transaction() as connection:
            marks = ", ".join("?" * len(places))
            connection.execute(f"DELETE FROM pool WHERE place NOT IN ({marks})", places)
            for n, (place, pool) in enumerate(declared):
                declared_pool = replace(recorded_pool(pool), capacity=pool.capacity, of_class=pool.of_class)
                row = PoolRow(place, n, pool.name, declared=declared_pool, most=pool.capacity.statements)
                values = values_by_column(row)
                columns = ", ".join(values)
                connection.execute(
                    f"INSERT INTO pool ({columns}) VALUES ({', '.join('?' * len(values))}) "
                    "ON CONFLICT (place) DO UPDATE SET n = excluded.n, name = excluded.name, "
                    "declared = excluded.declared, most = excluded.most",
                    tuple(values.values()),
                )

    def put_deployment(self, deployment: Deployment) -> None:
        """Write all fields of a version, new or existing. An active version replaces the serving version."""
        with self._registering() as connection:
            texts = sqlite_value(deployment.texts)
            connection.execute("INSERT OR IGNORE INTO revision VALUES (?, ?)", (deployment.revision, texts))
            if deployment.active:
                self._serve(connection, deployment.table, None)
            values = {**values_by_column(deployment, without=("texts",)), "changed": self._next_change()}
            upsert(connection, "deployment", values, key=("table", "version"))

    def update_deployment(self, table: TableName, version: int, **fields: object) -> None:
        """Set fields of a version, named as in Deployment; new `texts` must be passed together with `revision`."""
        done = self._set_fields(table, version, fields, where="TRUE")
        assert done, f"{table} v{version} is not in the ledger"

    def observe_deployment(self, seen: Deployment, **fields: object) -> bool:
        """Set observed fields of a version; return False, without changes, if `seen` is outdated.

        `seen` is outdated if the version's run id, state, desired state or deletion time has changed since it was read.
        """
        where = "wanted = ? AND state = ? AND run_id = ? AND drop_after IS ?"
        now = (seen.wanted, seen.state, seen.run_id, seen.drop_after)
        return self._set_fields(seen.table, seen.version, fields, *now, where=where)

    def _set_fields(
        self, table: TableName, version: int, fields: Mapping[str, object], *parameters: object, where: str
    ) -> bool:
        _only(fields, tuple(name for name in field_names(Deployment) if name not in ("table", "version", "active")))
        values = {name: sqlite_value(value) for name, value in fields.items()}
        with self._registering() as connection:
            if texts := values.pop("texts", None):
                connection.execute("INSERT OR IGNORE INTO revision VALUES (?, ?)", (values["revision"], texts))
            values["changed"] = self._next_change()
            assignments = ", ".join(f'"{name}" = ?' for name in values)
            done = connection.execute(
                f'UPDATE deployment SET {assignments} WHERE "table" = ? AND version = ? AND {where}',
                (*values.values(), table, version, *parameters),
            )
            return done.rowcount == 1

    def block_version_number(self, table: TableName, version: int) -> None:
        """Record that a version number must not be reused, because its folder has foreign files."""
        with self._transaction() as connection:
            connection.execute("INSERT OR IGNORE INTO taken_version VALUES (?, ?)", (table, version))

    def put_stopped(
        self, table: TableName, version: int, run_id: str, at: float, *, forgets_error: bool = False
    ) -> bool:
        """Record that a version's query with this run id has stopped, and delete its error if `forgets_error` is set.

        Returns False, without changes, if another query has replaced it, or if the desired state is `running`, since
        the version is then being started. The desired state does not change.
        """
        gone = {"state": State.STOPPED, "state_since": at, "query_id": "", "run_id": ""}
        if forgets_error:
            gone |= {"error": "", "error_class": ""}
        return self._set_fields(table, version, gone, run_id, where="run_id IN ('', ?) AND wanted = 'stopped'")

    def put_served(self, count: int) -> None:
        """Record how often the data folder's record of serving versions has been written."""
        with self._transaction() as connection:
            connection.execute("UPDATE facts SET served = ?", (count,))

    def activate(
        self, versions: Mapping[TableName, int], *, served: int = 0, by: str = "", at: float | None = None
    ) -> None:
        """Record in one transaction that the pointers of tables were moved to these versions.

        `served` is the number of times that the data folder's record of serving versions has been written. Unless `at`
        is None, it is recorded with the run `by` for versions that were not already serving.
        """
        with self._registering() as connection:
            connection.execute("UPDATE facts SET served = max(served, ?)", (served,))
            for table, version in versions.items():
                if at is not None:
                    connection.execute(_SERVED_FROM_NOW, (at, by, table, version))
                self._serve(connection, table, version)

    def tombstone(self, table: TableName, version: int, *, drop_after: float, trash: str) -> None:
        """Mark a version as deleted, with its files in the trash until `drop_after`. A repeated call has no effect."""
        with self._registering() as connection:
            connection.execute(
                "UPDATE deployment SET active = 0, wanted = 'stopped', state = 'absent', "
                "trash = CASE WHEN drop_after IS NULL THEN ?2 ELSE trash END, drop_after = coalesce(drop_after, ?1), "
                'changed = ?3 WHERE "table" = ?4 AND version = ?5',
                (drop_after, trash, self._next_change(), table, version),
            )

    def restore(self, table: TableName, versions: Iterable[int], *, at: float) -> None:
        """Record in one transaction that versions of a table were moved out of the trash.

        Their state becomes `stopped`.
        """
        with self._registering() as connection:
            connection.executemany(
                "UPDATE deployment SET state = 'stopped', wanted = 'stopped', state_since = ?1, drop_after = NULL, "
                "trash = '', changed = ?2 WHERE \"table\" = ?3 AND version = ?4",
                [(at, self._next_change(), table, version) for version in versions],
            )

    def purged(self, table: TableName, version: int, at: float) -> None:
        """Record that the files of a deleted version are gone."""
        with self._registering() as connection:
            connection.execute(
                "UPDATE deployment SET trash = '', purged_at = ?, changed = ? WHERE \"table\" = ? AND version = ?",
                (at, self._next_change(), table, version),
            )

    @contextmanager
    def _registering(self) -> Iterator[sqlite3.Connection]:
        try:
            with self._transaction() as connection:
                yield connection
        finally:
            # The number increases after the commit, so that a list read before the commit is not used again.
            self._generation += 1

    def _serve(self, connection: sqlite3.Connection, table: TableName, version: int | None) -> None:
        change = self._next_change()
        connection.execute(
            'UPDATE deployment SET active = 0, changed = ? WHERE "table" = ? AND active', (change, table)
        )
        if version is None:
            return
        done = connection.execute(
            'UPDATE deployment SET active = 1, changed = ? WHERE "table" = ? AND version = ?', (change, table, version)
        )
        assert done.rowcount == 1, f"{table} v{version} is not in the ledger"


_SERVED_FROM_NOW = """
UPDATE deployment SET served_at = ?1, served_by = ?2, stops_at = NULL, served_before = coalesce(
  (SELECT before.version FROM deployment before WHERE before."table" = ?3 AND before.active), served_before)
WHERE "table" = ?3 AND version = ?4 AND NOT active
"""


_FLAGS = tuple(n for n, name in enumerate(StatementLine._fields) if StatementLine.__annotations__[name] is bool)


def _line(values: tuple[Any, ...]) -> StatementLine:
    found = list(values)
    for n in _FLAGS:
        found[n] = found[n] == 1
    return StatementLine._make(found)


def _only(fields: Mapping[str, object], allowed: tuple[str, ...]) -> None:
    unknown = sorted(set(fields) - set(allowed))
    assert fields and not unknown, f"not among {', '.join(allowed)}: {', '.join(unknown)}"


def cordon(connection: sqlite3.Connection, name: str, at: float | None, by: str) -> bool:
    """Do what `RegistryWrites.cordon_pool` does, in an open transaction."""
    changes = "cordoned_at IS NULL" if at is not None else "cordoned_at IS NOT NULL"
    values = (at, by if at is not None else "", name)
    done = connection.execute(f"UPDATE pool SET cordoned_at = ?, cordoned_by = ? WHERE name = ? AND {changes}", values)
    return done.rowcount == 1


def move_serials(connection: sqlite3.Connection, tables: Iterable[str], act: TableAct) -> None:
    """Advance the serial numbers of tables that `act` changes, within the caller's transaction."""
    connection.executemany(
        'INSERT INTO table_act ("table", serial, what, at) VALUES (?, 1, ?, ?) ON CONFLICT ("table") '
        "DO UPDATE SET serial = serial + 1, what = excluded.what, at = excluded.at",
        [(table, act.what, act.at) for table in tables],
    )


IN_FORCE, WAITING, REPLACED = "in force", "waits", "replaced"


class PolicyReads(LedgerReads):
    """Methods that read recorded policies and unlocks."""

    def policy_in_force(self) -> PolicyRow | None:
        """Return the row of the effective policy; None if none was ever recorded."""
        return self._row(PolicyRow, "SELECT * FROM policy WHERE status = ?", (IN_FORCE,))

    def policy_awaiting_approval(self) -> PolicyRow | None:
        """Return the row of the policy that is waiting for approval; None if there is none."""
        return self._row(PolicyRow, "SELECT * FROM policy WHERE status = ?", (WAITING,))

    def recorded_policy(self) -> Policy | None:
        """Return the effective policy as the planner uses it; None if none was ever recorded."""
        row = self.policy_in_force()
        return policy_of(row) if row else None

    def is_read_only(self) -> bool:
        """True if the effective policy makes the whole environment read-only."""
        sql = "SELECT 1 FROM policy WHERE status = ? AND json_extract(body, '$.read_only')"
        return bool(self._values(sql, (IN_FORCE,)))

    def unlocks(self) -> tuple[Unlock, ...]:
        """Return the last unlock of each actor, even if it has ended by now, sorted by uid."""
        return self._rows(Unlock, "SELECT * FROM unlock ORDER BY uid")


class PolicyWrites(PolicyReads, LedgerWrites):
    """Methods that write recorded policies and unlocks."""

    def put_unlock(self, unlock: Unlock) -> None:
        """Record an unlock. It replaces an earlier one of the same actor."""
        with self._transaction() as connection:
            upsert(connection, "unlock", values_by_column(unlock), key=("uid",))

    def end_unlock(self, uid: int) -> bool:
        """Remove an actor's unlock. Returns False if there was none."""
        with self._transaction() as connection:
            return connection.execute("DELETE FROM unlock WHERE uid = ?", (uid,)).rowcount == 1

    def end_unlocks_before_boot(self, boot: str) -> None:
        """Remove all unlocks from before the machine's boot with the id `boot`."""
        with self._transaction() as connection:
            connection.execute("DELETE FROM unlock WHERE boot <> ?", (boot,))

    def put_policy(self, row: PolicyRow) -> None:
        """Record a policy as effective or waiting. It replaces the previous policy with the same status.

        An effective policy also replaces a waiting policy, and determines whether the environment is protected.
        """
        ended = (IN_FORCE, WAITING) if row.status == IN_FORCE else (WAITING, WAITING)
        with self._transaction() as connection:
            connection.execute("UPDATE policy SET status = ? WHERE status IN (?, ?)", (REPLACED, *ended))
            insert(connection, "policy", values_by_column(row, without=("id",)))
            if row.status == IN_FORCE:
                connection.execute("UPDATE facts SET protected = ?", (policy_of(row).protected,))

    def approve_policy(self, digest: str, *, seen: int, approver: str, at: float) -> PolicyRow:
        """Make the waiting policy effective and return its row.

        Raises Refused if its id is not `seen` or its digest is not `digest`.
        """
        with self._transaction() as connection:
            waiting = self.policy_awaiting_approval()
            if waiting is None or (waiting.id, waiting.digest) != (seen, digest):
                raise Refused(f"no policy {digest} is waiting for approval", remedy="headgate policy show")
            row = replace(waiting, status=IN_FORCE, approver=approver, in_force_at=at)
            connection.execute("UPDATE policy SET status = ? WHERE status = ?", (REPLACED, IN_FORCE))
            connection.execute(
                "UPDATE policy SET status = ?, approver = ?, in_force_at = ? WHERE id = ?",
                (row.status, approver, at, row.id),
            )
            connection.execute("UPDATE facts SET protected = ?", (policy_of(row).protected,))
        return row


def policy_of(row: PolicyRow) -> Policy:
    """Decode the policy in a row."""
    return policy_from_json(row.body)
