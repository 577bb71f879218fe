"""Generated input: numbered rows in parts, then rows that close the windows of every statement in a chain."""

from datetime import date, datetime, timedelta

import pytest
import small_project

from core.integration_tests.case import IntegrationCase
from core.integration_tests.case_reader import read_integration_cases
from core.integration_tests.case_writer import recorded_case, recorded_case_path
from core.integration_tests.generated_input import (
    PARTS,
    ROWS,
    delays_s,
    generated_parts,
    inputs_around_midnight,
    sinks_of,
    stateful_depth,
)
from core.model.names import TableName as T
from core.project.model import Project
from core.statement_tests.case import Part
from core.statement_tests.case_writer import BEGIN


def timed(delay: str = "10 SECONDS") -> Project:
    """Return landed → a (distinct) → b (windows), with times."""
    columns = "(id BIGINT, kind STRING, ts TIMESTAMP)"
    late = f"WATERMARK ts DELAY OF INTERVAL {delay}"
    files = small_project.texts(
        a=f"SELECT DISTINCT id, kind, ts FROM STREAM landed {late} WHERE kind IN ('x', 'y')",
        b=f"SELECT count(*) AS id, kind, window.start AS ts FROM STREAM a {late} GROUP BY window(ts, '1 minute'), kind",
        c="SELECT id, kind, ts FROM STREAM a",
    )
    return small_project.project({p: text.replace(small_project.COLUMNS, columns) for p, text in files.items()})


def test_rows_are_numbered_in_time_and_one_part_closes_each_statement_with_state() -> None:
    project = timed()
    assert stateful_depth(project.tables, (T("landed"), T("a"), T("b"))) == 2
    parts = generated_parts(project, [T("b")])
    rows = [part[T("landed")] for part in parts]
    assert [len(each) for each in rows] == [ROWS] * PARTS + [1, 1]
    every = [row for each in rows for row in each]
    assert [row[0] for row in every] == list(range(1, len(every) + 1))
    assert {row[1] for row in every} == {"x", "y"}, "literals of the statements"
    times = [row[2] for row in every]
    assert times == sorted(times)  # type: ignore[type-var]  # Datetimes.
    assert [time.day for time in times[-2:]] == [2, 3]  # type: ignore[attr-defined]  # Datetimes.


def times_of(parts: tuple[Part, ...]) -> list[list[datetime]]:
    """Return the times of the rows of each part."""
    return [[time for row in part[T("landed")] if isinstance(time := row[2], datetime)] for part in parts]


def test_closing_rows_are_later_than_any_watermark_waits() -> None:
    assert delays_s(timed("2 DAYS"), map(T, ("landed", "a", "b", "c"))) == {"a": 172_800, "b": 172_800}
    times = times_of(generated_parts(timed("2 DAYS"), [T("b")]))
    assert [max(part).day for part in times] == [1, 1, 6, 11]


def test_closing_rows_between_the_parts_let_the_rows_of_a_part_reach_every_table_before_the_next() -> None:
    parts = generated_parts(timed(), [T("b")], between=True)
    assert [len(part[T("landed")]) for part in parts] == [ROWS, 1, 1, ROWS, 1, 1]
    times = times_of(parts)
    assert [time for part in times for time in part] == sorted(time for part in times for time in part)
    assert [part[0].day for part in times] == [1, 2, 3, 3, 4, 5]
    assert len({row[0] for part in parts for row in part[T("landed")]}) == 2 * ROWS + 4
    stateless = small_project.project(small_project.texts())
    assert generated_parts(stateless, [T("b")], between=True) == generated_parts(stateless, [T("b")])


@pytest.mark.parametrize("late_s", [0.5, 10.0, 3_600.0])
def test_the_first_row_is_before_midnight_and_a_watermark_with_a_shorter_delay_passes_midnight(late_s: float) -> None:
    first, second = times_of(inputs_around_midnight(timed(), [T("b")], late_s=late_s))[:2]
    assert first[0] < BEGIN <= first[1] < first[-1] < second[0]
    assert timedelta(seconds=0.9 * late_s) < max(first) - first[0] <= timedelta(seconds=late_s)
    shorter = timedelta(seconds=0.8 * late_s)
    assert max(first) - shorter > BEGIN > max(first) - timedelta(seconds=late_s)


def test_static_sides_have_all_their_rows_in_the_first_part() -> None:
    folder = "pipelines/sources/p/side/sql-scripts"
    texts = small_project.texts(b="SELECT a.id, s.kind FROM STREAM a JOIN side s ON a.id = s.id")
    texts[f"{folder}/ddl.side.sql"] = f"CREATE TABLE side {small_project.COLUMNS} USING json LOCATION 'side';"
    first, *others = generated_parts(small_project.project(texts), [T("b")])
    assert {row[0] for part in (first, *others) for row in part[T("landed")]} == {row[0] for row in first[T("side")]}
    assert not any(T("side") in part for part in others)


def test_rows_match_by_texts_of_other_names_and_by_times_within_intervals() -> None:
    path = "pipelines/sources/p/{0}/sql-scripts/ddl.{0}.sql"
    side = "(code STRING, since TIMESTAMP, until TIMESTAMP, day DATE, last DATE)"
    on = "s.code = l.kind AND l.ts BETWEEN since AND until AND l.day BETWEEN s.day AND s.last"
    select = f"SELECT l.id, s.code AS kind FROM STREAM landed l JOIN side s ON {on}"
    texts = small_project.texts(a=select)
    texts[path.format("side")] = f"CREATE TABLE side {side} USING json LOCATION 'side';"
    landed = "(id BIGINT, kind STRING, ts TIMESTAMP, day DATE)"
    texts[path.format("landed")] = f"CREATE TABLE landed {landed} USING json LOCATION 'landing';"
    parts = generated_parts(small_project.project(texts), [T("b")])
    found = {row[0]: row for row in parts[0][T("side")]}
    for _, kind, at, day in (row for part in parts for row in part[T("landed")]):
        code, since, until, begin, end = found[kind]
        assert code == kind
        assert isinstance(at, datetime) and isinstance(since, datetime) and isinstance(until, datetime)
        assert isinstance(day, date) and isinstance(begin, date) and isinstance(end, date)
        assert since <= at < until and begin <= day < end


def test_sinks_are_the_tables_that_no_other_chosen_table_reads() -> None:
    project = small_project.project(small_project.texts())
    assert sinks_of(project, map(T, ("landed", "a", "b", "c"))) == ("b", "c")
    assert sinks_of(project, [T("a")]) == ("a",)


def test_a_recorded_case_is_read_as_it_was_generated() -> None:
    project = timed()
    parts = generated_parts(project, [T("b")])
    path = recorded_case_path(project.tables[T("b")], "p")
    assert path == "pipelines/facts/p/integration/p_recorded.yml"
    case = IntegrationCase("p_recorded", path, parts, {T("b"): ()}, {})
    rows = {T("a"): parts[0][T("landed")], T("b"): ()}
    text = recorded_case(case, rows, project.tables, closing_from=PARTS)
    (found,), problems = read_integration_cases({path: text}, project)
    assert problems == () and found.parts == parts
    assert {name: sorted(each) for name, each in found.expected.items()} == {
        name: sorted(each) for name, each in rows.items()
    }
