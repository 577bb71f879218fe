"""State, pre and post: the part of a statement that an edit affects."""

import pytest

from core.sql.statement import ParsedStatement
from core.sql.statement_reader import read_statements

AGED = "WATERMARK ts DELAY OF INTERVAL 1 MINUTE"
TOTAL = f"SELECT k, sum(v) AS s FROM STREAM a {AGED} WHERE v > 0 GROUP BY k, window(ts, '5 minutes') HAVING sum(v) > 1"


def read(select: str) -> ParsedStatement:
    (parsed,), problems = read_statements(f"INSERT INTO t {select}", "f.sql")
    assert problems == ()
    return parsed


def changed(old: str, new: str) -> set[str]:
    left, right = read(old), read(new)
    return {part for part in ("canonical", "state", "pre", "post") if getattr(left, part) != getattr(right, part)}


@pytest.mark.parametrize(
    ("find", "put", "parts"),
    [
        ("v > 0", "v >= 0", {"canonical", "pre"}),
        ("STREAM a", "STREAM b", {"canonical", "pre", "state"}),
        ("sum(v)", "max(v)", {"canonical", "state", "post"}),
        ("5 minutes", "9 minutes", {"canonical", "state", "pre"}),
        ("1 MINUTE", "2 MINUTE", {"canonical", "state"}),
        ("> 1", "> 2", {"canonical", "post"}),
        ("AS s", "AS total", {"canonical", "post"}),
        ("sum(v) AS s", "sum(v) * 2 AS s", {"canonical", "post"}),
        ("HAVING sum(v) > 1", "HAVING sum(v) > 1 AND k = 'x'", {"canonical", "pre"}),
        # Spark infers a filter on the key from both conditions, and pushes the filter below the aggregate.
        ("HAVING sum(v) > 1", "HAVING sum(v) > 1 AND sum(v) = k", {"canonical", "state", "pre", "post"}),
        ("STREAM a", "STREAM a WITH (maxFilesPerTrigger=1)", {"canonical"}),
        ("STREAM a", "STREAM a IDENTIFIED BY x", {"canonical"}),
        ("SELECT", "SELECT /* said */", set()),
    ],
)
def test_an_edit_of_an_aggregate_touches_its_part(find: str, put: str, parts: set[str]) -> None:
    assert changed(TOTAL, TOTAL.replace(find, put, 2 if find == "sum(v)" and put == "max(v)" else 1)) == parts


OUTER = f"SELECT k, s FROM (SELECT k, ts, sum(v) AS s FROM STREAM a {AGED} GROUP BY k, ts) WHERE s > 1"


@pytest.mark.parametrize(
    ("find", "put", "parts"),
    [
        ("s > 1", "s > 2", {"canonical", "post"}),
        ("SELECT k, s ", "SELECT k, s * 2 AS s ", {"canonical", "post"}),
        # Spark pushes a filter on a key below the aggregate, and drops unused aggregates.
        ("s > 1", "s > 1 AND k = 'x'", {"canonical", "pre"}),
        ("SELECT k, s ", "SELECT s ", {"canonical", "pre", "post"}),
    ],
)
def test_an_edit_above_an_aggregate_is_post_only_where_spark_leaves_it(find: str, put: str, parts: set[str]) -> None:
    assert changed(OUTER, OUTER.replace(find, put, 1)) == parts


NAMED = f"SELECT k AS n, id AS i, sum(v) AS s, max(w) AS m FROM STREAM a {AGED} GROUP BY k, id, ts"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        # The rest of WHERE or HAVING is pushed below the state, where it refers to another key.
        (f"SELECT n, s, m FROM ({NAMED}) WHERE i > 1", ("k AS n, id AS i", "id AS n, k AS i")),
        (f"{NAMED} HAVING i > 1", ("k AS n, id AS i", "id AS n, k AS i")),
        # Spark keeps only the state of aggregates that are used.
        (f"SELECT n, s FROM ({NAMED})", ("sum(v) AS s, max(w) AS m", "sum(v) AS m, max(w) AS s")),
    ],
)
def test_a_name_that_changes_its_meaning_below_the_state_is_pre(old: str, new: tuple[str, str]) -> None:
    assert "pre" in changed(old, old.replace(*new))


def test_names_above_the_state_are_post() -> None:
    assert changed(NAMED, NAMED.replace("k AS n, id AS i", "id AS n, k AS i")) == {"canonical", "post"}


def test_all_of_a_stateless_statement_is_pre() -> None:
    parsed = read("SELECT i FROM STREAM a WITH (maxFilesPerTrigger=1) WHERE i > 1")
    assert (parsed.state, parsed.pre, parsed.post) == ("", "SELECT i FROM STREAM a AS _t1 WHERE 1 < i", "")


@pytest.mark.parametrize(
    "select",
    [
        "SELECT a.i FROM STREAM a JOIN STREAM b ON a.i = b.i",
        f"SELECT DISTINCT i, ts FROM STREAM a {AGED}",
        "SELECT i FROM STREAM a LIMIT 3",
    ],
)
def test_nothing_above_a_join_a_distinct_or_a_limit_is_post(select: str) -> None:
    # The columns that a join keeps are its state, so that a projection above it changes the state's schema.
    parsed = read(select)
    assert parsed.state and parsed.post == ""


def test_the_order_of_aggregates_is_part_of_the_state() -> None:
    # The buffer's columns are in the order in which the aggregates are written.
    sums = f"SELECT sum(v) AS s, max(v) AS m FROM STREAM a {AGED} GROUP BY ts"
    assert "state" in changed(sums, sums.replace("sum(v) AS s, max(v) AS m", "max(v) AS m, sum(v) AS s"))
