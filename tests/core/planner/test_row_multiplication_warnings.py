"""Plans of edits that may multiply rows: they warn first, unless a declared key excludes it."""

import pytest

from core.model.names import TableName as T
from core.observed.planner_input import ObservedDeployment
from core.plan.model import Plan
from core.plan.rendering import plan_lines
from core.project.revision import RevisionTexts
from core.project_reader.loader import read_project
from tests.core.project_reader.test_loader import texts
from tests.support.domain_builders import plan

OLD = "SELECT i.id FROM STREAM src AS i JOIN menu AS p ON p.id = i.id"
PLACE = "pipelines/facts/p/a/sql-scripts"
MENU = "pipelines/sources/p/menu"


def planned(new: str, *, menu: str = "", **asked: bool) -> Plan:
    files = texts(src="", a=new) | {
        f"{MENU}/sql-scripts/ddl.menu.sql": "CREATE TABLE menu (id BIGINT, other BIGINT) USING parquet LOCATION 'menu'"
    }
    files |= {f"{MENU}/menu.yml": menu} if menu else {}
    found, problems = read_project(files)
    assert found is not None, problems
    old = RevisionTexts(files[f"{PLACE}/ddl.a.sql"], f"INSERT INTO a\n{OLD};\n", "trigger: 10 seconds\n")
    seen = {T(name): ObservedDeployment("running") for name in ("src", "menu")}
    return plan(found, seen | {T("a"): ObservedDeployment("running", deployed=old)}, "a", **asked)


def warned(found: Plan) -> list[str]:
    return [each.summary for each in found.warnings if "rows: " in each.summary]


TWICE = f"{OLD} JOIN menu AS q ON q.id IN (i.id, 1)"


def test_a_join_that_multiplies_rows_is_named_first_in_a_plan_of_80_columns() -> None:
    found = planned(f"{TWICE} WHERE i.id > 1 AND i.id < 9")
    lines = plan_lines(found, 80)
    (row,) = (at for at, line in enumerate(lines) if "~a " in line)
    assert "join added" in lines[row] and "filter or projection" not in lines[row]
    assert lines[row + 1].strip().startswith("join added: JOIN menu AS q ON q.id IN (src.id, 1); filter added (2):")
    (warning,) = warned(found)
    assert warning.startswith("may multiply rows: join added: menu AS q ON q.id IN (src.id, 1); each row of menu")
    assert "_t" not in "\n".join(lines)


@pytest.mark.parametrize("width", [80, 120, 200])
def test_no_word_of_the_reason_is_cut(width: int) -> None:
    terms = " AND ".join(f"i.id <> {number * 1000}" for number in range(9))
    text = " ".join(" ".join(plan_lines(planned(f"{TWICE} WHERE {terms}"), width)).split())
    assert "…" not in text and all(f" {number * 1000}" in text for number in range(9))


@pytest.mark.parametrize(
    ("menu", "silent"),
    [
        ("", False),
        ("key: [id]", True),
        ("key: [id, other]", False),
        ('checks: [{name: once, sql: "SELECT id FROM menu GROUP BY id HAVING count(*) > 1"}]', True),
        ('checks: [{name: some, sql: "SELECT id FROM menu WHERE id < 0"}]', False),
    ],
)
def test_a_declared_key_that_is_equated_excludes_it(menu: str, *, silent: bool) -> None:
    found = warned(planned(f"{OLD} JOIN menu AS q ON q.id = i.id + 1", menu=menu))
    assert (found == []) is silent
    if not menu:
        assert found[0].endswith("; as many as menu has rows for each id, and no key of menu is declared")


def test_a_join_condition_without_the_declared_key_is_reported_with_that_key() -> None:
    (found,) = warned(planned(TWICE, menu="key: [id]"))
    assert found.endswith("; it does not equate the key of menu, id")


def test_a_rebuild_warns_as_well_and_a_record_does_not() -> None:
    assert warned(planned(TWICE, rebuild=True)) == warned(planned(TWICE))
    assert warned(planned(OLD)) == []


def test_branches_add_rows_and_lateral_views_multiply_them() -> None:
    (added,) = warned(planned(f"{OLD} UNION ALL {OLD}"))
    assert added == "adds rows: UNION branch added; its rows are added"
    (exploded,) = warned(planned(f"{OLD} LATERAL VIEW explode(array(1, 2)) AS x"))
    assert exploded == "may multiply rows: lateral view added: explode(array(1, 2)); each element adds a row"
