"""Functions that reach outside a query are found everywhere and in any spelling; mere names like them are not."""

import pytest

from core.model.problems import Severity
from core.sql.comparison.builtin_functions import BUILTINS
from core.sql.statement_reader import read_any, read_statements
from core.sql.tokens.forbidden_functions import FORBIDDEN, MOST_ARGUMENTS

JAVA = "reflect('java.io.File', 'createTempFile', 'headgate', 'x')"


def refused(select: str) -> list[str]:
    """Return the names for which a DML text is refused."""
    parsed, problems = read_statements(f"INSERT INTO target\n{select}", "dml.target.sql")
    assert bool(parsed) is not bool(problems)
    return [problem.subject for problem in problems]


@pytest.mark.parametrize("name", sorted(FORBIDDEN))
def test_every_forbidden_function_is_a_problem_with_position_and_remedy(name: str) -> None:
    parsed, (problem,) = read_statements(
        f"INSERT INTO target\nSELECT i,\n  {name}(k, 'a') AS x FROM STREAM a", "dml.sql"
    )
    assert parsed == ()
    assert (str(problem.where), problem.subject) == ("dml.sql:3:3", name)
    assert problem.summary == f"{name} {FORBIDDEN[name]}, which no statement may do"
    assert problem.severity is Severity.ERROR and problem.remedy


@pytest.mark.parametrize(
    "select",
    [
        f"SELECT {JAVA} AS x FROM STREAM a",
        f"SELECT i FROM STREAM a WHERE k = {JAVA}",
        f"SELECT i, (SELECT {JAVA}) AS x FROM STREAM a",
        f"SELECT i FROM STREAM a WHERE EXISTS (SELECT 1 FROM VALUES (1) AS v(c) WHERE {JAVA} = 'x')",
        f"SELECT i FROM STREAM a JOIN VALUES ({JAVA}) AS v(x) ON TRUE",
        f"WITH q AS (SELECT {JAVA} AS j) SELECT i, j FROM STREAM a CROSS JOIN q",
        f"SELECT i, e FROM STREAM a LATERAL VIEW explode(array({JAVA})) v AS e",
        f"SELECT i, e FROM STREAM a, LATERAL explode(array({JAVA})) AS t(e)",
        f"SELECT transform(items, x -> {JAVA}) AS x FROM STREAM a",
        f"SELECT i FROM STREAM a JOIN b TIMESTAMP AS OF (SELECT {JAVA}) ON TRUE",
        *(
            f"SELECT {name}('java.io.File', 'x') AS x FROM STREAM a"
            for name in (
                *("REFLECT", "Reflect ", "reflect\n", "reflect/**/", "reflect -- x\n", "`reflect`", "`Reflect` "),
                *("builtin.reflect", "BUILTIN.Reflect", "system.builtin.reflect", "`system`.`builtin`.`reflect`"),
            )
        ),
    ],
)
def test_a_forbidden_function_is_found_in_any_position_and_spelling(select: str) -> None:
    assert refused(select) == ["reflect"]


@pytest.mark.parametrize(
    "name", ["IDENTIFIER('reflect')", "IDENTIFIER('ref' || 'lect')", "reflect\u00a0", "reflect\u2003", '"reflect"']
)
def test_a_name_hidden_by_its_notation_is_refused(name: str) -> None:
    parsed, problems = read_statements(f"INSERT INTO target SELECT {name}('a', 'b') AS x FROM STREAM a", "dml.sql")
    assert (parsed, bool(problems)) == ((), True)


@pytest.mark.parametrize(
    ("select", "words"),
    [
        # Each text was run on 4.2.0: Spark called the method where sqlglot saw a comment or a string.
        (f"SELECT /* /*+ */ {JAVA} AS i FROM VALUES (1) -- */ i FROM STREAM a", "Spark ends a comment with /*+"),
        (f"SELECT 1 AS i FROM STREAM a /* x\n-- /*+ */ UNION ALL SELECT {JAVA} -- */", "Spark ends a comment with /*+"),
        (f"SELECT /*+ x -- */ '\n */ {JAVA.replace(chr(39), chr(34))} -- ' AS i FROM STREAM a", "a hint with quotes"),
        (f"SELECT /*+ x('*/ ') */ {JAVA.replace(chr(39), chr(34))} AS i -- ' AS i FROM STREAM a", "a hint with quotes"),
    ],
)
def test_comment_that_would_hide_what_spark_reads_is_refused(select: str, words: str) -> None:
    parsed, (problem,) = read_statements(f"INSERT INTO target\n{select}", "dml.sql")
    assert parsed == () and problem.summary.startswith(words)


def test_plain_hint_comment_and_string_are_read() -> None:
    select = "SELECT /*+ BROADCAST(b), foo(1) */ i, '/*+' AS h -- /*+\n/* x /* y */ */ FROM STREAM a JOIN b USING (i)"
    assert refused(select) == []


@pytest.mark.parametrize(
    "select",
    ["SELECT TRANSFORM(i) USING 'touch x' AS (y) FROM STREAM a", "SELECT MAP i USING 'touch x' AS (y) FROM STREAM a"],
)
def test_program_that_a_query_is_piped_through_is_named(select: str) -> None:
    assert "USING" in refused(select)


@pytest.mark.parametrize(
    ("call", "names"),
    [
        ("from_xml(k, 'a INT')", []),
        ("from_xml(k, concat('a', ' INT'))", []),
        ("from_xml(k, 'a INT', map('rowValidationXSDPath', '/etc/passwd'))", ["from_xml"]),
        ("from_avro(k, '\"string\"')", []),
        ("from_avro(k, '\"string\"', map('avroSchemaUrl', 'http://x'))", ["from_avro"]),
        ("schema_of_avro('\"string\"', map('avroSchemaUrl', 'http://x'))", ["schema_of_avro"]),
    ],
)
def test_function_that_reaches_out_by_its_options_is_refused_with_them_only(call: str, names: list[str]) -> None:
    assert refused(f"SELECT {call} AS x FROM STREAM a") == names


@pytest.mark.parametrize(
    "select",
    [
        "SELECT reflect, xpath AS x FROM STREAM a WHERE reflect IN (1, 2)",
        "SELECT 'reflect(1)' AS x FROM STREAM a -- reflect(1)",
        "SELECT r.i FROM STREAM a JOIN VALUES (1) AS reflect(i) ON reflect.i = 1".replace("r.i", "reflect.i"),
        "SELECT a.i FROM STREAM a JOIN b USING (i)",
        "SELECT input_file_name() AS f, raise_error('x') AS r, assert_true(i > 0) AS t, schema_of_xml('<a/>') AS s "
        "FROM STREAM a",
    ],
)
def test_column_string_alias_and_harmless_function_are_no_problem(select: str) -> None:
    assert refused(select) == []


def test_a_text_that_is_only_shown_is_read_in_spite_of_an_error() -> None:
    (parsed,), (problem,) = read_any(f"SELECT {JAVA} AS x FROM a", "q.sql")
    assert [read.table for read in parsed.reads] == ["a"]
    assert (problem.severity, problem.subject) == (Severity.ERROR, "reflect")


def test_every_name_is_a_function_of_spark() -> None:
    assert FORBIDDEN.keys() | MOST_ARGUMENTS.keys() <= BUILTINS
