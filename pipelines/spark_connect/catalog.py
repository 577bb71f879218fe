"""The catalog of a pool: tables over files, the views that serve one version of each, and OPTIMIZE and VACUUM.

Nothing here but VACUUM deletes files: a table is dropped from the catalog only if it lies outside the warehouse.
"""

import os
import re
import secrets
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from pyspark.sql.connect.session import SparkSession

from core.model.errors import EngineRefused, HeadgateError, PoolUnreachable, TryAgain
from core.model.table_formats import is_wider, table_format
from core.ports.spark import CatalogTable, FileView, Pointer, unnoticed
from core.sql.statement import TableDdl
from core.text.escaping import quoted_string_literal
from pipelines.spark_connect.call_deadlines import MissedDeadline, remaining
from pipelines.spark_connect.declared_tables import (
    NO_FILES,
    Described,
    path_of,
    read_declared,
    why_other_columns,
    why_other_table,
    without_files,
)
from pipelines.spark_connect.session import UNTIMED_S, Session, spark_errors

_OTHER_TABLE = "HEADGATE_OTHER_TABLE"
_LOCATION = re.compile(r"\bLOCATION\b", re.IGNORECASE)
_UNLESS_THERE = re.compile(r"^(\s*CREATE TABLE) IF NOT EXISTS\b", re.IGNORECASE)
_ABSENT = ("TABLE_OR_VIEW_NOT_FOUND", "VIEW_NOT_FOUND", "TABLE_NOT_FOUND")
_THERE = ("TABLE_OR_VIEW_ALREADY_EXISTS", "VIEW_ALREADY_EXISTS")
_FILES_GONE = "DELTA_PATH_DOES_NOT_EXIST"
"""What Delta says of a table of the catalog whose files are gone: a drop has nothing to delete (4.4.0)."""
_WORD = re.compile(r"\w+")
_PATTERN = re.compile(r"[{}\[\]*?\\]")
"""Letters of a path that Spark takes for a pattern."""


class SparkTables:
    """Implements `core.ports.spark.Tables`; batch reads go through a session of their own."""

    def __init__(self, session: Session, reader: Session | None = None) -> None:
        self._session = session
        self._reader = reader
        self._listing = threading.Lock()
        self._known: set[str] | None = None

    def create(self, name: str, ddl: str, *, exists: bool = False, columns: Mapping[str, str] | None = None) -> None:
        """Run a compiled CREATE TABLE IF NOT EXISTS, and refuse what is there under that name when it is another table.

        Where the table `exists` at its location, and its log has its columns, it is registered without them: a column
        that was added since, or a comment, would be refused (Delta 4.4.0).

        A CREATE TABLE that must not find anything proves by succeeding that the table is as declared: only what is
        there already is described and compared. Refused without LOCATION too, because its files would be Spark's.

        The `columns` of its log count before the described ones: DESCRIBE calls VARCHAR a string (Delta 4.4.0).
        """
        if not _LOCATION.search(ddl):
            raise EngineRefused(f"{name} has no LOCATION", error_class="HEADGATE_NO_LOCATION")
        declared = read_declared(ddl) if exists or "PARTITIONED BY" in ddl else None
        placed = declared is not None and not table_format(declared.format).transaction_log
        made = ddl
        if declared is not None:
            made = without_files(ddl, declared) if placed else _registration(name, declared) if exists else ddl
        if name.lower() in self._names() or not self._made(name, made):
            self._run(made)
        elif not exists:
            if declared is not None and placed:
                self._place(name, declared.location)
            return
        with spark_errors():
            found = self._described(name)
        found = found if columns is None else replace(found, columns=columns)
        declared = declared or read_declared(ddl)
        if placed and found.location == path_of(declared.location + NO_FILES):
            self._place(name, declared.location)
            return
        if difference := why_other_table(declared, found):
            raise EngineRefused(
                f"{name} {difference}",
                remedy="find out who else uses this pool, or give the environment a prefix of its own",
                error_class=_OTHER_TABLE,
            )

    def create_together(self, tables: Sequence[CatalogTable]) -> frozenset[str]:
        """Make in one request what is not there and needs no second look; return the names of what was made.

        A server that has just begun spends a quarter of its time on what surrounds a statement, and a script of them
        has that once (Spark 4.2.0). It ends at the first one that is refused, which raises EngineRefused.
        """
        return self._run_together({table.name: text for table in tables if (text := self._sufficient(table))})

    def _sufficient(self, table: CatalogTable) -> str:
        """Return the statement that proves by succeeding that a table is as declared; empty where none does."""
        if table.name.lower() in self._names() or not _LOCATION.search(table.ddl):
            return ""
        made = "" if "PARTITIONED BY" in table.ddl else table.ddl
        if table.exists:
            made = ""
            # What cannot be read is refused by `create`.
            with suppress(EngineRefused):
                declared = read_declared(table.ddl)
                if table.columns is not None and not why_other_columns(declared, table.columns):
                    made = _registration(table.name, declared)
        return _UNLESS_THERE.sub(r"\1", made, count=1)

    def _run_together(self, statements: Mapping[str, str]) -> frozenset[str]:
        """Run the statements that make tables or views, by name, as one script, and return the names."""
        if not statements:
            return frozenset()
        self._run(f"BEGIN {'; '.join(statements.values())}; END")
        self._names().update(name.lower() for name in statements)
        return frozenset(statements)

    def _place(self, name: str, location: str) -> None:
        self._run(f"ALTER TABLE {quoted(name)} SET LOCATION {quoted_string_literal(location)}")

    def _made(self, name: str, ddl: str) -> bool:
        """Return whether a table was made that was not there: another client may have made it since."""
        made = True
        try:
            self._run(_UNLESS_THERE.sub(r"\1", ddl, count=1))
        except EngineRefused as error:
            if error.error_class not in _THERE:
                raise
            made = False
        self._names().add(name.lower())
        return made

    def has(self, name: str) -> bool:
        """Ask the server: another client may have made the table, or dropped it, since the names were listed."""
        with spark_errors():
            return bool(self._session.spark.catalog.tableExists(quoted(name)))

    def add_columns(self, name: str, columns: tuple[tuple[str, str], ...]) -> None:
        """Add (name, type) columns that are not there yet."""
        there = {column.lower() for column in self._columns(name)}
        new = [f"{quoted(column)} {kind}" for column, kind in columns if column.lower() not in there]
        if new:
            self._run(f"ALTER TABLE {quoted(name)} ADD COLUMNS ({', '.join(new)})")

    def widen_columns(self, name: str, columns: tuple[tuple[str, str], ...], allowing: str) -> None:
        """Widen (name, type) columns to their type where that is a wider one, which a property of the table allows."""
        with spark_errors():
            there = {column.lower(): kind for column, kind in self._session.spark.sql(_rows_of(name)).dtypes}
        wider = [(column, kind) for column, kind in columns if is_wider(kind, there.get(column.lower(), ""))]
        if wider:
            self._run(f"ALTER TABLE {quoted(name)} SET TBLPROPERTIES ({quoted_string_literal(allowing)}='true')")
            types = ", ".join(f"{quoted(column)} TYPE {kind}" for column, kind in wider)
            self._run(f"ALTER TABLE {quoted(name)} ALTER COLUMN {types}")

    def clone(self, name: str, source: str, version: int, location: str) -> None:
        """Make a shallow clone of a Delta table's version, in one commit; one that holds files was made before."""
        of, place = f"delta.{quoted(source)} VERSION AS OF {version}", quoted_string_literal(location)
        try:
            self._run(f"CREATE OR REPLACE TABLE {quoted(name)} SHALLOW CLONE {of} LOCATION {place}")
        except EngineRefused as error:
            if error.error_class != "DELTA_UNSUPPORTED_NON_EMPTY_CLONE":
                raise
        self._names().add(name.lower())

    def record_batch(self, location: str, query: str, batch: int) -> None:
        """Append no row to the Delta table in a folder, as a batch of a query: what it has already it skips."""
        with spark_errors():
            record = self._session.spark.sql(f"SELECT * FROM delta.{quoted(location)} WHERE false").write
            record = record.format("delta").mode("append").option("txnAppId", query)
            record.option("txnVersion", str(batch)).save(location)

    def forget(self, name: str) -> None:
        """Drop from the catalog; files stay. Refused for a table whose files Spark would delete with it."""
        try:
            found = self._describe(name)
        except EngineRefused as error:
            if error.error_class != _FILES_GONE:
                raise
            self._drop(name)
            return
        if found is None:
            return
        if found.about.get("Type", "").upper() != "EXTERNAL":
            raise EngineRefused(
                f"{name} is a {found.about.get('Type', 'table')} of the pool that Headgate did not create; "
                "dropping it would delete its files",
                error_class="HEADGATE_NOT_EXTERNAL",
            )
        self._drop(name)

    def _drop(self, name: str) -> None:
        self._run(f"DROP TABLE IF EXISTS {quoted(name)}")
        self._names().discard(name.lower())

    def point(self, view: str, targets: tuple[str, ...], columns: tuple[str, ...]) -> None:
        """Point the view at these columns of all targets: ALTER VIEW if it exists, else CREATE VIEW.

        CREATE OR REPLACE drops first, and readers see that (207 errors in 965 swaps; with ALTER none). Refused where
        the view serves a table that lies elsewhere: it is the pointer of another environment on this pool.
        """
        self.swap(((view, targets, columns),))

    def swap(self, pointers: Sequence[Pointer], before: Callable[[str], object] = unnoticed) -> float:
        """Point all views in one tight loop, and return its seconds; readers meet both releases meanwhile, no error.

        What could refuse one is looked at before the first is moved; `before` hears of each just before it moves.
        """
        for view, targets, _ in pointers:
            if view.lower() in self._names() and (found := self._describe(view)) is not None:
                self._refuse_pointer_of_another(view, found, targets[-1])
        began = time.monotonic()
        for pointer in pointers:
            before(pointer[0])
            self._move(pointer)
        return time.monotonic() - began

    def point_together(self, pointers: Sequence[Pointer]) -> frozenset[str]:
        """Make in one request the views that are not there, and return their names; raises as `create_together`."""
        new = [pointer for pointer in pointers if pointer[0].lower() not in self._names()]
        return self._run_together({pointer[0]: f"CREATE {view_of(pointer)}" for pointer in new})

    def standing(self, pointers: Sequence[Pointer]) -> frozenset[Pointer]:
        """Return the pointers whose view the catalog has with the very text that they are made with."""
        with spark_errors():
            return standing_views(self._session.spark, pointers)

    def _move(self, pointer: Pointer) -> None:
        view, body = pointer[0], view_of(pointer)
        known = view.lower() in self._names()
        likely, otherwise = ("ALTER", "CREATE") if known else ("CREATE", "ALTER")
        try:
            self._run(f"{likely} {body}")
        except EngineRefused as error:
            # Another client of the catalog has made or dropped it since.
            if error.error_class not in (*_ABSENT, *_THERE) or self.has(view) is (likely == "ALTER"):
                raise
            self._run(f"{otherwise} {body}")
        self._names().add(view.lower())

    def _refuse_pointer_of_another(self, view: str, found: Described, target: str) -> None:
        serves = found.about.get("View Text", "").rpartition(" FROM ")[2].strip("` ")
        if serves == target:
            return
        theirs, ours = self._describe(serves) if serves else None, self._describe(target)
        if theirs is None or ours is None:
            return
        if os.path.dirname(theirs.folder) != os.path.dirname(ours.folder):
            raise EngineRefused(
                f"{view} serves {serves} at {theirs.location}, which is not of this environment",
                remedy="find out who else uses this pool, or give the environment a prefix of its own",
                error_class=_OTHER_TABLE,
            )

    def unpoint(self, view: str) -> None:
        """Drop the view; nothing when it is gone already."""
        self._run(f"DROP VIEW IF EXISTS {quoted(view)}")
        self._names().discard(view.lower())

    def read(self, sql: str, limit: int) -> tuple[tuple[str, ...], tuple[tuple[object, ...], ...]]:
        """Column names and at most `limit` rows of a batch query.

        Each table it names is refreshed first, because a session keeps the file listing of its first read. A query
        that does not end within the caller's deadline raises TryAgain shortly before it, so that it is not taken for a
        pool that is silent, and is ended on the server too: it would go on to use the cores (Spark 4.2.0).
        """
        return self.read_files(sql, limit, ())

    def read_files(
        self, sql: str, limit: int, views: Sequence[FileView], tag: str = ""
    ) -> tuple[tuple[str, ...], tuple[tuple[object, ...], ...]]:
        """Run a query as `read` does, with temporary views over files that exist only for this query.

        Pass `tag` to be able to end the query with `end_reads`.
        """
        session = self._reader or self._session
        left = remaining()
        seconds = UNTIMED_S if left is None else max(0.1, min(0.95 * left, left - 0.2))
        try:
            return session.call(seconds, self._read, session, sql, limit, views, tag)
        except MissedDeadline as error:
            summary = f"the query did not end within {seconds:.3g} s"
            raise TryAgain(summary, remedy="request fewer rows, or try again when the pool is less busy") from error

    def end_reads(self, tag: str) -> None:
        """End the queries that are read under a tag now, on the server too; nothing where there is none."""
        _interrupt(self._reader or self._session, tag)

    def _read(
        self, session: Session, sql: str, limit: int, views: Sequence[FileView], tag: str
    ) -> tuple[tuple[str, ...], tuple[tuple[object, ...], ...]]:
        words = {word.lower() for word in _WORD.findall(sql)}
        tag = tag or f"headgate-{secrets.token_hex(8)}"
        # Before all that may fail: to remove a tag that was not added is an error of its own, and hides the first.
        session.spark.addTag(tag)
        try:
            with spark_errors():
                for row in self._session.spark.sql("SHOW TABLES").collect():
                    if row["tableName"].lower() in words and not row["isTemporary"]:
                        session.spark.sql(f"REFRESH TABLE {quoted(row['tableName'])}")
                for view in views:
                    _view_of_files(session, view)
                frame = session.spark.sql(sql).limit(limit)
                rows = frame.collect()
                return tuple(frame.columns), tuple(tuple(row) for row in rows)
        except PoolUnreachable:
            # In a thread of its own, because this one has no time left.
            threading.Thread(target=_interrupt, args=(session, tag), name="interrupt", daemon=True).start()
            raise
        finally:
            session.spark.removeTag(tag)
            for view in views:
                with suppress(HeadgateError), spark_errors():
                    session.spark.catalog.dropTempView(view.name)

    def _names(self) -> set[str]:
        """Return the tables and views that this connection knows of: asked of the catalog once, since each look costs.

        Only a hint: other clients of the catalog make and drop them too.
        """
        with self._listing:
            if self._known is None:
                with spark_errors():
                    rows = self._session.spark.sql("SHOW TABLES").collect()
                self._known = {str(row["tableName"]).lower() for row in rows if not row["isTemporary"]}
            return self._known

    def _run(self, sql: str) -> None:
        with spark_errors():
            self._session.spark.sql(sql)

    def _columns(self, name: str) -> tuple[str, ...]:
        with spark_errors():
            return tuple(self._session.spark.sql(_rows_of(name)).columns)

    def _describe(self, name: str) -> Described | None:
        """Return what DESCRIBE EXTENDED says, None when there is no such table or view."""
        try:
            with spark_errors():
                # Asked first, because the server logs a failed DESCRIBE with its stack trace.
                if not self.has(name):
                    return None
                return self._described(name)
        except EngineRefused as error:
            if error.error_class in _ABSENT:
                return None
            raise

    def _described(self, name: str) -> Described:
        rows = self._session.spark.sql(f"DESCRIBE TABLE EXTENDED {quoted(name)}").collect()
        lines = [(str(row["col_name"]), str(row["data_type"])) for row in rows]
        end = next((i for i, (first, _) in enumerate(lines) if not first or first.startswith("# ")), len(lines))
        start = next((i for i, (first, _) in enumerate(lines) if first.startswith("# Detailed Table")), len(lines))
        return Described(dict(lines[:end]), dict(lines[start + 1 :]))


def _registration(name: str, declared: TableDdl) -> str:
    location = quoted_string_literal(declared.location)
    return f"CREATE TABLE IF NOT EXISTS {quoted(name)} USING {declared.format} LOCATION {location}"


def _view_of_files(session: Session, view: FileView) -> None:
    frame: Any
    schema = ", ".join(f"{quoted(name)} {kind}" for name, kind in view.columns)
    if view.files:
        format = table_format(view.format)
        reader = session.spark.read.format(format.data_files or view.format).schema(schema)
        place = format.place_in(view.folder)
        if all(file.startswith(f"{place}/") for file in view.files):
            reader = reader.option("basePath", place)
        frame = reader.load([_PATTERN.sub(r"\\\g<0>", file) for file in view.files])
    else:
        frame = session.spark.createDataFrame([], schema)
    frame.createOrReplaceTempView(view.name)


def _rows_of(name: str) -> str:
    return f"SELECT * FROM {quoted(name)}"


def _interrupt(session: Session, tag: str) -> None:
    # A pool that is gone has nothing left to end.
    with suppress(HeadgateError), spark_errors():
        session.spark.interruptTag(tag)


def view_of(pointer: Pointer) -> str:
    """Return what stands behind CREATE or ALTER."""
    return f"VIEW {quoted(pointer[0])} AS {_pointed_rows(pointer)}"


def standing_views(spark: SparkSession, pointers: Sequence[Pointer]) -> frozenset[Pointer]:
    """Return the pointers whose view the catalog has with the very text that they are made with, in one request.

    Spark 4.2.0 keeps that text as it was written, and took 0.2 to 0.35 s to show 100 views on two busy cores.
    """
    views = quoted_string_literal("|".join(sorted({view for view, _, _ in pointers})))
    rows = spark.sql(f"SHOW TABLE EXTENDED LIKE {views}").collect()
    texts = {str(row["tableName"]).lower(): str(row["information"]) for row in rows if not row["isTemporary"]}
    shown = ((pointer, f"\nView Text: {_pointed_rows(pointer)}\n") for pointer in pointers)
    return frozenset(pointer for pointer, text in shown if text in texts.get(pointer[0].lower(), ""))


def quoted(name: str) -> str:
    """Quote a name of the catalog."""
    return "`" + name.replace("`", "``") + "`"


def _pointed_rows(pointer: Pointer) -> str:
    _, targets, columns = pointer
    rows = (f"SELECT {', '.join(map(quoted, columns))} FROM {quoted(target)}" for target in targets)
    return " UNION ALL ".join(rows)


_MAINTENANCE_CONF = {
    # By default RETAIN is ignored unless it is 0, and nothing says so (Delta 4.4.0).
    "spark.databricks.delta.vacuum.retentionWindowIgnore.enabled": "false",
    # What a pool has for its streams would hold the large files small as well (Delta 4.4.0).
    "spark.sql.files.maxRecordsPerFile": "0",
}

_MARK = "spark.databricks.delta.commitInfo.userMetadata"


class SparkUpkeep:
    """Implements `core.ports.spark.TableUpkeep`."""

    def __init__(self, session: Session) -> None:
        """Open nothing yet; `session` is one of the pool's."""
        self._session = session
        self._open: dict[str, Session] = {}
        self._lock = threading.Lock()

    def optimize(self, table: str, tag: str) -> None:
        """Write the small files of a table into large ones."""
        self._run(f"OPTIMIZE {_named(table)}", tag)

    def vacuum(self, table: str, retain_h: str, tag: str) -> None:
        """Delete the files that only versions from before so many hours hold; empty is as the table says."""
        self._run(f"VACUUM {_named(table)}" + (f" RETAIN {int(retain_h)} HOURS" if retain_h else ""), tag)

    def end(self, tag: str) -> None:
        """End what runs under a tag, on the server too; nothing where there is none."""
        with self._lock:
            session = self._open.get(tag)
        if session is not None:
            with spark_errors():
                session.spark.interruptAll()

    def _run(self, sql: str, tag: str) -> None:
        # By this a table's log says whose work a commit was, whatever the clock says.
        session = self._session.beside(str(uuid.uuid4()), conf={**_MAINTENANCE_CONF, _MARK: tag})
        with self._lock:
            self._open[tag] = session
        try:
            session.attach()
            with spark_errors():
                session.spark.sql(sql).collect()
        finally:
            with self._lock:
                self._open.pop(tag, None)
            # A server that is gone has nothing left to release.
            with suppress(HeadgateError):
                session.release()


def _named(table: str) -> str:
    return f"delta.{quoted(table)}" if table.startswith("/") else quoted(table)
