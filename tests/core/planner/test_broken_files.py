"""Planning while files have errors: a plan is refused if errors concern it; all other errors are set aside."""

from dataclasses import replace
from typing import Any

import pytest
import small_project

from core.model.errors import InvalidProject
from core.model.names import TableName as T
from core.observed.planner_input import ObservedDeployment, OtherVersion
from core.plan.model import Plan
from core.plan.request import PlanRequest
from core.planner.planner import make_plan
from core.project.model import Project
from core.project.unreadable_file import UnreadableFile
from core.project_reader.loader import read_project, read_sound_tables
from core.project_reader.revision_reader import revision_of
from tests.support.domain_builders import actions, deployed

SOUND = small_project.project(small_project.texts())
SQL = "pipelines/{place}/sql-scripts/{kind}.{name}.sql"
DDL_OF_A, DML_OF_A = (SQL.format(place="facts/p/a", kind=kind, name="a") for kind in ("ddl", "dml"))
DDL_OF_B, DML_OF_B = (SQL.format(place="facts/p/b", kind=kind, name="b") for kind in ("ddl", "dml"))
NONSENSE = "INSERT INTO b SELCT id FORM"
BREAKS = {
    "statement": {DML_OF_B: NONSENSE},
    "ddl": {DDL_OF_B: "CREATE TABLE b (id BIGINT"},
    "settings": {"pipelines/facts/p/b/b.yml": "trigger: [1, 2\nowner: : x"},
    "unreadable": {DML_OF_B: UnreadableFile("Permission denied", "chmod")},
    "second writer": {
        SQL.format(place="facts/p/x", kind="dml", name="x"): "INSERT INTO b SELECT id, kind FROM STREAM a;"
    },
}


def sound_part(files: dict[str, str]) -> Project:
    found, problems = read_sound_tables(small_project.texts() | files)
    assert found is not None and read_project(small_project.texts() | files)[0] is None, problems
    return found


def world(**known: dict[str, Any]) -> dict[T, ObservedDeployment]:
    """Observe landed → a → b and a → c, all running as declared."""
    reads = {"landed": 0, "a": 1}
    found = {name: deployed(table, bindings=reads) for name, table in SOUND.tables.items()}
    return {name: replace(seen, **known.get(name, {})) for name, seen in found.items()}


def plan_over(project: Project, *tables: str, known: dict[T, ObservedDeployment] | None = None, **request: Any) -> Plan:
    asked = PlanRequest(tables=tuple(map(T, tables)), **request)
    return make_plan(project, "dev", known or world(), asked)


@pytest.mark.parametrize("kind", BREAKS)
def test_a_broken_table_is_set_aside_with_its_errors(kind: str) -> None:
    project = sound_part(BREAKS[kind])
    assert "b" in project.broken and {"landed", "a", "c"} == project.tables.keys()
    assert project.broken[T("b")].product == "p" and project.errors() and not project.stray


@pytest.mark.parametrize("kind", BREAKS)
def test_a_deploy_that_does_not_need_a_broken_file_is_the_same_plan(kind: str) -> None:
    assert plan_over(sound_part(BREAKS[kind]), "c", rebuild=True) == plan_over(SOUND, "c", rebuild=True)


@pytest.mark.parametrize(
    "request_",
    [
        {"tables": (T("b"),)}, {"tables": (T("a"),), "rebuild": True}, {"everything": True}, {"products": ("p",)},
        {"folders": ("pipelines/facts/p/b/sql-scripts",)}, {"layers": ("fact",)},
        {"tables": (T("a"),), "rebuild": True, "children": "all"},
    ],
)  # fmt: skip
def test_a_deploy_that_needs_a_broken_file_is_refused_with_its_errors(request_: dict[str, Any]) -> None:
    with pytest.raises(InvalidProject, match="files of b that have 1 problem") as refused:
        make_plan(sound_part(BREAKS["settings"]), "dev", world(), PlanRequest(**request_))
    assert [problem["file"] for problem in refused.value.problems] == ["pipelines/facts/p/b/b.yml"]


def test_a_broken_reader_outside_of_the_scope_stays_on_the_old_version() -> None:
    found = plan_over(sound_part(BREAKS["ddl"]), "a", rebuild=True, children="none")
    assert [(left.table, left.reads) for left in found.left_behind if left.table == "b"] == [("b", "a__v1")]
    assert not any("no longer declared" in str(warning.summary) for warning in found.warnings)
    excluded = plan_over(sound_part(BREAKS["ddl"]), "a", rebuild=True, exclude=(T("b"),))
    assert actions(excluded)["a"] == "rebuild"


@pytest.mark.parametrize("path", ["pipelines/sources/p/landed/landed.yml", DML_OF_A])
def test_a_deploy_below_a_broken_table_is_refused(path: str) -> None:
    with pytest.raises(InvalidProject, match=r"files of (landed|a) that have"):
        plan_over(sound_part({path: "colour: : ("}), "b", rebuild=True)


def test_an_added_column_is_refused_over_a_broken_reader_in_any_scope() -> None:
    grown = {
        DDL_OF_A: "CREATE TABLE a (id BIGINT, kind STRING, n INT) USING parquet;",
        DML_OF_A: "INSERT INTO a SELECT id, kind, 1 AS n FROM STREAM landed;",
    }
    for children in ("none", "all"):
        with pytest.raises(InvalidProject, match="files of b"):
            plan_over(sound_part(BREAKS["statement"] | grown), "a", children=children)


def released() -> dict[T, ObservedDeployment]:
    known: dict[str, dict[str, Any]] = {}
    for name in ("a", "b"):
        seen = deployed(SOUND.tables[T(name)], bindings={"landed": 0, "a": 1})
        former = OtherVersion(1, "old", seen.bindings, texts=revision_of(SOUND.tables[T(name)]).texts)
        now = tuple(replace(b, version=2) if b.parent == "a" else b for b in seen.bindings)
        known[name] = {"version": 2, "highest_version": 2, "bindings": now, "pointer": f"{name}__v2",
                       "served_by": "r9", "former": former, "kept": (1,)}  # fmt: skip
    return world(**known) | {T("c"): ObservedDeployment()}


@pytest.mark.parametrize("kind", BREAKS)
@pytest.mark.parametrize("verb", ["rollback", "retire", "delete"])
def test_deployed_versions_are_acted_on_whatever_their_files_say(verb: str, kind: str) -> None:
    tables, project = ("a", "b") if verb == "delete" else ("b",), sound_part(BREAKS[kind])
    found = plan_over(project, *tables, known=released(), verb=verb)
    assert found.hash == plan_over(SOUND, *tables, known=released(), verb=verb).hash and not found.refusals


def test_files_that_no_plan_could_deploy_bring_no_text_back() -> None:
    seen = released()
    found = plan_over(sound_part(BREAKS["statement"]), "b", known=seen, verb="rollback")
    assert not any("the next deploy brings" in str(warning.summary) for warning in found.warnings)


def test_a_delete_of_a_product_includes_its_broken_tables() -> None:
    found = plan_over(sound_part(BREAKS["ddl"]), known=released(), verb="delete", products=("p",))
    assert actions(found) == {"a": "delete", "b": "delete"}


def test_half_a_statement_set_with_a_broken_file_is_not_deleted() -> None:
    folder = "pipelines/facts/p/b/sql-scripts"
    both = {f"{folder}/ddl.d.sql": "CREATE TABLE d (id BIGINT, kind STRING) USING parquet;",
            f"{folder}/dml.d.sql": "INSERT INTO d SELECT id, kind FROM STREAM a;"}  # fmt: skip
    whole = small_project.project(small_project.texts() | both)
    known = world() | {T("d"): deployed(whole.tables[T("d")])}
    (refusal,) = plan_over(sound_part(BREAKS["settings"] | both), "b", known=known, verb="delete").refusals
    assert "d" in str(refusal.summary)


STRAY = "pipelines/factz/p/z/sql-scripts/ddl.z.sql"


def test_an_error_outside_of_any_table_concerns_only_tables_that_no_file_declares() -> None:
    project = sound_part({STRAY: "CREATE TABLE z (id BIGINT) USING parquet;"})
    assert [str(problem.where) for problem in project.stray] == [STRAY] and not project.broken
    assert plan_over(project, "a", rebuild=True, children="all") == plan_over(SOUND, "a", rebuild=True, children="all")
    for request in ({"everything": True}, {"tables": (T("z"),)}, {"products": ("p",)}):
        with pytest.raises(InvalidProject):
            make_plan(project, "dev", world(), PlanRequest(**request))  # type: ignore[arg-type]  # drawn requests
    unknown = world() | {T("z"): ObservedDeployment(state="running", version=1)}
    assert plan_over(project, "z", known=unknown, verb="rollback").refusals
    with pytest.raises(InvalidProject):
        plan_over(project, "z", known=unknown, verb="delete")


def test_every_cycle_of_a_component_is_set_aside() -> None:
    both = "SELECT id, kind FROM STREAM {} UNION ALL SELECT id, kind FROM STREAM {}"
    files = small_project.texts(a=both.format("b", "c"), c=both.format("a", "d"), d="SELECT id, kind FROM STREAM c")
    project, problems = read_sound_tables(files)
    assert project is not None and project.broken.keys() == {"a", "b", "c", "d"} and len(problems) == 1, problems
    assert plan_over(project, "b", known=released(), verb="rollback").steps


def test_errors_in_headgate_yml_concern_every_table() -> None:
    found, problems = read_sound_tables(small_project.texts() | {"headgate.yml": "project: p\n"})
    assert found is None and problems
