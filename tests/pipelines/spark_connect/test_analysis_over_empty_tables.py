"""Spark's own answers: operators, refusals by analyzer, planner and streaming check, equality, and no side effects."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.changes.spark_questions_and_answers import (
    AnalysedColumn,
    AnalysedOperator,
    AnalysedRead,
    AnalysedRevision,
    AnalysedStatement,
    AnalysisAnswer,
    AnalysisQuestion,
)
from core.model.errors import EngineRefused
from core.model.names import TableName
from core.sql.comparison.builtin_functions import BUILTINS
from pipelines.local_pool.connect_server import LocalPool
from pipelines.spark_connect.analysis_over_empty_tables import SparkAnalysis
from pipelines.spark_connect.session import Session

pytestmark = pytest.mark.spark

AGED = "WATERMARK ts DELAY OF INTERVAL 1 MINUTE"
COLUMNS = "(i LONG, k STRING, ts TIMESTAMP, items ARRAY<STRING>)"
TABLES = tuple(
    (TableName(name), f"CREATE TABLE {name} {COLUMNS} USING {kind}")
    for name, kind in (("a", "parquet"), ("b", "json"), ("dim", "parquet"))
)


@pytest.fixture(scope="module")
def analysis(session: Session) -> Iterator[SparkAnalysis]:
    """An analysis next to the shared operating session, cleared at the end."""
    analysis = SparkAnalysis(session)
    yield analysis
    analysis.clear()


def side(select: str) -> AnalysedRevision:
    return AnalysedRevision(select, TABLES)


def opinion(analysis: SparkAnalysis, select: str) -> AnalysedStatement:
    return analysis.ask(AnalysisQuestion(side(select))).new


def test_stateless_statement_has_sources_columns_and_no_operator(analysis: SparkAnalysis) -> None:
    select = "SELECT x.i + 1 AS j, dim.k FROM STREAM a IDENTIFIED BY first AS x JOIN dim ON dim.i = x.i -- STREAM b"
    assert analysis.ask(AnalysisQuestion(side(select))) == AnalysisAnswer(
        "4.2.0",
        AnalysedStatement(
            sources=(AnalysedRead("a", True, "first"), AnalysedRead("dim", False)),
            columns=(AnalysedColumn("j", "bigint", True), AnalysedColumn("k", "string", True)),
        ),
    )


@pytest.mark.sampled
@pytest.mark.parametrize(
    "select, operators",
    [
        (f"SELECT k, count(*) AS c FROM STREAM a {AGED} GROUP BY k, window(ts, '5 minutes')",
         (AnalysedOperator("StateStoreSave", "aggregate", ("k", "window")),)),
        (f"SELECT k, count(*) AS c FROM STREAM a {AGED} AS x GROUP BY k, session_window(x.ts, '5 minutes')",
         (AnalysedOperator("SessionWindowStateStoreSave", "session_window", ("k",)),)),
        (f"SELECT DISTINCT k, ts FROM STREAM a {AGED}",
         (AnalysedOperator("StateStoreSave", "aggregate", ("k", "ts")),)),
        (f"SELECT i, ts FROM STREAM a {AGED} UNION SELECT i, ts FROM STREAM b {AGED}",
         (AnalysedOperator("StateStoreSave", "aggregate", ("i", "ts")),)),
        ("SELECT a.i FROM STREAM a, STREAM b WHERE a.i = b.i AND a.k > b.k",
         (AnalysedOperator("StreamingSymmetricHashJoin", "stream_join", ("i", "i")),)),
        (f"SELECT a.i FROM STREAM a {AGED} LEFT JOIN STREAM b {AGED} ON a.i = b.i AND a.ts = b.ts",
         (AnalysedOperator("StreamingSymmetricHashJoin", "stream_join", ("i", "ts", "i", "ts")),)),
        ("SELECT i FROM STREAM a LIMIT 3", (AnalysedOperator("StreamingGlobalLimit", "limit"),)),
        ("SELECT i, e FROM STREAM a LATERAL VIEW explode(items) AS e WHERE i IN (SELECT i FROM dim)", ()),
        ("WITH q AS (SELECT * FROM STREAM a), r AS (SELECT i FROM q LIMIT 3) SELECT * FROM r",
         (AnalysedOperator("StreamingGlobalLimit", "limit"),)),
    ],
)  # fmt: skip
def test_operators_are_those_of_the_physical_plan(
    analysis: SparkAnalysis, select: str, operators: tuple[AnalysedOperator, ...]
) -> None:
    found = opinion(analysis, select)
    assert (found.refused, found.operators) == (None, operators)


@pytest.mark.sampled
@pytest.mark.parametrize(
    "select, error_class, words",
    [
        ("SELECT nope FROM STREAM a", "UNRESOLVED_COLUMN.WITH_SUGGESTION", "line 1 pos 7"),
        ("SELECT i\nFROM STREAM nope", "TABLE_OR_VIEW_NOT_FOUND", "`nope` cannot be found"),
        ("SELEC i\nFROM a", "PARSE_SYNTAX_ERROR", "(line 2, pos 0)"),
        ("DROP TABLE a", "PARSE_SYNTAX_ERROR", "near 'a'"),
        ("WITH q AS (SELECT 1) INSERT INTO a SELECT * FROM q", "PARSE_SYNTAX_ERROR", "near 'INSERT'"),
        ("SELECT k, count(*) FROM STREAM a GROUP BY k", "STREAMING_OUTPUT_MODE.UNSUPPORTED_OPERATION", "watermark"),
        ("SELECT i FROM STREAM a ORDER BY i", "_LEGACY_ERROR_TEMP_3102", "Sorting is not supported"),
        ("SELECT i, row_number() OVER (PARTITION BY k ORDER BY ts) FROM STREAM a",
         "NON_TIME_WINDOW_NOT_SUPPORTED_IN_STREAMING", "ROW_NUMBER"),
        ("SELECT a.i FROM dim LEFT JOIN STREAM a ON a.i = dim.i", "_LEGACY_ERROR_TEMP_3102", "join"),
        ("SELECT a.i FROM STREAM a JOIN STREAM b ON a.i > b.i", "", "join"),
        ("SELECT i FROM STREAM a WHERE i IN (SELECT i FROM STREAM b)",
         "INVALID_SUBQUERY_EXPRESSION.STREAMING_QUERY", "Streaming query"),
    ],
)  # fmt: skip
def test_refusal_has_sparks_class_and_message(
    analysis: SparkAnalysis, select: str, error_class: str, words: str
) -> None:
    refused = opinion(analysis, select).refused
    assert refused is not None
    assert refused.error_class == error_class
    assert words in refused.message


@pytest.mark.sampled
@pytest.mark.parametrize(
    "old, new, same",
    [
        ("SELECT i FROM STREAM a WHERE i > 0 AND k = 'x'",
         "select x.i from stream a x -- now\nwhere k='x' and 0<i", True),
        ("SELECT i FROM STREAM a WHERE i > 0", "SELECT i FROM STREAM a WHERE i > 1", False),
        ("SELECT i FROM STREAM a", "SELECT i AS j FROM STREAM a", False),
        ("SELECT i FROM STREAM a WHERE k = 'x'", "SELECT i FROM STREAM a WHERE k = 'y'", False),
        # `sameSemantics` alone does not recognize these pairs as equal.
        ("SELECT i FROM STREAM a WHERE i > 0", "WITH q AS (SELECT * FROM STREAM a) SELECT i FROM q WHERE i > 0", True),
        (f"SELECT i, ts FROM STREAM a {AGED}", f"SELECT a.i, a.ts FROM STREAM a {AGED}", True),
        (f"SELECT i, ts FROM STREAM a {AGED}", f"SELECT i, ts FROM STREAM a {AGED.replace('1', '2')}", False),
        # A remaining false negative: Spark draws a new seed for each analysis.
        ("SELECT rand() AS r FROM STREAM a", "SELECT rand() AS r FROM STREAM a", False),
    ],
)  # fmt: skip
def test_same_meaning_is_what_spark_makes_of_both(analysis: SparkAnalysis, old: str, new: str, same: bool) -> None:
    answer = analysis.ask(AnalysisQuestion(side(new), side(old)))
    assert answer.same is same
    assert answer.old is not None and answer.old.refused is None


def test_sides_over_tables_of_different_declarations_are_never_the_same(analysis: SparkAnalysis) -> None:
    other = ((TableName("a"), "CREATE TABLE a (i INT) USING parquet"),)
    answer = analysis.ask(
        AnalysisQuestion(side("SELECT i FROM STREAM a"), AnalysedRevision("SELECT i FROM STREAM a", other))
    )
    assert answer.same is False
    assert answer.old is not None and answer.old.columns == (AnalysedColumn("i", "int", True),)


def test_declaration_that_spark_cannot_make_is_no_opinion(analysis: SparkAnalysis) -> None:
    question = AnalysisQuestion(
        AnalysedRevision("SELECT i FROM STREAM t", ((TableName("t"), "CREATE TABLE t (i INT) USING nowhere"),))
    )
    with pytest.raises(EngineRefused, match="nowhere"):
        analysis.ask(question)


def test_nothing_is_started_and_nothing_is_left(session: Session) -> None:
    # In a separate session, because the names of created objects derive from it.
    analysis = SparkAnalysis(session.another_session(str(uuid.uuid4())))
    before = databases(session)
    analysis.ask(AnalysisQuestion(side("SELECT i FROM STREAM a"), AnalysedRevision("SELECT 1 AS i", ())))
    made = {name: folder for name, folder in databases(session).items() if name not in before}
    assert len(made) == 2
    assert all(folder.is_dir() for folder in made.values())
    assert session.spark.streams.active == []
    analysis.clear()
    assert databases(session) == before
    assert not any(folder.exists() for folder in made.values())


CALL = "('java.io.File', 'createTempFile', 'headgate_analysed', 'x')"


def made(pool: LocalPool) -> list[Path]:
    """Return the files created by a method called in a statement of these tests; the pool is on this machine."""
    return sorted((pool._work / "tmp").glob("headgate_analysed*"))


@pytest.mark.sampled
@pytest.mark.parametrize(
    "select",
    [
        f"SELECT {{name}}{CALL} AS x FROM VALUES (1)",
        f"SELECT i FROM STREAM a JOIN (SELECT {{name}}{CALL} AS j FROM VALUES (1)) AS b ON a.k = b.j",
        f"SELECT i FROM STREAM a WHERE k IN (SELECT {{name}}{CALL} FROM VALUES (1))",
        f"SELECT i FROM STREAM a WHERE EXISTS (SELECT 1 FROM VALUES (1) AS v(c) WHERE {{name}}{CALL} = 'x')",
        f"SELECT i, e FROM STREAM a LATERAL VIEW explode(array({{name}}{CALL})) v AS e",
        f"SELECT {{name}}{CALL} AS x",
    ],
)
@pytest.mark.parametrize("name", ["java_method", "reflect", "try_reflect", "`system`.builtin.Reflect"])
def test_no_java_method_is_called_by_an_analysis_that_was_shown_one(
    analysis: SparkAnalysis, pool: LocalPool, name: str, select: str
) -> None:
    said = opinion(analysis, select.format(name=name))
    assert said.columns, "Spark did not get as far as to call it"
    assert made(pool) == []


def test_a_query_calls_the_method_outside_of_an_analysis(session: Session, pool: LocalPool) -> None:
    session.spark.sql(f"SELECT java_method{CALL} FROM VALUES (1)")._explain_string(mode="extended")
    (file,) = made(pool)
    file.unlink()


def test_every_function_of_the_server_was_reviewed(session: Session) -> None:
    # If a newer Spark has more functions: check what they access, add them to FORBIDDEN if necessary, and then to
    # BUILTINS.
    known = {name for (name,) in session.spark.sql("SHOW SYSTEM FUNCTIONS").collect() if name.isidentifier()}
    assert len(known) > 500
    assert known <= BUILTINS


def test_a_path_instead_of_a_table_is_not_read(analysis: SparkAnalysis, tmp_path: Path) -> None:
    (tmp_path / "notes.json").write_text('{"secret": 1}')
    said = opinion(analysis, f"SELECT * FROM json.`{tmp_path}`")
    assert said.columns == () and said.refused is not None
    assert said.refused.error_class == "TABLE_OR_VIEW_NOT_FOUND"


def databases(session: Session) -> dict[str, Path]:
    """Return the folder of each database of an analysis; other tests share the pool, which is on this machine."""
    found = {}
    for (name,) in session.spark.sql("SHOW DATABASES LIKE 'headgate_analysis*'").collect():
        rows = session.spark.sql(f"DESCRIBE DATABASE {name}").collect()
        found[name] = Path({row.info_name: row.info_value for row in rows}["Location"].removeprefix("file:"))
    return found
