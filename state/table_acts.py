"""Acts on tables: each moves the serial of its table, by which a plan knows what came after it in its scope."""

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass

from core.model.names import TableName
from state.transactions import LedgerReads


@dataclass(frozen=True, slots=True)
class TableAct:
    """What changed the text, the version or the wanted state of tables, by whom and when."""

    what: str
    """For people: `run 7f3a-1 of ana`."""
    at: float


class TableActReads(LedgerReads):
    """Reads of serials."""

    def table_serials(self) -> dict[TableName, int]:
        """Return the serial of every table that was ever acted on."""
        return dict(self._values('SELECT "table", serial FROM table_act'))

    def table_acts(self) -> dict[TableName, TableAct]:
        """Return the last act on every table that was ever acted on."""
        return {
            table: TableAct(what, at) for table, what, at in self._values('SELECT "table", what, at FROM table_act')
        }


def move_serials(connection: sqlite3.Connection, tables: Iterable[str], act: TableAct) -> None:
    """Move the serials of tables, inside the transaction of the act."""
    connection.executemany(
        'INSERT INTO table_act ("table", serial, what, at) VALUES (?, 1, ?, ?) ON CONFLICT ("table") '
        "DO UPDATE SET serial = serial + 1, what = excluded.what, at = excluded.at",
        [(table, act.what, act.at) for table in tables],
    )
