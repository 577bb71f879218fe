"""Operator commands on statements: stop and start of a table or of one version, ordered by serial.

Only the latest command on each subject is kept (table `word`). A command takes effect only if no later one exists.
"""

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from core.model.names import TableName, query_name, split_query
from core.model.states import WantedState
from state.registry import RegistryWrites, TableAct, move_serials
from state.transactions import MAY_RUN, LedgerReads


class CommandKind(StrEnum):
    """The effect of a command: a stop, or a start by an operator or a run."""

    STOP = "stop"
    START = "start"
    RUN = "run"
    """A start recorded by a run, attributed to whoever applied or retried the run."""


@dataclass(frozen=True, slots=True)
class CommandStamp:
    """Serial number, actor and time of a command.

    Commands of a run have the stamp of the run's start or last retry.
    """

    serial: int
    """Number from one increasing sequence per environment; the command with the higher number wins."""
    actor: str
    at: float


@dataclass(frozen=True, slots=True)
class LatestCommandRow:
    """The latest command on a table or on one of its versions."""

    subject: str
    """The name of a table, for all its versions, or of a query, such as `orders@v2`."""
    wish: str
    """The command, as a `CommandKind`."""
    serial: int
    actor: str
    at: float


NEWEST_SERIAL = "SELECT max((SELECT coalesce(max(serial), 0) FROM word), (SELECT coalesce(max(serial), 0) FROM run))"
"""The highest serial of any command or run; 0 if there is none yet."""

_OF_STOPPED = """FROM deployment d WHERE "table" = ?1 AND NOT external AND drop_after IS NULL
  AND (?2 IS NULL OR version = ?2)
  AND NOT EXISTS (SELECT 1 FROM word WHERE subject = d."table" || '@v' || d.version AND serial > ?3)"""
"""SQL for the versions that a stop with serial ?3 affects: all versions of table ?1, or only version ?2 if not NULL."""

_STANDING_STOP = """SELECT stop.* FROM word stop WHERE stop.wish = 'stop' AND stop.serial > ?3 AND (stop.subject = ?2
  OR stop.subject = ?1 AND NOT EXISTS (
    SELECT 1 FROM word start WHERE start.subject = ?2 AND start.wish <> 'stop' AND start.serial > stop.serial))
  ORDER BY stop.serial DESC LIMIT 1"""
"""SQL for the newest stop of table ?1 or of query ?2 that is later than serial ?3 and that no start has ended.

A start of the table replaces the stop of the table, but not the stop of a version.
"""


class OperatorCommandReads(LedgerReads):
    """Methods that read operator commands."""

    def newest_serial(self) -> int:
        """Return the highest serial of any command or run; 0 if there is none yet."""
        return int(self._values(NEWEST_SERIAL)[0][0])

    def latest_command(self, subject: str) -> LatestCommandRow | None:
        """Return the latest command on exactly this subject, a table or query name; None if there is none."""
        return self._row(LatestCommandRow, "SELECT * FROM word WHERE subject = ?", (subject,))

    def is_started_by_operator(self, table: TableName, version: int) -> bool:
        """True if the latest command on exactly this version is a start by an operator, not by a run."""
        found = self.latest_command(query_name(table, version))
        return found is not None and found.wish == CommandKind.START

    def is_started_since(self, table: TableName, version: int, serial: int) -> bool:
        """True if the latest command on exactly this version is a start with a serial above `serial`."""
        found = self.latest_command(query_name(table, version))
        return found is not None and found.wish != CommandKind.STOP and found.serial > serial

    def command_stamp_of_run(self, run_id: str) -> CommandStamp:
        """Return the serial, actor and time of a run's start or last retry, which are the stamp of its commands."""
        ((serial, actor, at),) = self._values("SELECT serial, actor, started_at FROM run WHERE id = ?", (run_id,))
        return CommandStamp(serial, actor, at)

    def stopped_during(self, run_id: str, table: TableName, version: int) -> LatestCommandRow | None:
        """Return the stop in effect for a version if it is later than a run's start or last retry; None otherwise.

        A stop of the whole table also affects versions that do not exist yet.
        """
        since = self.command_stamp_of_run(run_id).serial
        return self._row(LatestCommandRow, _STANDING_STOP, (table, query_name(table, version), since))


class OperatorCommandWrites(OperatorCommandReads, RegistryWrites):
    """Methods that write operator commands, and in the same transaction their effect on versions."""

    def stop_statements(self, names: Iterable[str], stamp: CommandStamp) -> None:
        """Record an operator's request to stop all versions of tables, or individual versions such as `a@v2`.

        The desired state of these versions becomes `stopped` unless a later command exists. Runs that are open at that
        time also obey the request, even for versions created later, until a later start or a retry of the run.
        """
        with self._registering() as connection:
            for name in names:
                table, version = split_query(name) or (TableName(name), None)
                about = (table, version, stamp.serial)
                _put(connection, name, CommandKind.STOP, stamp)
                wanted = connection.execute(f"SELECT count(*) {_OF_STOPPED} AND wanted = 'running'", about).fetchone()
                act = TableAct(f"a stop by {stamp.actor}", stamp.at)
                move_serials(connection, (table,) if wanted[0] else (), act)
                connection.execute(
                    "UPDATE deployment SET wanted = 'stopped', changed = ?4, state = "
                    f"CASE WHEN state IN ({MAY_RUN}) THEN 'stopping' ELSE state END "
                    f"WHERE id IN (SELECT id {_OF_STOPPED})",
                    (*about, self._next_change()),
                )

    def want_running(self, table: TableName, version: int, stamp: CommandStamp, act: TableAct | None = None) -> bool:
        """Set the desired state of a version to `running`; return False, without changes, if a later stop exists.

        `act` is the operator action that starts the version; if the desired state was `stopped`, the action advances
        the table's serial. `act` is None if a run starts the version.
        """
        name = query_name(table, version)
        with self._registering() as connection:
            if connection.execute(_STANDING_STOP, (table, name, stamp.serial)).fetchone():
                return False
            where = 'WHERE "table" = ? AND version = ?'
            wanted = connection.execute(f"SELECT wanted FROM deployment {where}", (table, version)).fetchone()
            runs = wanted == (WantedState.RUNNING,)
            said = connection.execute("SELECT wish FROM word WHERE subject = ?", (name,)).fetchone()
            # If an operator has already requested a start, the end of a run must not withdraw it.
            by_operator = act is not None or (runs and said == (CommandKind.START,))
            _put(connection, name, CommandKind.START if by_operator else CommandKind.RUN, stamp)
            if act is not None and not runs:
                move_serials(connection, (table,), act)
            if act is None and not runs:
                # `call_off_start` relies on these columns to find a start that was not carried out: an earlier query
                # shows nothing.
                connection.execute(
                    f"UPDATE deployment SET state = 'stopped', query_id = '', run_id = '' {where} "
                    "AND state IN ('stopped', 'failed')",
                    (table, version),
                )
            connection.execute(
                "UPDATE deployment SET wanted = 'running', stops_at = CASE WHEN active THEN NULL ELSE stops_at END, "
                f"changed = ? {where}",
                (self._next_change(), table, version),
            )
            return True

    def end_stop(self, table: TableName, stamp: CommandStamp) -> None:
        """Record a start command on a whole table, which ends a stop of the table but does not start any version."""
        with self._transaction() as connection:
            _put(connection, table, CommandKind.START, stamp)

    def take_back(self, table: TableName, version: int, stamp: CommandStamp, before: LatestCommandRow | None) -> None:
        """Undo a refused start: restore the desired state `stopped` and the previous command on the version.

        Nothing changes if a later command exists.
        """
        name = query_name(table, version)
        with self._registering() as connection:
            mine = connection.execute("DELETE FROM word WHERE subject = ? AND serial = ?", (name, stamp.serial))
            if not mine.rowcount:
                return
            if before is not None:
                _put(connection, name, before.wish, CommandStamp(before.serial, before.actor, before.at))
            connection.execute(
                "UPDATE deployment SET wanted = 'stopped', changed = ? WHERE \"table\" = ? AND version = ?",
                (self._next_change(), table, version),
            )

    def call_off_start(self, table: TableName, version: int, *, cancelled: str = "") -> bool:
        """Withdraw a start that a run recorded but did not carry out; the version's desired state becomes `stopped`.

        Returns False, without changes, if there is no such start. Also returns False if an open run other than
        `cancelled` changes the table, because that run may still start the version. The caller must hold the version's
        lock.
        """
        with self._registering() as connection:
            done = connection.execute(
                """UPDATE deployment SET wanted = 'stopped', changed = ?1 WHERE "table" = ?2 AND version = ?3
                  AND wanted = 'running' AND (state = 'stopping' OR state = 'stopped' AND query_id = '')
                  AND EXISTS (SELECT 1 FROM word WHERE subject = ?4 AND wish = 'run')
                  AND NOT EXISTS (SELECT 1 FROM run_table t JOIN run ON run.id = t.run_id
                    WHERE t."table" = ?2 AND NOT t.reads AND run.ended_at IS NULL AND run.id <> ?5)""",
                (self._next_change(), table, version, query_name(table, version), cancelled),
            )
            return done.rowcount == 1


def _put(connection: sqlite3.Connection, subject: str, wish: str, stamp: CommandStamp) -> None:
    """Store a command as the latest one on its subject, unless a later one exists."""
    connection.execute(
        "INSERT INTO word VALUES (?, ?, ?, ?, ?) ON CONFLICT (subject) DO UPDATE SET wish = excluded.wish, "
        "serial = excluded.serial, actor = excluded.actor, at = excluded.at WHERE excluded.serial > word.serial",
        (subject, wish, stamp.serial, stamp.actor, stamp.at),
    )
