"""Disturbed input: the same rows, late within what watermarks allow and in another order, or with one column more."""

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import small_project

from core.integration_tests.disturbed_input import (
    ADDED,
    LateInput,
    can_have_column_more,
    late_input,
    lateness_s,
    with_column_more,
    with_value_more,
)
from core.integration_tests.scenarios import ScenarioInput
from core.model.names import TableName as T
from core.project.model import Project

LANDED = T("landed")
START = datetime(2026, 1, 1, tzinfo=UTC)


def timed(delay: str = "20 SECONDS") -> Project:
    late = f"WATERMARK ts DELAY OF INTERVAL {delay}"
    files = small_project.texts(
        a="SELECT id, kind, ts FROM STREAM landed",
        b=f"SELECT DISTINCT id, kind, ts FROM STREAM a {late}",
        c="SELECT id, kind, ts FROM STREAM a WATERMARK ts DELAY OF INTERVAL 4 SECONDS",
    )
    columns = "(id BIGINT, kind STRING, ts TIMESTAMP)"
    return small_project.project({p: text.replace(small_project.COLUMNS, columns) for p, text in files.items()})


def given(*seconds: tuple[float, ...]) -> ScenarioInput:
    parts = tuple({LANDED: tuple((n, "x", START + timedelta(seconds=n)) for n in part)} for part in seconds)
    return ScenarioInput(parts, "generated", middle=2)


def numbers(found: LateInput) -> list[list[object]]:
    return [[row[0] for row in part[LANDED]] for part in found.parts]


def test_rows_may_be_late_by_half_of_the_longest_delay() -> None:
    assert lateness_s(timed(), map(T, ("landed", "a", "b", "c"))) == 10.0
    assert lateness_s(timed("2 MINUTES"), [T("b")]) == 60.0
    assert lateness_s(timed("1 DAY"), [T("b")]) == 43_200.0
    assert lateness_s(timed(), [T("a")]) == 0.0


def test_rows_near_the_newest_one_arrive_a_part_later_and_all_in_reverse() -> None:
    found = late_input(given((1, 5, 12, 13), (14, 15), (99,)), timed(), [T("b")])
    assert numbers(found) == [[13, 1], [15, 14, 12, 5], [99]]
    assert found.words() == "with 6 rows in another order and 2 rows up to 10 s late"
    found = late_input(given((1, 5, 12, 13), (14, 15), (99,)), timed(), [T("b")], 1.0)
    assert numbers(found) == [[13, 5, 1], [15, 14, 12], [99]] and found.late_s == 1.0


def test_without_a_watermark_rows_are_only_reordered_and_none_is_lost() -> None:
    assert numbers(late_input(given((1, 2), (3, 4)), timed(), [T("a")])) == [[2, 1], [4, 3]]
    before = given((1, 5, 12, 13), (14, 15))
    after = late_input(before, timed(), [T("b")])
    counted = [Counter(row for part in parts for row in part[LANDED]) for parts in (before.parts, after.parts)]
    assert counted[0] == counted[1]


def test_rows_of_which_none_is_late_or_in_another_order_are_not_disturbed() -> None:
    assert late_input(given((1,), (2,), (3,)), timed(), [T("b")]).words() == ""
    assert late_input(given((1, 2), (3,)), timed(), [T("a")]).words() == "with 2 rows in another order"


def test_a_row_without_a_time_stays_where_it_is() -> None:
    before = given((1, 2), (3,))
    part = {LANDED: (*before.parts[0][LANDED], (9, "x", None))}
    found = late_input(replace(before, parts=(part, before.parts[1])), timed(), [T("b")])
    assert numbers(found) == [[9, 2], [3, 1]]


def test_a_source_gets_a_column_at_its_end_unless_it_has_lines_of_text() -> None:
    table = timed().tables[LANDED]
    assert can_have_column_more(table)
    ddl = with_column_more(table.parsed_ddl)
    assert ddl.columns[-1] == ADDED and ddl.columns[:-1] == table.parsed_ddl.columns
    assert not can_have_column_more(replace(table, parsed_ddl=ddl)), "it has the column"
    lines = replace(table.parsed_ddl, columns=(replace(ADDED, name="value"),))
    assert not can_have_column_more(replace(table, parsed_ddl=lines))
    assert [len(row) for row in with_value_more([(1, "x", None)])] == [4]
