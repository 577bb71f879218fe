"""Properties over generated statements: canonical text is stable, and no text makes the reader raise."""

from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlglot.dialects.spark import Spark

from core.sql.ddl_reader import read_ddl
from core.sql.statement import ParsedStatement
from core.sql.statement_reader import read_statements

AGED = "WATERMARK ts DELAY OF INTERVAL 1 MINUTE"
STATEMENTS = (
    "INSERT INTO t SELECT o.id , upper ( o.k ) AS k FROM STREAM a o WHERE o.a > 1 AND ( o.b = 2 OR o.c <> 'x' )",
    "INSERT INTO t ( id , n ) WITH d AS ( SELECT * FROM dim ) SELECT o.id , d.n FROM STREAM ( a ) o JOIN d USING ( i )",
    f"INSERT INTO t SELECT k , sum ( v ) AS s FROM STREAM a {AGED} GROUP BY k , window ( ts , '5 minutes' )",
    f"INSERT INTO t SELECT k , max ( v ) AS s FROM STREAM a {AGED} GROUP BY k , ts HAVING max ( v ) > 1 AND k = 'x'",
    # A source's name keeps its case, so the name used here contains no letters.
    f"INSERT INTO t SELECT DISTINCT k , ts FROM STREAM a WITH ( maxFilesPerTrigger = 1 ) IDENTIFIED BY _1 {AGED} AS x",
    "INSERT INTO TABLE t SELECT i FROM STREAM a LATERAL VIEW explode ( q ) e AS i UNION ALL SELECT j FROM STREAM b",
    "INSERT INTO t SELECT CASE WHEN a IN ( SELECT a FROM d ) THEN - 1 END AS x , m [ 'k' ] . f FROM STREAM a",
    "INSERT INTO t SELECT 1 AS x FROM STREAM a ; INSERT INTO u SELECT 1",
)
TABLE = (
    "CREATE TABLE t ( a INT NOT NULL COMMENT 'x' , b STRUCT < c : ARRAY < INT > , d DECIMAL ( 1 , 2 ) > ) "
    "USING parquet OPTIONS ( k = 'v' ) PARTITIONED BY ( a ) LOCATION 'l' TBLPROPERTIES ( 'p' = 'q' )"
)
SPACES = st.sampled_from((" ", "\n", "\r\n\t", " /* STREAM ; ' */ ", " -- FROM STREAM x ' \n"))


def pieces(text: str) -> list[str]:
    """Split a text into the texts of its tokens."""
    return [text[token.start : token.end + 1] for token in Spark().tokenize(text)]


def meaning(text: str) -> list[tuple[object, ...]]:
    """Return the parts of a statement's analysis that must not depend on how the statement is written."""
    parsed, problems = read_statements(text, "f.sql")
    assert parsed or problems
    return [
        (each.writes, each.columns, each.operators, each.canonical, each.state, each.pre, each.post, tables(each))
        for each in parsed
    ]


def tables(parsed: ParsedStatement) -> tuple[tuple[object, ...], ...]:
    return tuple((read.table, read.streaming, read.source_name, read.watermark) for read in parsed.reads)


@given(st.sampled_from(STATEMENTS), st.data())
def test_white_space_comments_and_case_are_irrelevant(statement: str, data: st.DataObject) -> None:
    written = ""
    for piece in pieces(statement):
        change = data.draw(st.sampled_from((str, str.upper, str.lower)))
        written += (piece if piece.startswith("'") else change(piece)) + data.draw(SPACES)
    assert meaning(written) == meaning(statement)


@given(st.sampled_from(STATEMENTS))
def test_canonical_text_is_its_own_canonical_text(statement: str) -> None:
    for parsed in read_statements(statement, "f.sql")[0]:
        (second,), problems = read_statements(f"INSERT INTO t {parsed.canonical}", "f.sql")
        assert problems == () and second.canonical == parsed.canonical


@settings(max_examples=examples(400), deadline=None)
@given(st.sampled_from((*STATEMENTS, TABLE)), st.data())
def test_a_deleted_doubled_or_moved_token_gives_a_result_or_a_problem(statement: str, data: st.DataObject) -> None:
    tokens = pieces(statement)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(tokens) - 1))
        other = data.draw(st.sampled_from(tokens))
        tokens[at : at + 1] = data.draw(st.sampled_from(([], [tokens[at]] * 2, [other], [other, tokens[at]])))
        if not tokens:
            break
    text = " ".join(tokens)
    for parsed, problems in (read_statements(text, "f.sql"), read_ddl(text, "f.sql")):
        assert parsed or problems
        assert all(problem.where and problem.where.line and problem.where.column for problem in problems)


@settings(max_examples=examples(200), deadline=None)
@given(st.sampled_from((*STATEMENTS, TABLE)), st.data())
def test_any_character_anywhere_gives_a_result_or_a_problem(statement: str, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(statement)))
    text = statement[:at] + data.draw(st.text(max_size=3)) + statement[at:]
    for parsed, problems in (read_statements(text, "f.sql"), read_ddl(text, "f.sql")):
        assert parsed or problems
