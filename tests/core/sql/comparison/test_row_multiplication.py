"""Edits after which the same input may yield more rows."""

import pytest

from core.model.names import TableName as T
from core.sql.comparison.row_multiplication import row_multipliers
from core.sql.statement import ParsedStatement
from core.sql.statement_reader import read_any

COLUMNS = {T("s"): ("id", "k", "l"), T("d"): ("id", "n")}


def parsed(text: str) -> ParsedStatement:
    found, problems = read_any(text, "")
    assert found, problems
    return found[0]


def multipliers(old: str, new: str) -> list[tuple[str, str, str, frozenset[str]]]:
    found = row_multipliers(parsed(old), parsed(new), COLUMNS)
    return [(each.edit, each.detail, each.table, each.equated) for each in found]


PLAIN = "SELECT s.id FROM STREAM s"


@pytest.mark.parametrize(
    ("join", "detail", "equated"),
    [
        ("JOIN d ON d.id IN (s.id, 1)", "d ON d.id IN (s.id, 1)", ""),
        ("JOIN d ON d.id = s.id OR d.n = s.k", "d ON (s.id = d.id) OR (s.k = d.n)", ""),
        ("JOIN d ON d.id >= s.id", "d ON s.id <= d.id", ""),
        ("CROSS JOIN d", "d without condition", ""),
        ("LEFT JOIN d ON s.k = d.n", "d ON s.k = d.n", "n"),
        ("JOIN d ON s.id = d.id", "d ON s.id = d.id", "id"),
        ("JOIN d ON k = n", "d ON k = n", "n"),
        ("JOIN d USING (id)", "d ON USING id", "id"),
        (", d WHERE s.id = d.id", "d ON s.id = d.id", "id"),
    ],
)
def test_a_join_has_its_condition_and_its_equated_columns(join: str, detail: str, equated: str) -> None:
    ((edit, said, table, columns),) = multipliers(PLAIN, f"{PLAIN} {join}")
    assert (edit, table, columns) == ("join added", "d", frozenset(filter(None, [equated])))
    assert said == detail


@pytest.mark.parametrize(
    "text",
    [
        f"{PLAIN} LEFT SEMI JOIN d ON d.id >= s.id",
        f"{PLAIN} JOIN (SELECT DISTINCT id FROM d) AS known ON known.id = s.id",
        f"{PLAIN} JOIN (SELECT id, count(*) AS c FROM d GROUP BY id) AS known ON known.id = s.id",
        f"{PLAIN} CROSS JOIN (SELECT max(n) AS m FROM d) AS one",
        f"{PLAIN} WHERE s.id > 3",
        "SELECT DISTINCT s.id FROM STREAM s",
    ],
)
def test_a_join_with_at_most_one_match_multiplies_no_rows(text: str) -> None:
    assert multipliers(PLAIN, text) == []
    assert multipliers(text, text) == []


def test_a_table_that_is_read_twice_is_called_as_in_the_file() -> None:
    once = f"{PLAIN} JOIN d AS p ON p.id = s.id"
    ((_, detail, table, _),) = multipliers(once, f"{once} JOIN d AS q ON q.id IN (s.id, 1)")
    assert (detail, table) == ("d AS q ON q.id IN (s.id, 1)", "d")


def test_only_a_weaker_join_condition_may_multiply_rows() -> None:
    one, two = f"{PLAIN} JOIN d ON d.id = s.id", f"{PLAIN} JOIN d ON d.id = s.id AND d.n = s.k"
    assert multipliers(one, two) == []
    ((edit, *_),) = multipliers(two, one)
    assert edit == "join changed"


def test_a_join_with_a_table_is_decided_by_the_rows_of_the_table() -> None:
    ((_, _, table, equated),) = multipliers(PLAIN, "SELECT s.id FROM d JOIN STREAM s ON d.id = s.id")
    assert (table, equated) == ("d", {"id"})


@pytest.mark.parametrize(
    ("old", "new", "edit"),
    [
        (PLAIN, f"{PLAIN} LATERAL VIEW explode(s.l) AS x", "lateral view added"),
        (PLAIN, "SELECT s.id, explode(s.l) AS x FROM STREAM s", "lateral view added"),
        (f"{PLAIN} LATERAL VIEW explode(s.l) AS x", f"{PLAIN} LATERAL VIEW explode(s.k) AS x", "lateral view changed"),
        (PLAIN, f"{PLAIN} UNION ALL SELECT id FROM STREAM s", "UNION branch added"),
        ("SELECT DISTINCT id FROM STREAM s", "SELECT id FROM STREAM s", "DISTINCT removed"),
        (f"{PLAIN} UNION {PLAIN}", f"{PLAIN} UNION ALL {PLAIN}", "UNION → UNION ALL"),
    ],
)
def test_other_edits_that_give_more_rows(old: str, new: str, edit: str) -> None:
    assert [each[0] for each in multipliers(old, new)] == [edit]
    assert edit not in [each[0] for each in multipliers(new, old)] or edit == "lateral view changed"


def test_a_window_that_slides_counts_a_row_several_times() -> None:
    text = (
        "SELECT count(*) AS n FROM STREAM s WATERMARK ts DELAY OF INTERVAL 1 MINUTE GROUP BY window(ts, '1 minute'{})"
    )
    ((edit, key, *_),) = multipliers(text.format(""), text.format(", '30 seconds'"))
    assert (edit, key) == ("sliding window", "window(ts, '1 minute', '30 seconds')")
    assert multipliers(text.format(", '30 seconds'"), text.format("")) == []


def test_an_outer_lateral_view_multiplies_no_rows() -> None:
    text = f"{PLAIN} LATERAL VIEW {{}}(s.l) AS x"
    assert multipliers(text.format("explode"), text.format("explode_outer")) == []


def test_a_stream_that_is_read_through_a_subquery_is_the_same_side() -> None:
    old = f"{PLAIN} JOIN d ON d.id = s.id"
    assert multipliers(old, "SELECT s.id FROM (SELECT * FROM STREAM s WHERE k > 1) AS s JOIN d ON d.id = s.id") == []
