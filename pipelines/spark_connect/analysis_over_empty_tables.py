"""Lets Spark analyse statements over empty tables, in scratch databases and a separate session."""

import threading
import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from pyspark.errors import AnalysisException

from core.changes.spark_questions_and_answers import (
    AnalysedColumn,
    AnalysedRevision,
    AnalysedStatement,
    AnalysisAnswer,
    AnalysisQuestion,
    AnalysisRefusal,
)
from core.model.errors import EngineRefused, SparkFailure, TryAgain
from core.model.names import TableName
from core.model.table_formats import table_format
from core.sql.compiler import compile_ddl
from core.sql.ddl_reader import read_ddl
from pipelines.spark_connect import call_deadlines
from pipelines.spark_connect.error_translation import MaybeStopped, SessionLost, error_class, first_line
from pipelines.spark_connect.explain_output import (
    exception_in,
    normalized_plan,
    plans_of_explain,
    refusal_of,
    stateful_operators_of,
    tables_read_by,
)
from pipelines.spark_connect.python_functions import PythonFunctions
from pipelines.spark_connect.session import UNTIMED_S, Session, spark_errors

T = TypeVar("T")
Tables = tuple[tuple[TableName, str], ...]

_CONF: dict[str, str | int | bool] = {
    # By default, Spark truncates plans after 25 columns ("… 5 more fields"), and truncated plans cannot be compared.
    "spark.sql.debug.maxToStringFields": "1000000",
    # This rule evaluates a SELECT from VALUES, so an EXPLAIN could call Java methods. Without the rule, Spark 4.2.0
    # calls no Java method while it analyses and optimises, except for a query in TIMESTAMP AS OF, which no setting
    # prevents. Temporary functions of the same names do not help, because `builtin.reflect` bypasses them (all tried).
    "spark.sql.optimizer.excludedRules": "org.apache.spark.sql.catalyst.optimizer.ConvertToLocalRelation",
    # With the default, Spark would open a path used as a table to read its columns.
    "spark.sql.runSQLOnFiles": "false",
}


class ScratchDatabases:
    """Scratch databases with a common name prefix. Databases left behind by a killed agent are dropped first."""

    def __init__(self, session: Session, prefix: str) -> None:
        self._session = session
        self._spark = session.spark
        self._prefix = prefix
        self._database_by_tables: dict[Tables, str] = {}
        self._folder_by_database: dict[str, str] = {}
        self._checks = 0
        self._functions = PythonFunctions(session)
        session.attach()
        session.spark.conf._set_all(configs=_CONF, silent=False)
        self._drop()

    def answer(self, question: AnalysisQuestion) -> AnalysisAnswer:
        """Analyse one or two revisions of a statement. Raises EngineRefused if an input table cannot be created."""
        engine = self._spark.version
        new, frame, plan = self._look(question.new)
        if question.old is None:
            return AnalysisAnswer(engine, new)
        old, old_frame, old_plan = self._look(question.old)
        same = False
        if frame is not None and old_frame is not None and question.new.tables == question.old.tables:
            # `sameSemantics` compares analysed plans. It is False, even for a statement and itself, if the statement
            # has a WATERMARK (a random id), a WITH or a rand() (run on 4.2.0). In the optimised plan, WITH is inlined,
            # and ids can be normalized.
            same = (bool(plan) and plan == old_plan) or frame.sameSemantics(old_frame)
        return AnalysisAnswer(engine, new, old, same)

    def leave(self) -> None:
        """Disconnect without dropping the databases, because the server has lost the session."""
        self._session.close()

    def close(self) -> None:
        """Drop the databases and their folders, and release the session on the server."""
        self._drop()
        self._session.release()

    def _look(self, side: AnalysedRevision) -> tuple[AnalysedStatement, Any, str]:
        database = self._database(side.tables)
        self._spark.sql(f"USE {database}")
        try:
            with spark_errors():
                # Without their code, which may be that of a plan that nobody has reviewed.
                self._functions.register([replace(each, code="") for each in side.functions])
                # Parentheses admit only a query; without them, a command would be executed at once. Dropping a
                # column that does not exist makes Spark explain the analysed plan. It would take the parsed plan for a
                # batch if WITH contains a stream, and fail (seen on 4.2.0).
                frame: Any = self._spark.sql(f"SELECT * FROM (\n{side.select}\n)").drop("")
                columns = tuple(
                    AnalysedColumn(f.name, f.dataType.simpleString(), f.nullable) for f in frame.schema.fields
                )
                parts = plans_of_explain(frame._explain_string(mode="extended"))
        except MaybeStopped:
            # A fault of the server, not of the statement.
            raise
        except EngineRefused as error:
            return AnalysedStatement(refused=refusal_of(error.summary, error.error_class)), None, ""
        analysed, physical = parts.get("Analyzed", ""), parts.get("Physical", "")
        failure = exception_in(physical)
        if failure:
            refused: AnalysisRefusal | None = refusal_of(first_line(failure), error_class(failure))
        else:
            refused = self._check(frame, database)
        statement = AnalysedStatement(
            tables_read_by(analysed, database), columns, stateful_operators_of(physical), refused
        )
        return statement, frame, normalized_plan(parts.get("Optimized", "")) if refused is None else ""

    def _check(self, frame: Any, database: str) -> AnalysisRefusal | None:
        """Return Spark's refusal to stream a DataFrame in append mode; None if Spark accepts it.

        Spark checks this only when a query starts. The start therefore uses two mutually exclusive options, which Spark
        rejects after the check and before the query exists (seen on Spark 4.2.0). If a query starts nevertheless, it is
        stopped.
        """
        self._checks += 1
        writer = frame.writeStream.format("noop").outputMode("append")
        writer = writer.option("checkpointLocation", f"{self._folder(database)}/_check_{self._checks}")
        try:
            with spark_errors():
                writer.option("asyncProgressTrackingEnabled", "true").trigger(once=True).start().stop()
        except EngineRefused as error:
            if error.failure is SparkFailure.EXCLUSIVE_OPTIONS:
                return None
            if not isinstance(error.__cause__, AnalysisException):
                # Not a fault of the statement: for example, a folder cannot be written.
                raise
            return refusal_of(error.summary, error.error_class)
        return None

    def _database(self, tables: Tables) -> str:
        if tables not in self._database_by_tables:
            database = f"{self._prefix}_{len(self._database_by_tables)}"
            self._spark.sql(f"CREATE DATABASE {database}")
            self._spark.sql(f"USE {database}")
            for name, text in tables:
                self._make(name, text)
            self._database_by_tables[tables] = database
        return self._database_by_tables[tables]

    def _make(self, name: TableName, text: str) -> None:
        ddl, problems = read_ddl(text, f"ddl.{name}.sql")
        if ddl is None:
            summary = problems[0].summary if problems else "it declares no table"
            raise EngineRefused(f"the declaration of {name} cannot be read: {summary}", remedy="correct it")
        if not table_format(ddl.format).has_files:
            ddl = replace(ddl, format=table_format(ddl.format).data_files, options=())
        self._spark.sql(compile_ddl(ddl, str(name), ""))

    def _folder(self, database: str) -> str:
        if database not in self._folder_by_database:
            rows = self._spark.sql(f"DESCRIBE DATABASE {database}").collect()
            about = {str(row.info_name): str(row.info_value) for row in rows}
            self._folder_by_database[database] = about["Location"]
        return self._folder_by_database[database]

    def _drop(self) -> None:
        for row in self._spark.sql(f"SHOW DATABASES LIKE '{self._prefix}*'").collect():
            self._spark.sql(f"DROP DATABASE IF EXISTS {row[0]} CASCADE")
        self._database_by_tables = {}


class SparkAnalysis:
    """Implements `core.ports.spark.Analysis`. Answers one question at a time, in a separate session."""

    def __init__(self, session: Session) -> None:
        """Prepare the analysis. Nothing is sent to Spark before the first question."""
        self._operating = session
        name = uuid.uuid5(uuid.NAMESPACE_OID, f"{session.session_id}/analysis")
        self._prefix = f"headgate_analysis_{name.hex[:12]}"
        self._scratch: ScratchDatabases | None = None
        self._lock = threading.Lock()

    def engine(self) -> str:
        """Return Spark's version, requested only once."""
        with spark_errors():
            return str(self._operating.spark.version)

    def ask(self, question: AnalysisQuestion) -> AnalysisAnswer:
        """Have Spark analyse a statement. Raises EngineRefused if a table cannot be created.

        A slow analysis raises TryAgain shortly before the caller's deadline, so that the pool does not count as
        unresponsive, and statements can still be started and stopped. The scratch tables are kept for the next
        question.
        """
        return self._alone(lambda: self._opened().answer(question))

    def clear(self) -> None:
        """Drop all scratch databases."""
        if self._scratch is not None:
            self._alone(self._close)

    def _alone(self, act: Callable[[], T]) -> T:
        left = call_deadlines.remaining()
        seconds = UNTIMED_S if left is None else max(0.1, min(0.95 * left, left - 0.2))
        try:
            return call_deadlines.call(seconds, self._locked, act)
        except (call_deadlines.MissedDeadline, SessionLost) as error:
            # The analysis session is lost, not the operating one.
            summary = f"Spark did not analyse the statement: {error.summary}"
            raise TryAgain(summary, remedy="try again when the pool is less busy") from error

    def _locked(self, act: Callable[[], T]) -> T:
        if not self._lock.acquire(timeout=call_deadlines.remaining() or 0):
            raise TryAgain("Spark is busy with other analysis requests", remedy="try again in a moment")
        try:
            with spark_errors():
                return act()
        except SessionLost:
            lost, self._scratch = self._scratch, None
            if lost is not None:
                lost.leave()
            raise
        finally:
            self._lock.release()

    def _opened(self) -> ScratchDatabases:
        if self._scratch is None:
            # A temporary session: whatever Spark caches for its questions is released with it.
            self._scratch = ScratchDatabases(self._operating.another_session(str(uuid.uuid4())), self._prefix)
        return self._scratch

    def _close(self) -> None:
        scratch, self._scratch = self._scratch, None
        if scratch is not None:
            scratch.close()
