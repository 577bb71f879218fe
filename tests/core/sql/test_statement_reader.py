"""DML files: what statements read, write and keep, and the Problems of those that cannot be streamed."""

import subprocess
import sys

import pytest

from core.model.problems import Severity
from core.sql.statement import ParsedStatement, Watermark
from core.sql.statement_reader import read_any, read_statements

AGED = "WATERMARK ts DELAY OF INTERVAL 1 MINUTE"


def read(select: str) -> ParsedStatement:
    """Parse one SELECT without Problems."""
    (parsed,), problems = read_statements(f"INSERT INTO target {select}", "dml.sql")
    assert problems == ()
    return parsed


def problems_of(select: str) -> list[str]:
    """Return the Problems of one SELECT that is refused."""
    parsed, problems = read_statements(f"INSERT INTO target {select}", "dml.sql")
    assert parsed == ()
    assert all(problem.remedy and problem.where and problem.where.line for problem in problems)
    return [problem.summary for problem in problems]


@pytest.mark.parametrize(
    ("select", "expected"),
    [
        ("SELECT * FROM STREAM a", "a~"),
        ("select * from Stream(A) as x, B y", "a~ b"),
        ("SELECT stream FROM stream, STREAM a x", "stream a~"),
        ("SELECT * FROM `stream` s JOIN STREAM `a` t ON s.id = t.id", "stream a~"),
        ("SELECT * FROM STREAM stream WHERE stream.stream = 1", "stream~"),
        ("SELECT 'FROM STREAM b' AS x, \"STREAM c\" AS y FROM STREAM a -- STREAM d\n/* FROM STREAM e */", "a~"),
        ("SELECT `from stream b` FROM STREAM a", "a~"),
        ("SELECT s.stream, watermark FROM STREAM a s WHERE stream = 1 AND s.stream > 2", "a~"),
        ("SELECT a, stream b FROM (SELECT 1 AS a, 2 AS stream FROM STREAM c)", "c~"),
        ("SELECT extract(YEAR FROM stream) FROM STREAM a WHERE x IS DISTINCT FROM stream", "a~"),
        ("SELECT trim(BOTH 'x' FROM stream) FROM STREAM a", "a~"),
        ("WITH a AS (SELECT * FROM STREAM a) SELECT * FROM a", "a~"),
        ("WITH a AS (SELECT * FROM STREAM a), B AS (SELECT * FROM A) SELECT * FROM b JOIN c", "a~ c"),
        ("WITH a AS (WITH b AS (SELECT * FROM STREAM x) SELECT * FROM b) SELECT * FROM a JOIN b ON a.i = b.i", "x~ b"),
        ("WITH b AS (SELECT * FROM y) SELECT * FROM (WITH b AS (SELECT * FROM STREAM x) SELECT * FROM b)", "y x~"),
        ("WITH a(p, q) AS (SELECT i, j FROM STREAM x) SELECT p FROM a", "x~"),
        ("SELECT * FROM STREAM a WHERE i IN (SELECT i FROM b) AND EXISTS (SELECT 1 FROM c WHERE c.i = a.i)", "a~ b c"),
        ("SELECT (SELECT max(i) FROM b) AS m, CASE WHEN i IN (SELECT i FROM c) THEN 1 END FROM STREAM a", "b c a~"),
        ("SELECT * FROM STREAM a UNION ALL SELECT * FROM STREAM b UNION ALL SELECT * FROM STREAM c", "a~ b~ c~"),
        ("SELECT * FROM STREAM a LATERAL VIEW explode(items) t AS i LATERAL VIEW OUTER explode(i) u AS j", "a~"),
        ("SELECT * FROM STREAM a, LATERAL explode(a.items) AS t(i)", "a~"),
        ("SELECT * FROM (STREAM a JOIN b ON a.i = b.i) JOIN (c) ON c.i = b.i", "a~ b c"),
        ("SELECT * FROM STREAM a JOIN VALUES (1) AS v(i) ON a.i = v.i CROSS JOIN range(3)", "a~"),
        ("WITH x AS (SELECT * FROM STREAM a) SELECT * FROM x UNION ALL SELECT * FROM STREAM b", "a~ b~"),
        ("(SELECT * FROM STREAM a)", "a~"),
    ],
)
def test_reads_are_found_where_they_are(select: str, expected: str) -> None:
    parsed = read(select)
    assert " ".join(read.table + "~" * read.streaming for read in parsed.reads) == expected
    for each in parsed.reads:
        assert parsed.select[each.start : each.end].strip("`").lower() == each.table


def test_all_clauses_of_a_streaming_read_are_kept() -> None:
    (each,) = read(
        "SELECT * FROM STREAM(orders) WITH ('maxFilesPerTrigger'='1', kafka.group.id = 'x', latestFirst true) "
        "IDENTIFIED BY from_orders WATERMARK to_timestamp(At) AS t DELAY OF INTERVAL 1 MINUTE 30 SECONDS AS o"
    ).reads
    assert each.alias == "o"
    assert each.options == (("maxFilesPerTrigger", "1"), ("kafka.group.id", "x"), ("latestFirst", "true"))
    assert each.source_name == "from_orders"
    assert each.watermark == Watermark("to_timestamp(at) AS t", "1 minute 30 second")


def test_statements_of_a_file_are_read_one_by_one() -> None:
    text = "\ufeff-- first; STREAM\r\nINSERT INTO A SELECT ';' AS x FROM STREAM s;;\r\n\r\n"
    text += "insert into table b\r\nselect y from stream s"
    parsed, problems = read_statements(text, "dml.a.sql")
    assert problems == ()
    assert [(each.writes, each.line, each.select) for each in parsed] == [
        ("a", 2, "SELECT ';' AS x FROM STREAM s"),
        ("b", 4, "select y from stream s"),
    ]


def test_a_wrong_statement_does_not_hide_the_others() -> None:
    text = "INSERT INTO a SELECT 1;\nMERGE INTO x;\nINSERT INTO b SELECT i FROM STREAM s"
    parsed, problems = read_statements(text, "f")
    assert [each.writes for each in parsed] == ["b"]
    assert [problem.where.line for problem in problems if problem.where] == [1, 2]


def test_output_columns_have_their_names() -> None:
    columns = read(
        "SELECT o.Id, amount * 2 AS Twice, st.x, st.y.z, *, o.*, `A b`, count, explode(items) AS (p, q) FROM STREAM t o"
    ).columns
    assert [column.name for column in columns] == ["id", "twice", "x", "z", "*", "*", "a b", "count", "p", "q"]


@pytest.mark.parametrize(
    ("select", "kinds", "keys"),
    [
        ("SELECT i, upper(k) AS k FROM STREAM a JOIN b ON a.i = b.i LATERAL VIEW explode(x) t AS e", [], ()),
        ("SELECT i FROM STREAM a JOIN (SELECT k, max(v) AS v FROM b GROUP BY k) m ON m.k = a.k", [], ()),
        (f"SELECT k, count(*) AS c FROM STREAM a {AGED} GROUP BY k, ts", ["aggregate"], ("k", "ts")),
        (
            f"SELECT window(ts, '5 minutes') AS w, sum(v) AS s FROM STREAM a {AGED} GROUP BY window(ts, '5 minutes')",
            ["window"],
            ("window(ts, '5 minutes')",),
        ),
        (
            f"SELECT k, count(*) AS c FROM STREAM a {AGED} GROUP BY k, session_window(ts, '5 minutes')",
            ["session_window"],
            ("k", "session_window(ts, '5 minutes')"),
        ),
        (f"SELECT DISTINCT k, ts FROM STREAM a {AGED}", ["deduplicate"], ("k", "ts")),
        ("SELECT a.i FROM STREAM a JOIN STREAM b ON a.i = b.i", ["stream_join"], ("_t1.i = _t2.i",)),
        ("SELECT a.i FROM STREAM a, STREAM b WHERE a.i = b.i", ["stream_join"], ("_t1.i = _t2.i",)),
        (
            "WITH x AS (SELECT * FROM STREAM a) SELECT x.i FROM x JOIN (SELECT * FROM STREAM b) y USING (i)",
            ["stream_join"],
            ("i",),
        ),
        ("SELECT i FROM STREAM a LIMIT 3", ["limit"], ()),
        (f"SELECT ts AS t, count(*) AS c FROM STREAM a {AGED} GROUP BY 1", ["aggregate"], ("ts",)),
        (f"SELECT ts AS t, count(*) AS c FROM STREAM a {AGED} GROUP BY ALL", ["aggregate"], ("ts",)),
        (f"SELECT ts AS t, count(*) AS c FROM STREAM a {AGED} GROUP BY t", ["aggregate"], ("t=ts",)),
        (
            f"SELECT x.k, count(*) AS c FROM STREAM a {AGED} x JOIN STREAM b y ON x.i = y.i GROUP BY x.k, x.ts",
            ["stream_join", "aggregate"],
            ("_t1.k", "_t1.ts"),
        ),
    ],
)
def test_state_is_found_from_below(select: str, kinds: list[str], keys: tuple[str, ...]) -> None:
    operators = read(select).operators
    assert [operator.kind for operator in operators] == kinds
    assert (operators[-1].keys if operators else ()) == keys


@pytest.mark.parametrize(
    ("select", "summary"),
    [
        ("SELECT i FROM a", "the statement reads no stream"),
        ("SELECT k, count(*) AS c FROM STREAM a GROUP BY k", "an aggregate over a stream needs a watermark"),
        (f"SELECT k, count(*) AS c FROM STREAM a {AGED} GROUP BY k", "an aggregate over a stream needs a watermark"),
        (f"SELECT count(*) AS c FROM STREAM a {AGED} GROUP BY date(ts)", "an aggregate over a stream needs a"),
        ("SELECT DISTINCT k FROM STREAM a", "DISTINCT over a stream needs a watermark"),
        ("SELECT k FROM STREAM a UNION SELECT k FROM STREAM b", "UNION without ALL over a stream needs a watermark"),
        ("SELECT k FROM STREAM a UNION ALL SELECT k FROM b", "Spark rejects a UNION of a stream and a batch table"),
        ("SELECT k FROM STREAM a EXCEPT SELECT k FROM b", "EXCEPT over a stream needs a watermark"),
        ("SELECT k FROM STREAM a EXCEPT SELECT k FROM STREAM b", "EXCEPT with a stream is not supported"),
        ("SELECT k FROM STREAM a INTERSECT SELECT k FROM b", "INTERSECT with a stream is not supported"),
        ("SELECT k FROM STREAM a ORDER BY k", "ORDER BY cannot be streamed"),
        ("SELECT k FROM STREAM a LIMIT 3 OFFSET 1", "OFFSET cannot be streamed"),
        ("SELECT k, row_number() OVER (PARTITION BY k ORDER BY t) AS r FROM STREAM a", "OVER cannot be streamed"),
        ("SELECT k FROM STREAM a WHERE i IN (SELECT i FROM STREAM b)", "a stream is not allowed in a subquery"),
        ("SELECT k FROM STREAM a WHERE EXISTS (SELECT 1 FROM STREAM b)", "a stream is not allowed in a subquery"),
        (
            "SELECT a.k FROM STREAM a RIGHT JOIN b ON a.i = b.i",
            "Spark rejects a RIGHT JOIN of a stream and a batch table",
        ),
        ("SELECT a.k FROM STREAM a LEFT JOIN STREAM b ON a.i = b.i", "LEFT JOIN of two streams needs a watermark"),
        ("SELECT a.k FROM STREAM a JOIN STREAM b", "a join of two streams needs an equality condition"),
        (
            "SELECT a.k FROM STREAM a JOIN STREAM b ON a.i = b.i OR a.j = b.j",
            "a join of two streams needs an equality condition",
        ),
        ("SELECT a.k FROM STREAM a JOIN STREAM b ON a.i = 1", "a join of two streams needs an equality condition"),
        ("SELECT a.k FROM STREAM a LEFT ANTI JOIN STREAM b ON a.i = b.i", "Spark rejects an anti join of two streams"),
        (f"SELECT a.k FROM STREAM a {AGED} LEFT JOIN STREAM b ON a.i = b.i", "LEFT JOIN of two streams needs a cond"),
        ("SELECT a.k FROM STREAM a JOIN a AS b ON a.i = b.i", "a is read both as a stream and as a table"),
        ("SELECT * FROM STREAM a PIVOT (sum(v) FOR k IN ('x'))", "PIVOT over a stream needs a watermark"),
        ("SELECT k FROM STREAM a WITH (maxFilePerTrigger=1)", "maxFilePerTrigger is not an option of a streaming read"),
        ("SELECT k FROM STREAM d.a", "the table name cannot be qualified with a database or catalog"),
        ("SELECT k FROM STREAM a__v1", "'a__v1' is not a table name"),
        ("SELECT k FROM STREAM `a-b`", "'a-b' is not a table name"),
        ("WITH c AS (SELECT * FROM a) SELECT * FROM STREAM c", "STREAM c names a WITH query"),
        ("SELECT k FROM stream AS a", "Spark reads the word stream here as the keyword STREAM"),
        ("SELECT k FROM STREAM a WATERMARK ts DELAY OF INTERVAL", "this delay cannot be parsed"),
        ("SELECT k FROM STREAM a |> WHERE k = 1", "the pipe syntax |> is not supported"),
        ("SELECT k FORM STREAM a", "the SQL cannot be parsed"),
        ("SELECT k FROM STREAM a.b.c.d", "a table name has at most three parts"),
        ("SELECT k FROM STREAM a..b", "a part of a table name is missing"),
        ("SELECT k FROM STREAM a JOIN IDENTIFIER('b') b ON a.i = b.i", "IDENTIFIER(…) hides a name"),
        ("SELECT k FROM STREAM a JOIN f(1) b ON a.i = b.i", "f is not a built-in table function"),
        ("SELECT :x AS x FROM STREAM a", "the parameter used here has no value"),
        ("SELECT ${x} AS x FROM STREAM a", "${x} is not the name of a variable"),
        ("SELECT k FROM STREAM a IDENTIFIED BY 'x'", "a source name is an identifier, not a string"),
        ("SELECT k FROM STREAM a IDENTIFIED BY x UNION ALL SELECT k FROM STREAM b IDENTIFIED BY x", "two sources are"),
        ("SELECT k FROM STREAM a WATERMARK date(ts) DELAY OF INTERVAL 1 DAY", "the watermark's expression has no name"),
        ("SELECT t FROM STREAM a, LATERAL TABLE(split(k)) AS x(t)", "LATERAL TABLE is not Spark SQL"),
        ("SELECT k FROM STREAM a GROUP BY TUMBLE(ts, INTERVAL '1' DAY)", "TUMBLE is not Spark SQL"),
        ("SELECT k FROM STREAM a JOIN b FOR SYSTEM_TIME AS OF a.ts ON a.i = b.i", "FOR SYSTEM_TIME AS OF cannot be"),
        ("SELECT k FROM STREAM a MATCH_RECOGNIZE (PATTERN (A))", "MATCH_RECOGNIZE is not Spark SQL"),
        ("VALUES (1)", "SELECT is missing after INSERT INTO"),
        ("(a, b) SELECT a, c FROM STREAM x", "the column list differs from the output names of the SELECT"),
        ("PARTITION (d = 1) SELECT a FROM STREAM x", "PARTITION is not allowed after INSERT INTO t"),
    ],
)
def test_texts_that_spark_would_refuse_are_problems(select: str, summary: str) -> None:
    found = problems_of(select)
    assert len(found) == 1 and found[0].startswith(summary), found


@pytest.mark.parametrize(
    ("text", "summary"),
    [
        ("INSERT OVERWRITE t SELECT 1", "INSERT OVERWRITE is not a streaming statement"),
        ("MERGE INTO t USING s ON t.i = s.i WHEN MATCHED THEN DELETE", "MERGE is not a streaming statement"),
        ("SELECT 1", "a dml file contains INSERT INTO … SELECT, not SELECT"),
        ("SET x = 1", "a dml file contains INSERT INTO … SELECT, not SET"),
        ("-- nothing", "the file contains no statement"),
        ("INSERT INTO d.t SELECT i FROM STREAM s", "the table name cannot be qualified with a database or catalog"),
    ],
)
def test_other_statements_are_problems(text: str, summary: str) -> None:
    parsed, (problem,) = read_statements(text, "dml.sql")
    assert parsed == () and problem.summary == summary


@pytest.mark.parametrize(
    ("text", "reads", "writes"),
    [
        ("INSERT OVERWRITE t SELECT i FROM a", "a", "t"),
        ("MERGE INTO t USING a ON t.i = a.i WHEN MATCHED THEN DELETE", "a", "t"),
        (
            "MERGE INTO c.d.t x USING (SELECT i FROM a JOIN b USING (i)) y ON x.i = y.i WHEN NOT MATCHED THEN INSERT *",
            "a b",
            "c.d.t",
        ),
        ("WITH s AS (SELECT i FROM a) MERGE INTO t USING s ON t.i = s.i WHEN MATCHED THEN DELETE", "a", "t"),
        (
            "MERGE INTO t USING a ON t.i = a.i WHEN MATCHED AND a.i IN (SELECT i FROM b)"
            " THEN UPDATE SET k = (SELECT 1 FROM c)",
            "a b c",
            "t",
        ),
        ("CREATE TABLE t USING parquet COMMENT 'AS SELECT' AS WITH a AS (SELECT i FROM b) SELECT i FROM a", "b", "t"),
        ("CREATE OR REPLACE TABLE IF NOT EXISTS t USING parquet SELECT i FROM a", "a", "t"),
        ("SELECT i FROM `2024 a-b`, c.d.e", "2024 a-b c.d.e", ""),
        ("INSERT INTO t PARTITION (p = 1) BY NAME SELECT i FROM a", "a", "t"),
        ("INSERT INTO t VALUES (1)", "", "t"),
    ],
)
def test_every_statement_has_its_reads_and_writes(text: str, reads: str, writes: str) -> None:
    (parsed,), problems = read_any(text, "q.sql")
    assert [problem for problem in problems if problem.severity is Severity.ERROR] == []
    assert (" ".join(read.table for read in parsed.reads), parsed.writes) == (reads, writes)
    assert read_statements(text, "q.sql")[0] == ()


def test_merges_with_different_writes_differ() -> None:
    merge = "MERGE INTO t USING a ON t.i = a.i WHEN MATCHED THEN "
    (deleting,), (updating,) = (read_any(merge + what, "q.sql")[0] for what in ("DELETE", "UPDATE SET *"))
    assert deleting.canonical != updating.canonical and deleting.columns == ()


@pytest.mark.parametrize(
    ("select", "condition"),
    [
        ("SELECT k, count(*) AS c FROM STREAM a GROUP BY k", "STREAMING_OUTPUT_MODE.UNSUPPORTED_OPERATION"),
        ("SELECT k, row_number() OVER (ORDER BY k) AS r FROM STREAM a", "NON_TIME_WINDOW_NOT_SUPPORTED_IN_STREAMING"),
        ("SELECT k FROM STREAM a WHERE i IN (SELECT i FROM STREAM b)", "INVALID_SUBQUERY_EXPRESSION.STREAMING_QUERY"),
    ],
)
def test_a_refusal_names_sparks_error_class(select: str, condition: str) -> None:
    _, (problem,) = read_statements(f"INSERT INTO t {select}", "q.sql")
    assert problem.detail.startswith(f"[{condition}] ")


@pytest.mark.parametrize("text", ["EXECUTE STATEMENT SET BEGIN", "BEGIN STATEMENT SET;"])
def test_a_statement_set_of_another_engine_is_one_problem(text: str) -> None:
    parsed, (problem,) = read_statements(f"{text} INSERT INTO t SELECT i FROM a; END", "q.sql")
    assert parsed == () and "STATEMENT SET is not Spark SQL" in problem.summary


@pytest.mark.parametrize(
    ("text", "summary", "remedy"),
    [
        ("FROM STREAM a GRUOP BY k", "`BY` is not expected here", "did you mean GROUP?"),
        ("FROM STREAM a ORDER k", "`k` is not expected here", "write ORDER BY"),
        ("FROM STREAM a JOIN", "expected table name at `JOIN`", "is missing or misspelt at `JOIN` or before it"),
        ("FROM STREAM a WHERE k =", "an operand is missing at `=`", "is missing or misspelt at `=` or before it"),
        ("FROM STREAM a b 'x\ny' c", "`'x…` is not expected here", "is missing or misspelt at `'x…` or before it"),
    ],
)
def test_a_parse_error_quotes_the_token_and_has_a_remedy(text: str, summary: str, remedy: str) -> None:
    _, (problem,) = read_statements(f"INSERT INTO t SELECT k {text}", "dml.t.sql")
    assert problem.summary == f"the SQL cannot be parsed: {summary}"
    assert problem.remedy.endswith(remedy)


def test_a_problem_quotes_the_text_around_its_position() -> None:
    _, (problem,) = read_statements("INSERT INTO t\nSELECT k\nFROM STREAM a WITH (maxFilesPerTriger=1)", "p/dml.t.sql")
    assert str(problem.where) == "p/dml.t.sql:3:21"
    assert problem.detail == "FROM STREAM a WITH (maxFilesPerTriger=1)\n                    ^"
    assert problem.remedy == "did you mean maxFilesPerTrigger?"


def test_the_caret_is_below_the_position_after_tabs_and_clipped_text() -> None:
    _, (problem,) = read_statements(f"INSERT INTO t\tSELECT k FROM STREAM a WHERE {'x' * 40}\tz", "dml.t.sql")
    quoted, caret = problem.detail.split("\n")
    assert quoted[caret.index("^")] == "z" and quoted.startswith("…")
    assert [sign for sign in caret if sign == "\t"] == ["\t"]


def test_an_open_string_is_reported_where_it_opens() -> None:
    _, (problem,) = read_statements("INSERT INTO t -- it's\nSELECT 'it''s' AS a, 'x FROM STREAM a", "f")
    assert problem.where is not None and (problem.where.line, problem.where.column) == (2, 22)


DEEP = {
    "brackets": "'(' * 20000 + '1' + ')' * 20000",
    "not": "'NOT ' * 20000 + 'a'",
    "case": "'CASE WHEN a THEN ' * 5000 + '1' + ' END' * 5000",
    "queries": "'* FROM (SELECT ' * 5000 + '1' + ')' * 5000",
    "joins": "'* FROM a' + ' JOIN b' * 200",
    "terms": "'a FROM STREAM s WHERE ' + ' AND '.join(['a = 1'] * 5000)",
    "sum": "'+'.join(['a'] * 50000) + ' AS x FROM STREAM s'",
    "unions": "'1 UNION ALL SELECT ' * 5000 + '1'",
    "types": "'CAST(a AS ' + 'ARRAY<' * 500 + 'INT' + '>' * 500 + ')'",
    "fields": "'a' + '.b' * 50000 + ' AS x FROM STREAM s'",
}


@pytest.mark.sampled
@pytest.mark.parametrize("shape", DEEP, ids=str)
def test_deep_nesting_ends_in_a_result_or_a_problem(shape: str) -> None:
    # This runs in a separate process, because the failure that it guards against ends the process without an exception.
    program = (
        "from core.sql.statement_reader import read_statements\n"
        f"parsed, problems = read_statements('INSERT INTO t SELECT ' + {DEEP[shape]}, 'f')\n"
        "assert parsed or problems"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-500:]


def test_select_into_is_refused_at_its_position() -> None:
    found, (problem,) = read_statements("INSERT INTO t SELECT id INTO k FROM STREAM a", "f.sql")
    assert found == () and problem.summary == "SELECT … INTO is not Spark SQL"
    assert problem.where and problem.where.column == 30
