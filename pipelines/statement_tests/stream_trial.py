"""Runs one statement on test rows, in its own tables and checkpoint. Each part of a test case restarts the query."""

import re
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from pyspark.sql.connect.dataframe import DataFrame
from pyspark.sql.connect.plan import SQL

from core.model.errors import EngineRefused
from core.model.names import TableName, query_name
from core.model.table_formats import table_format
from core.ports.spark import BuiltJob, QueryStart, never
from core.project.model import Table
from core.sql.compiler import compile_ddl, compile_select
from core.sql.python_jobs import python_job_of
from core.sql.registered_functions import RegisteredFunction
from core.sql.statement import ParsedStatement, TableDdl
from core.sql.tokens.data_types import element_type, fields_of, key_type
from core.statement_tests.case import Part, Row, TypedColumns
from core.statement_tests.comparison import MOST_FOUND
from core.statement_tests.typed_values import canonical_value
from core.text.escaping import quoted_name
from pipelines.python_jobs.job_builder import JobBuilder
from pipelines.spark_connect.catalog import SparkTables
from pipelines.spark_connect.jar_sessions import StatementQueries
from pipelines.spark_connect.session import Session, spark_errors

_CHAR = re.compile(r"\b(?:var)?char\(\d+\)")


@dataclass(frozen=True, slots=True)
class TrialStatement:
    """A revision of a statement that a trial can run."""

    ddl: TableDdl
    parsed: ParsedStatement
    functions: tuple[RegisteredFunction, ...] = ()
    """The functions in Python and of a jar that the statement calls."""
    file: str = ""
    """Path of the project's file with the code of a job in Python; empty for SQL, and if no file has the code."""
    line: int = 1
    """The line of the file in which the code begins."""

    @property
    def columns(self) -> TypedColumns:
        """The declared columns of the statement's table."""
        return tuple((column.name, column.type) for column in self.ddl.columns)


class StreamTrial:
    """One trial run of a statement.

    The trial's number is a suffix of its table names, so that several trials can share a session.
    """

    def __init__(
        self,
        session: Session,
        folder: Path,
        number: int,
        tables: Mapping[TableName, Table],
        *,
        jobs: JobBuilder,
        queries: StatementQueries,
        cancelled: Callable[[], bool] = never,
    ) -> None:
        """Use tables of this number in a session. Once `cancelled` returns True, the build of a job ends with Busy."""
        self._session = session
        self._jobs = jobs
        self._cancelled = cancelled
        self._stopped = threading.Event()
        self._queries = queries
        self._catalog = SparkTables(session)
        self._folder = folder
        self._number = number
        self._tables = tables
        self._made: set[str] = set()

    def run(self, statement: TrialStatement, part: Part) -> None:
        """Write a part's input rows, and run the statement until it has processed them and stopped.

        The statement also writes rows that are complete once the watermark has advanced. Each part restarts the
        statement from the same checkpoint. Raises EngineRefused, PoolUnreachable, or Busy if `stop` was called while
        the plan of a job was built.
        """
        reads = {read.table for read in statement.parsed.reads}
        if changes := next((read.table for read in statement.parsed.reads if read.takes_changes), ""):
            raise EngineRefused(f"it reads the changes of {changes}, but a test can only provide rows")
        for table in sorted({*reads, *part}):
            self._write_input(table, part.get(table, ()))
        target = self._make(statement.ddl)
        select = compile_select(statement.parsed, {table: self._physical(table) for table in reads})
        start = QueryStart(
            name=self.query(statement),
            select=select,
            target=target,
            format=_written_as(statement.ddl),
            checkpoint=str(self._folder / "checkpoint"),
            trigger="available now",
            partitioned_by=statement.ddl.partitioning,
            functions=statement.functions,
            job=self._built(statement, select) if statement.parsed.in_python else None,
            place=str(self._target(statement.ddl)),
            columns=tuple(name for name, _ in statement.columns),
        )
        query = self._queries.launch(start)
        with spark_errors():
            query.awaitTermination()

    def _built(self, statement: TrialStatement, select: str) -> BuiltJob | None:
        job = python_job_of(select)
        if job is None:
            return None
        # Errors give lines of the code, which are thus those of the file.
        job = replace(job, code="\n" * (statement.line - 1) + job.code)
        return self._jobs.build(
            job,
            name=self.query(statement),
            table=statement.ddl.table,
            columns=statement.columns,
            cancelled=lambda: self._stopped.is_set() or self._cancelled(),
            file=statement.file,
        )

    def query(self, statement: TrialStatement) -> str:
        """Return the name of the trial's query."""
        return query_name(statement.ddl.table, self._number)

    def stop(self, statement: TrialStatement) -> None:
        """Stop the trial's query if it still runs, or the build of its plan."""
        self._stopped.set()
        self._queries.stop(self.query(statement))

    def written_types(self, statement: TrialStatement) -> tuple[tuple[str, str, str], ...]:
        """List columns whose written type differs from the declared one, as (name, declared type, written type).

        The list is empty for a job in Python, whose columns are compared when its plan is built.
        """
        if statement.parsed.in_python:
            return ()
        physical = {}
        for table in {read.table for read in statement.parsed.reads}:
            self._write_input(table, ())
            physical[table] = self._physical(table)
        session = self._queries.register_functions(statement.functions)
        with spark_errors():
            schema = DataFrame(SQL(compile_select(statement.parsed, physical)), session.spark).schema
        written = {field.name.lower(): str(field.dataType.simpleString()) for field in schema.fields}
        found = []
        for name, kind in statement.columns:
            other = written.get(name.lower(), kind)
            if _plain(other) != _plain(kind):
                found.append((name, kind, other))
        return tuple(found)

    def rows(self, statement: TrialStatement) -> tuple[Row, ...]:
        """Return the declared columns of the rows that the statement has written, at most MOST_FOUND + 1 rows."""
        columns = statement.columns
        schema = ", ".join(f"{quoted_name(name)} {stored_type(kind)}" for name, kind in columns)
        with spark_errors():
            reader = self._session.spark.read.schema(schema).format(_written_as(statement.ddl))
            frame = reader.load(str(self._target(statement.ddl)))
            found = frame.select(*(quoted_name(name) for name, _ in columns)).limit(MOST_FOUND + 1).toArrow()
        try:
            values = [
                [canonical_value(value, kind) for value in column.to_pylist()]
                for column, (_, kind) in zip(found.columns, columns, strict=True)
            ]
        except (ValueError, OverflowError) as error:
            raise EngineRefused(f"it wrote a value that cannot be compared: {error}") from error
        return tuple(zip(*values, strict=True))

    def _write_input(self, table: TableName, rows: Iterable[Row]) -> None:
        ddl = self._tables[table].parsed_ddl
        # All fixtures are parquet: rows are read the same way from every format, and parsing of the declared format is
        # not part of the statement.
        ddl = replace(ddl, format="parquet", options=(), properties=())
        place = self._folder / "given" / table
        name = self._physical(table)
        if name not in self._made:
            place.mkdir(parents=True)
            self._catalog.create(name, compile_ddl(ddl, name, str(place)))
            self._made.add(name)
        listed = list(rows)
        if not listed:
            return
        kinds = [(column.name, column.type) for column in ddl.columns]
        schema = ", ".join(f"{quoted_name(each)} {stored_type(kind)}" for each, kind in kinds)
        values = [tuple(spark_value(v, kind) for v, (_, kind) in zip(row, kinds, strict=True)) for row in listed]
        with spark_errors():
            frame = self._session.spark.createDataFrame(values, schema).coalesce(1)
            frame.write.mode("append").format("parquet").partitionBy(*ddl.partitioning).save(str(place))

    def _make(self, ddl: TableDdl) -> str:
        name = f"{ddl.table}__v{self._number}"
        if name in self._made:
            self._catalog.add_columns(name, tuple((column.name, column.type) for column in ddl.columns))
        else:
            self._target(ddl).mkdir(parents=True)
            options = ddl.options if table_format(ddl.format).has_files else ()
            written = replace(ddl, format=_written_as(ddl), options=options)
            self._catalog.create(name, compile_ddl(written, name, str(self._target(ddl))))
            self._made.add(name)
        return name

    def _target(self, ddl: TableDdl) -> Path:
        return self._folder / "written" / ddl.table

    def _physical(self, table: TableName) -> str:
        return f"{table}__given{self._number}"


def stored_type(kind: str) -> str:
    """Return the type with which Spark stores values of a declared type."""
    return _CHAR.sub("string", kind)


def _plain(kind: str) -> str:
    return re.sub(r" collate \w+| not null", "", stored_type(kind)).replace("`", "").replace(" ", "").lower()


def spark_value(value: object, kind: str) -> object:
    """Return a value of `core.statement_tests.typed_values` as `createDataFrame` takes it."""
    if not isinstance(value, tuple):
        return value
    if kind.startswith("array<"):
        return [spark_value(item, element_type(kind)) for item in value]
    if kind.startswith("map<"):
        return {spark_value(k, key_type(kind)): spark_value(v, element_type(kind)) for k, v in value}
    return {name: spark_value(item, each) for item, (name, each) in zip(value, fields_of(kind), strict=True)}


def _written_as(ddl: TableDdl) -> str:
    """Return the file format in which tests store a table's rows.

    It is the format of the table's data files, such as Parquet for Delta, because the tests' server has no connectors.
    """
    return table_format(ddl.format).data_files or ddl.format
