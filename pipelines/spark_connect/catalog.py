"""Registers tables in a pool's catalog, points views at table versions, and optimizes and vacuums tables.

Only VACUUM deletes files. A table is dropped from the catalog only if Spark leaves its files in place.
"""

import os
import re
import secrets
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

from pyspark.sql.connect.session import SparkSession

from core.model.errors import EngineRefused, HeadgateError, PoolUnreachable, TryAgain
from core.model.table_formats import WITHOUT_FILES, is_wider, table_format
from core.ports.spark import CatalogTable, FileView, Pointer, ignore_view
from core.sql.avro_schemas import SchemasByPart
from core.sql.jdbc_tables import copy_of, jdbc_columns, jdbc_options
from core.sql.kafka_topics import row_condition, row_expressions, source_options
from core.sql.postgres_changes import row_columns
from core.sql.statement import TableDdl
from core.text.escaping import backquoted, escape_glob, qualified, quoted_string_literal
from pipelines.spark_connect.call_deadlines import MissedDeadline, remaining
from pipelines.spark_connect.declared_tables import (
    NO_FILES,
    Described,
    described_in_listing,
    path_of,
    read_declared,
    why_other_columns,
    why_other_table,
    without_files,
)
from pipelines.spark_connect.postgres_source import stream_of_changes
from pipelines.spark_connect.session import UNTIMED_S, Session, spark_errors

_OTHER_TABLE = "HEADGATE_OTHER_TABLE"
_LOCATION = re.compile(r"\bLOCATION\b", re.IGNORECASE)
_UNLESS_THERE = re.compile(r"^(\s*CREATE TABLE) IF NOT EXISTS\b", re.IGNORECASE)
_ABSENT = ("TABLE_OR_VIEW_NOT_FOUND", "VIEW_NOT_FOUND", "TABLE_NOT_FOUND")
_THERE = ("TABLE_OR_VIEW_ALREADY_EXISTS", "VIEW_ALREADY_EXISTS")
_NO_CONNECTION = "FAILED_JDBC.CONNECTION"
_NO_AVRO = "AVRO_NOT_LOADED_SQL_FUNCTIONS_UNUSABLE"
"""Error class of a pool without the jar that reads Avro (Spark 4.2.0)."""
_FILES_GONE = "DELTA_PATH_DOES_NOT_EXIST"
"""Delta's error class for a table whose files no longer exist (Delta 4.4.0). Dropping it deletes nothing."""
_WORD = re.compile(r"\w+")


class SparkTables:
    """Implements `core.ports.spark.Tables`. Batch reads use a separate session."""

    def __init__(self, session: Session, reader: Session | None = None) -> None:
        self._session = session
        self._reader = reader
        self._listing = threading.Lock()
        self._known: dict[str, set[str]] = {}
        """The names in each database that has been listed, by the database as it qualifies a name."""
        self._views: dict[str, tuple[TableDdl, SchemasByPart | None]] = {}
        """How each temporary view was created, by its name in the session."""

    def create(self, name: str, ddl: str, *, exists: bool = False, columns: Mapping[str, str] | None = None) -> None:
        """Run a compiled CREATE TABLE IF NOT EXISTS. Raises EngineRefused if the name belongs to another table.

        With `exists`, the location already contains a table with a log. That table is registered without a column list,
        because Delta 4.4.0 rejects a list with comments or with columns that were added later; then its columns are
        compared with the declared ones, as for a name that is already in the catalog. In all other cases the success of
        CREATE TABLE guarantees that the table is as declared. Also raises EngineRefused for a DDL without LOCATION,
        because Spark would then own the files.

        `columns` maps the columns in the table's log to their types. It replaces the types of DESCRIBE, which shows
        VARCHAR columns of a Delta table as string (Delta 4.4.0).
        """
        if not _LOCATION.search(ddl):
            raise EngineRefused(f"{name} has no LOCATION", error_class="HEADGATE_NO_LOCATION")
        if _has_no_files(ddl):
            self._view(name, read_declared(ddl))
            return
        declared = read_declared(ddl) if exists or "PARTITIONED BY" in ddl else None
        placed = declared is not None and not table_format(declared.format).transaction_log
        made = ddl
        if declared is not None:
            made = without_files(ddl, declared) if placed else _registration(name, declared) if exists else ddl
        known = name.lower() in self._names_beside(name)
        if not known and self._made(name, made) and not exists:
            if declared is not None and placed:
                self._place(name, declared.location)
            return
        found = self._described_or_made(name, made)
        found = found if columns is None else replace(found, columns=columns)
        declared = declared or read_declared(ddl)
        if placed and found.location == path_of(declared.location + NO_FILES):
            self._place(name, declared.location)
            return
        if difference := why_other_table(declared, found):
            raise EngineRefused(
                f"{name} {difference}",
                remedy="find out who else uses this pool, or give the environment another naming",
                error_class=_OTHER_TABLE,
            )

    def create_database(self, name: str) -> None:
        self._run(f"CREATE DATABASE IF NOT EXISTS {qualified(name)}")

    def create_over_avro(self, name: str, ddl: str, schemas: SchemasByPart) -> None:
        """Create or replace the view of a table over topics whose messages use these registered schemas."""
        self._view(name, read_declared(ddl), schemas)

    def _view(self, name: str, declared: TableDdl, schemas: SchemasByPart | None = None) -> None:
        """Create or replace a session's temporary view over Kafka topics, a database table, or a database's changes.

        SQL can neither stream a table `USING kafka`, whose source accepts no schema, nor declare the columns of a table
        `USING jdbc`. However, it can read a temporary view of a DataFrame, which lasts as long as the session (Spark
        4.2.0). Spark asks the database for the columns, so this raises EngineRefused if the database does not answer.
        """
        short = name.rpartition(".")[2]
        self._create_view(self._session, short, declared, schemas)
        self._views[short] = declared, schemas

    def create_views_in(self, session: Session, select: str) -> None:
        """Create or replace in another session the temporary views that a statement may read."""
        for short, (declared, schemas) in tuple(self._views.items()):
            if short in select:
                self._create_view(session, short, declared, schemas)

    def _create_view(self, session: Session, short: str, declared: TableDdl, schemas: SchemasByPart | None) -> None:
        spark = session.spark
        format = table_format(declared.format)
        if format.changes:
            rows: Any = stream_of_changes(spark, declared)
            columns = row_columns(declared)
        elif format.database and (copy := copy_of(declared)):
            rows = spark.read.format("delta").load(copy)
            columns = tuple(backquoted(column.name) for column in declared.columns)
        elif format.database:
            rows = _rows_of_database(spark, declared)
            columns = jdbc_columns(declared)
        else:
            parsed, columns = row_expressions(declared, schemas)
            rows = spark.readStream.format("kafka").options(**source_options(declared)).load()
            rows = rows.where(row_condition(declared))
            for step in parsed:
                rows = rows.selectExpr("*", step)
        with _source_errors(declared):
            rows.selectExpr(*columns).createOrReplaceTempView(backquoted(short))

    def copy_rows(self, ddl: str, note: str) -> None:
        """Implement `core.ports.spark.Tables.copy_rows` in a separate session, which is released at the end.

        A copy begun by an agent that was killed may still be running. Delta refuses the later of the two commits,
        because both replace the same files (4.4.0).
        """
        declared = read_declared(ddl)
        session = self._session.another_session(str(uuid.uuid4()), conf=_COPY_CONF)
        try:
            session.attach()
            with _source_errors(declared):
                rows = _rows_of_database(session.spark, declared).selectExpr(*jdbc_columns(declared))
                written = rows.write.format("delta").mode("overwrite").option("overwriteSchema", "true")
                written.option("userMetadata", note).save(copy_of(declared))
        finally:
            with suppress(HeadgateError):
                session.release()

    def create_together(self, tables: Sequence[CatalogTable]) -> frozenset[str]:
        """Create the missing tables that need no comparison with the catalog.

        Return their names, and those of the tables that one listing shows as declared. One request creates all of them.
        On a server that has just started, a quarter of the time is overhead per statement, and a script incurs this
        overhead only once (Spark 4.2.0). Raises EngineRefused at the first table that Spark refuses.
        """
        there = [table for table in tables if table.name.lower() in self._names_beside(table.name)]
        made = self._run_together({table.name: text for table in tables if (text := self._sufficient(table))})
        return made | self._as_declared(there)

    def _as_declared(self, tables: Sequence[CatalogTable]) -> frozenset[str]:
        """Return the names of the tables that the catalog has as declared, as far as a listing shows that.

        An agent that attaches to a running server needs a request for ten tables instead of one for each.
        """
        with spark_errors():
            texts = _listed_texts(self._session.spark, [table.name for table in tables])
        found: set[str] = set()
        for table in tables:
            # `create` reports a DDL that cannot be parsed.
            with suppress(EngineRefused):
                there = described_in_listing(texts.get(table.name.lower(), ""))
                there = there if table.columns is None else replace(there, columns=table.columns)
                if not why_other_table(read_declared(table.ddl), there):
                    found.add(table.name)
        return frozenset(found)

    def _sufficient(self, table: CatalogTable) -> str:
        """Return a CREATE TABLE that succeeds only if the table is as declared; empty if none can guarantee that."""
        if table.name.lower() in self._names_beside(table.name) or not _LOCATION.search(table.ddl):
            return ""
        made = "" if "PARTITIONED BY" in table.ddl or _has_no_files(table.ddl) else table.ddl
        if table.exists:
            made = ""
            # `create` reports a DDL that cannot be parsed.
            with suppress(EngineRefused):
                declared = read_declared(table.ddl)
                if table.columns is not None and not why_other_columns(declared, table.columns):
                    made = _registration(table.name, declared)
        return _UNLESS_THERE.sub(r"\1", made, count=1)

    def _run_together(self, statements: Mapping[str, str]) -> frozenset[str]:
        if not statements:
            return frozenset()
        self._run(f"BEGIN {'; '.join(statements.values())}; END")
        for name in statements:
            self._names_beside(name).add(name.lower())
        return frozenset(statements)

    def _described_or_made(self, name: str, ddl: str) -> Described:
        """Describe a table that was in the catalog; run its CREATE TABLE if another client has dropped it since."""
        try:
            with spark_errors():
                return self._described(name)
        except EngineRefused as error:
            if error.error_class not in _ABSENT:
                raise
        self._run(ddl)
        with spark_errors():
            return self._described(name)

    def _place(self, name: str, location: str) -> None:
        self._run(f"ALTER TABLE {qualified(name)} SET LOCATION {quoted_string_literal(location)}")

    def _made(self, name: str, ddl: str) -> bool:
        """Run CREATE TABLE. Returns False if another client has created the table in the meantime."""
        made = True
        try:
            self._run(_UNLESS_THERE.sub(r"\1", ddl, count=1))
        except EngineRefused as error:
            if error.error_class not in _THERE:
                raise
            made = False
        self._names_beside(name).add(name.lower())
        return made

    def places(self, names: Sequence[str]) -> Mapping[str, str]:
        """Implement `core.ports.spark.Tables.places` with one listing of each database."""
        listed = {database: set(map(str.lower, self._listed(database))) for database in {*map(database_of, names)}}
        return {name: self._place_of(name) for name in names if name.lower() in listed[database_of(name)]}

    def _place_of(self, name: str) -> str:
        try:
            found = self._describe(name)
            if found is not None and (target := _target_of(found)):
                found = self._describe(target)
        except EngineRefused as error:
            if error.error_class != _FILES_GONE:
                raise
            return ""
        return found.location if found is not None else ""

    def has(self, name: str) -> bool:
        """True if the table exists. Asks the server every time, because other clients also create and drop tables."""
        with spark_errors():
            return bool(self._session.spark.catalog.tableExists(qualified(name)))

    def add_columns(self, name: str, columns: tuple[tuple[str, str], ...]) -> None:
        """Add the (name, type) columns that the table lacks."""
        there = {column.lower() for column in self._columns(name)}
        new = [f"{backquoted(column)} {kind}" for column, kind in columns if column.lower() not in there]
        if new:
            self._run(f"ALTER TABLE {qualified(name)} ADD COLUMNS ({', '.join(new)})")

    def widen_columns(self, name: str, columns: tuple[tuple[str, str], ...], allowing: str) -> None:
        """Widen the (name, type) columns whose new type is wider.

        Before that, the table property `allowing` is set to true.
        """
        with spark_errors():
            there = {column.lower(): kind for column, kind in self._session.spark.sql(_rows_of(name)).dtypes}
        wider = [(column, kind) for column, kind in columns if is_wider(kind, there.get(column.lower(), ""))]
        if wider:
            self._run(f"ALTER TABLE {qualified(name)} SET TBLPROPERTIES ({quoted_string_literal(allowing)}='true')")
            types = ", ".join(f"{backquoted(column)} TYPE {kind}" for column, kind in wider)
            self._run(f"ALTER TABLE {qualified(name)} ALTER COLUMN {types}")

    def clone(self, name: str, source: str, version: int, location: str) -> None:
        """Replace an empty table by a shallow clone of one version of a Delta table.

        Does nothing if the table already has rows.
        """
        of, place = f"delta.{backquoted(source)} VERSION AS OF {version}", quoted_string_literal(location)
        try:
            self._run(f"CREATE OR REPLACE TABLE {qualified(name)} SHALLOW CLONE {of} LOCATION {place}")
        except EngineRefused as error:
            if error.error_class != "DELTA_UNSUPPORTED_NON_EMPTY_CLONE":
                raise
        self._names_beside(name).add(name.lower())

    def record_batch(self, location: str, query: str, batch: int) -> None:
        """Append zero rows to a Delta table, so that its log records a query's batch as written.

        A batch that the log already contains is not recorded again.
        """
        with spark_errors():
            record = self._session.spark.sql(f"SELECT * FROM delta.{backquoted(location)} WHERE false").write
            record = record.format("delta").mode("append").option("txnAppId", query)
            record.option("txnVersion", str(batch)).save(location)

    def forget(self, name: str) -> None:
        """Drop a table from the catalog but keep its files. Raises EngineRefused if Spark would delete them."""
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
        self._run(f"DROP TABLE IF EXISTS {qualified(name)}")
        self._names_beside(name).discard(name.lower())

    def point(self, view: str, targets: tuple[str, ...], columns: tuple[str, ...]) -> None:
        """Make a view select these columns from all target tables. An existing view is changed with ALTER VIEW.

        CREATE OR REPLACE would drop the view first, and readers would fail (207 errors in 965 swaps; none with ALTER).
        Raises EngineRefused if the view reads a table in a different folder, because it then belongs to another
        environment on this pool.
        """
        self.swap(((view, targets, columns),))

    def swap(self, pointers: Sequence[Pointer], before: Callable[[str], object] = ignore_view) -> float:
        """Repoint all views in one tight loop. Returns its duration in seconds.

        During the loop, readers may see tables of both releases, but get no errors. All views are checked before the
        first is changed. `before` is called with a view's name just before that view changes.
        """
        for view, targets, _ in pointers:
            if view.lower() in self._names_beside(view) and (found := self._describe(view)) is not None:
                self._refuse_pointer_of_another(view, found, targets[-1])
        began = time.monotonic()
        for pointer in pointers:
            before(pointer[0])
            self._move(pointer)
        return time.monotonic() - began

    def point_together(self, pointers: Sequence[Pointer]) -> frozenset[str]:
        """Create the missing views in one request; return the names of all views that now are as they should be.

        Raises EngineRefused as `create_together` does.
        """
        known = [pointer for pointer in pointers if pointer[0].lower() in self._names_beside(pointer[0])]
        there = self.existing_pointers(known)
        new = [pointer for pointer in pointers if pointer not in known]
        made = self._run_together({pointer[0]: f"CREATE {view_of(pointer)}" for pointer in new})
        return made | {view for view, _, _ in there}

    def existing_pointers(self, pointers: Sequence[Pointer]) -> frozenset[Pointer]:
        """Return the pointers whose view already exists with exactly the SQL that CREATE VIEW would use."""
        with spark_errors():
            return existing_views(self._session.spark, pointers)

    def _move(self, pointer: Pointer) -> None:
        view, body = pointer[0], view_of(pointer)
        known = view.lower() in self._names_beside(view)
        likely, otherwise = ("ALTER", "CREATE") if known else ("CREATE", "ALTER")
        try:
            self._run(f"{likely} {body}")
        except EngineRefused as error:
            # Another client has created or dropped the view in the meantime.
            if error.error_class not in (*_ABSENT, *_THERE) or self.has(view) is (likely == "ALTER"):
                raise
            self._run(f"{otherwise} {body}")
        self._names_beside(view).add(view.lower())

    def _refuse_pointer_of_another(self, view: str, found: Described, target: str) -> None:
        serves = _target_of(found)
        if serves == target:
            return
        theirs, ours = self._describe(serves) if serves else None, self._describe(target)
        if theirs is None or ours is None:
            return
        if os.path.dirname(theirs.folder) != os.path.dirname(ours.folder):
            raise EngineRefused(
                f"{view} points to {serves} at {theirs.location}, which does not belong to this environment",
                remedy="find out who else uses this pool, or give the environment another naming",
                error_class=_OTHER_TABLE,
            )

    def unpoint(self, view: str) -> None:
        self._run(f"DROP VIEW IF EXISTS {qualified(view)}")
        self._names_beside(view).discard(view.lower())

    def read(self, sql: str, limit: int) -> tuple[tuple[str, ...], tuple[tuple[object, ...], ...]]:
        """Return the column names and at most `limit` rows of a batch query.

        Every table in the query is refreshed first, because a session caches the file listing of its first read. A slow
        query is cancelled on the server, where it would go on using cores, and TryAgain is raised shortly before the
        caller's deadline, so that the pool does not count as unresponsive (Spark 4.2.0).
        """
        return self.read_files(sql, limit, ())

    def read_files(
        self, sql: str, limit: int, views: Sequence[FileView], tag: str = ""
    ) -> tuple[tuple[str, ...], tuple[tuple[object, ...], ...]]:
        """Run a query as `read` does, with temporary views over files. The views exist only during the query.

        `cancel_reads` can cancel a query that has a `tag`.
        """
        session = self._reader or self._session
        left = remaining()
        seconds = UNTIMED_S if left is None else max(0.1, min(0.95 * left, left - 0.2))
        try:
            return session.call(seconds, self._read, session, sql, limit, views, tag)
        except MissedDeadline as error:
            summary = f"the query did not end within {seconds:.3g} s"
            raise TryAgain(summary, remedy="request fewer rows, or try again when the pool is less busy") from error

    def cancel_reads(self, tag: str) -> None:
        """Cancel all running reads with this tag on the server."""
        _interrupt(self._reader or self._session, tag)

    def _read(
        self, session: Session, sql: str, limit: int, views: Sequence[FileView], tag: str
    ) -> tuple[tuple[str, ...], tuple[tuple[object, ...], ...]]:
        words = {word.lower() for word in _WORD.findall(sql)}
        tag = tag or f"headgate-{secrets.token_hex(8)}"
        # The tag is added before anything can fail, because removing a missing tag raises an error that hides the first
        # one.
        session.spark.addTag(tag)
        try:
            with spark_errors():
                for name in (each for database in tuple(self._known) or ("",) for each in self._listed(database)):
                    if name.rpartition(".")[2].lower() in words:
                        session.spark.sql(f"REFRESH TABLE {qualified(name)}")
                for view in views:
                    _view_of_files(session, view)
                frame = session.spark.sql(sql).limit(limit)
                rows = frame.collect()
                return tuple(frame.columns), tuple(tuple(row) for row in rows)
        except PoolUnreachable:
            # In another thread, because this thread's deadline has passed.
            threading.Thread(target=_interrupt, args=(session, tag), name="interrupt", daemon=True).start()
            raise
        finally:
            session.spark.removeTag(tag)
            for view in views:
                with suppress(HeadgateError), spark_errors():
                    session.spark.catalog.dropTempView(view.name)

    def _names_beside(self, name: str) -> set[str]:
        """Return the lower-case names of the tables and views in the database of `name`.

        Other clients may have changed them since.
        """
        database = database_of(name)
        with self._listing:
            if database not in self._known:
                self._known[database] = {each.lower() for each in self._listed(database)}
            return self._known[database]

    def _listed(self, database: str) -> list[str]:
        before = f"{database}." if database else ""
        with spark_errors():
            rows = self._session.spark.sql(f"SHOW TABLES{place_in(database)}").collect()
        return [before + str(row["tableName"]) for row in rows if not row["isTemporary"]]

    def _run(self, sql: str) -> None:
        with spark_errors():
            self._session.spark.sql(sql)

    def _columns(self, name: str) -> tuple[str, ...]:
        with spark_errors():
            return tuple(self._session.spark.sql(_rows_of(name)).columns)

    def _describe(self, name: str) -> Described | None:
        try:
            with spark_errors():
                # The existence of the table is checked first, because the server logs a failed DESCRIBE with its stack
                # trace.
                if not self.has(name):
                    return None
                return self._described(name)
        except EngineRefused as error:
            if error.error_class in _ABSENT:
                return None
            raise

    def _described(self, name: str) -> Described:
        rows = self._session.spark.sql(f"DESCRIBE TABLE EXTENDED {qualified(name)}").collect()
        lines = [(str(row["col_name"]), str(row["data_type"])) for row in rows]
        end = next((i for i, (first, _) in enumerate(lines) if not first or first.startswith("# ")), len(lines))
        start = next((i for i, (first, _) in enumerate(lines) if first.startswith("# Detailed Table")), len(lines))
        return Described(dict(lines[:end]), dict(lines[start + 1 :]))


def _rows_of_database(spark: SparkSession, declared: TableDdl) -> Any:
    return spark.read.format("jdbc").options(**jdbc_options(declared)).load()


@contextmanager
def _source_errors(declared: TableDdl) -> Iterator[None]:
    try:
        with spark_errors():
            yield
    except EngineRefused as error:
        if error.error_class == _NO_AVRO:
            error.remedy = "add spark-avro_2.13-4.2.0.jar to the jars of the connector kafka, and restart the pool"
        if error.error_class != _NO_CONNECTION:
            raise
        raise EngineRefused(
            f"the database at {declared.location.partition('#')[0]} does not answer",
            remedy="check that it runs, its address, user and dbname, and ~/.pgpass of the user who runs the pool",
            error_class=_NO_CONNECTION,
        ) from error


def _has_no_files(ddl: str) -> bool:
    return any(f"USING {name}" in ddl for name in WITHOUT_FILES) and read_declared(ddl).format in WITHOUT_FILES


def _registration(name: str, declared: TableDdl) -> str:
    location = quoted_string_literal(declared.location)
    return f"CREATE TABLE IF NOT EXISTS {qualified(name)} USING {declared.format} LOCATION {location}"


def _view_of_files(session: Session, view: FileView) -> None:
    frame: Any
    schema = ", ".join(f"{backquoted(name)} {kind}" for name, kind in view.columns)
    if view.files:
        format = table_format(view.format)
        reader = session.spark.read.format(format.data_files or view.format).schema(schema)
        place = format.place_in(view.folder)
        if all(file.startswith(f"{place}/") for file in view.files):
            reader = reader.option("basePath", place)
        frame = reader.load(list(map(escape_glob, view.files)))
    else:
        frame = session.spark.createDataFrame([], schema)
    frame.createOrReplaceTempView(view.name)


def _rows_of(name: str) -> str:
    return f"SELECT * FROM {qualified(name)}"


def _interrupt(session: Session, tag: str) -> None:
    # If the pool is gone, so is the query.
    with suppress(HeadgateError), spark_errors():
        session.spark.interruptTag(tag)


def view_of(pointer: Pointer) -> str:
    """Return a pointer's view definition, to be prefixed with CREATE or ALTER."""
    return f"VIEW {qualified(pointer[0])} AS {_pointed_rows(pointer)}"


def existing_views(spark: SparkSession, pointers: Sequence[Pointer]) -> frozenset[Pointer]:
    """Return the pointers whose view already exists with exactly the SQL that CREATE VIEW would use.

    Spark 4.2.0 stores the SQL as written.
    """
    texts = _listed_texts(spark, [view for view, _, _ in pointers])
    shown = ((pointer, f"\nView Text: {_pointed_rows(pointer)}\n") for pointer in pointers)
    return frozenset(pointer for pointer, text in shown if text in texts.get(pointer[0].lower(), ""))


def _listed_texts(spark: SparkSession, names: Sequence[str]) -> dict[str, str]:
    """Return what SHOW TABLE EXTENDED says about those of the tables and views that exist, by name in lower case.

    Sends one request for each database. Listing 100 of 200 names takes 0.06 s, and 0.2 to 0.35 s on two busy cores
    (Spark 4.2.0).
    """
    by_database: dict[str, set[str]] = {}
    for name in names:
        by_database.setdefault(database_of(name), set()).add(name.rpartition(".")[2])
    found: dict[str, str] = {}
    for database, each in by_database.items():
        like = quoted_string_literal("|".join(sorted(each)))
        rows = spark.sql(f"SHOW TABLE EXTENDED{place_in(database)} LIKE {like}").collect()
        before = f"{database}." if database else ""
        shown = (row for row in rows if not row["isTemporary"])
        found |= {f"{before}{row['tableName']}".lower(): str(row["information"]) for row in shown}
    return found


def _target_of(view: Described) -> str:
    """Return the name of the last table that a pointer reads; empty for a table."""
    return view.about.get("View Text", "").rpartition(" FROM ")[2].replace("`", "").strip()


def database_of(name: str) -> str:
    """Return the database that qualifies a name, with its catalog; empty for the session's default database."""
    return name.rpartition(".")[0]


def place_in(database: str) -> str:
    """Return the clause of SHOW that names a database; empty for the session's default database."""
    return f" IN {qualified(database)}" if database else ""


def _pointed_rows(pointer: Pointer) -> str:
    _, targets, columns = pointer
    rows = (f"SELECT {', '.join(map(backquoted, columns))} FROM {qualified(target)}" for target in targets)
    return " UNION ALL ".join(rows)


_COPY_CONF = {
    # The files of a log that has a commit every few minutes would otherwise be kept for 30 days (Delta 4.4.0).
    "spark.databricks.delta.properties.defaults.logRetentionDuration": "interval 1 days",
    "spark.sql.files.maxRecordsPerFile": "0",
}
_MAINTENANCE_CONF = {
    # By default RETAIN is silently ignored unless it is 0 (Delta 4.4.0).
    "spark.databricks.delta.vacuum.retentionWindowIgnore.enabled": "false",
    # The pool's setting for streams would limit the size of the compacted files too (Delta 4.4.0).
    "spark.sql.files.maxRecordsPerFile": "0",
}

_MARK = "spark.databricks.delta.commitInfo.userMetadata"


class SparkUpkeep:
    """Implements `core.ports.spark.TableUpkeep`. Every OPTIMIZE or VACUUM runs in a separate session."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._open: dict[str, Session] = {}
        self._lock = threading.Lock()

    def optimize(self, table: str, tag: str) -> None:
        """Compact the small files of a table into large ones.

        `cancel` with the same `tag` cancels the operation.
        """
        self._run(f"OPTIMIZE {_named(table)}", tag)

    def vacuum(self, table: str, retain_h: str, tag: str) -> None:
        """Delete files that no version of the last `retain_h` hours uses.

        If `retain_h` is empty, the retention period of the table applies.
        """
        self._run(f"VACUUM {_named(table)}" + (f" RETAIN {int(retain_h)} HOURS" if retain_h else ""), tag)

    def cancel(self, tag: str) -> None:
        """Cancel the operation with this tag on the server. Does nothing if no such operation is running."""
        with self._lock:
            session = self._open.get(tag)
        if session is not None:
            with spark_errors():
                session.spark.interruptAll()

    def _run(self, sql: str, tag: str) -> None:
        # The tag in the table's log identifies the commit, whatever its timestamp.
        session = self._session.another_session(str(uuid.uuid4()), conf={**_MAINTENANCE_CONF, _MARK: tag})
        with self._lock:
            self._open[tag] = session
        try:
            session.attach()
            with spark_errors():
                session.spark.sql(sql).collect()
        finally:
            with self._lock:
                self._open.pop(tag, None)
            # If the server is gone, so is the session.
            with suppress(HeadgateError):
                session.release()


def _named(table: str) -> str:
    return f"delta.{backquoted(table)}" if table.startswith("/") else qualified(table)
