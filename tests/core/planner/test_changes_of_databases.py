"""Plans about external tables over the changes of a database."""

import pytest
import small_project
from domain_builders import deployed

from core.model.names import TableName as T
from core.model.problems import Severity
from core.observed.planner_input import ObservedDeployment, OtherVersion
from core.observed.versions import Binding
from core.plan.model import Plan
from core.plan.request import PlanRequest
from core.planner.planner import make_plan
from core.project.model import Project
from core.project_reader.loader import read_project
from core.project_reader.revision_reader import revision_of
from core.sql.postgres_changes import ChangesRisk

URL = "url 'jdbc:postgresql://db/shop'"
WHOLE = f"{URL}, user 'reader', dbtable 'orders', publication 'headgate'"


def over_changes(options: str = WHOLE, columns: str = "id BIGINT, kind STRING") -> Project:
    return small_project.project(over_texts(options, columns))


def over_texts(options: str, columns: str = "id BIGINT, kind STRING") -> dict[str, str]:
    files = small_project.texts()
    (path,) = [path for path in files if path.endswith("ddl.landed.sql")]
    files[path] = f"CREATE TABLE landed ({columns}) USING postgres_changes OPTIONS ({options});"
    files["headgate.yml"] += "connectors: {postgres: {}}\n"
    return files


def only_reader(options: str, *, keyed: bool) -> dict[str, str]:
    """Return the texts of a project in which one statement reads the changes."""
    files = {
        path: text for path, text in over_texts(f"{WHOLE}{options}").items() if "/b/" not in path and "/c/" not in path
    }
    files["headgate.yml"] = files["headgate.yml"].replace("{postgres: {}}", "{postgres: {}, delta: {}}")
    files["pipelines/facts/p/a/sql-scripts/ddl.a.sql"] = "CREATE TABLE a (id BIGINT, kind STRING) USING delta;"
    if keyed:
        files["pipelines/facts/p/a/a.yml"] = "mode: upsert\nkey: [id]\n"
    return files


def planned(after: Project, table: str, *absent: str) -> Plan:
    before = over_changes()
    world = {
        name: deployed(table, bindings={"landed": 0, "a": 1})
        for name, table in before.tables.items()
        if name not in absent
    }
    return make_plan(after, "dev", world, PlanRequest(tables=(T(table),)))


@pytest.mark.parametrize(
    ("options", "columns"),
    [
        (f"{WHOLE}, maxChanges '10'", "id BIGINT, kind STRING"),
        (WHOLE.replace("reader", "other"), "id BIGINT, kind STRING"),
        (WHOLE, "id BIGINT, kind STRING, more STRING, _op STRING"),
    ],
)
def test_an_edit_that_reads_the_same_table_registers_it_again(options: str, columns: str) -> None:
    found = planned(over_changes(options, columns), "landed")
    assert not found.refusals and [step.do for step in found.steps] == ["register"]
    assert "gives its new OPTIONS and columns to a running reader" in str(found.warnings[0].summary)


@pytest.mark.parametrize(("dbtable", "refused"), [("orders", False), ("others", True)])
def test_a_table_of_a_database_can_be_declared_anew_with_a_refresh(dbtable: str, refused: bool) -> None:
    def project(options: str) -> Project:
        files = over_texts(options)
        (path,) = [path for path in files if path.endswith("ddl.landed.sql")]
        files[path] = files[path].replace("postgres_changes", "jdbc").replace(", publication 'headgate'", "")
        files["pipelines/facts/p/a/sql-scripts/dml.a.sql"] = (
            "INSERT INTO a SELECT id, kind FROM STREAM c JOIN landed USING (id, kind);"
        )
        files["pipelines/facts/other/c/sql-scripts/dml.c.sql"] = "INSERT INTO c SELECT id, kind FROM STREAM events;"
        files["pipelines/sources/p/events/sql-scripts/ddl.events.sql"] = (
            "CREATE TABLE events (id BIGINT, kind STRING) USING json LOCATION 'e';"
        )
        files["headgate.yml"] = files["headgate.yml"].replace("{postgres: {}}", "{postgres: {}, delta: {}}")
        return small_project.project(files)

    before, after = project(WHOLE), project(f"{WHOLE}, refresh '1 hour'".replace("orders", dbtable))
    world = {name: deployed(table, bindings={"landed": 0, "a": 1}) for name, table in before.tables.items()}
    found = make_plan(after, "dev", world, PlanRequest(tables=(T("landed"),)))
    assert bool(found.refusals) is refused
    assert [step.do for step in found.steps] == ([] if refused else ["register"])


def test_an_edit_that_reads_another_table_is_refused() -> None:
    found = planned(over_changes(WHOLE.replace("orders", "others")), "landed")
    assert [refusal.table for refusal in found.refusals] == ["landed"]


def test_a_first_start_says_that_earlier_rows_are_not_among_the_changes() -> None:
    found = planned(over_changes(), "a", "a", "b")
    said = [str(each.summary) for each in found.warnings]
    assert (
        "reads the changes in landed from where its replication slot is: rows that changed earlier are missing" in said
    )


@pytest.mark.parametrize(
    ("options", "keyed", "verdict"),
    [("", True, "deny"), (", snapshot 'initial'", False, "deny"), (", snapshot 'initial'", True, "unknown")],
)
def test_a_rebuild_that_begins_with_the_rows_lacks_nothing_of_a_keyed_table(
    options: str, keyed: bool, verdict: str
) -> None:
    project = small_project.project(only_reader(options, keyed=keyed))
    world = {name: deployed(table, bindings={"landed": 0, "a": 1}) for name, table in project.tables.items()}
    found = make_plan(project, "dev", world, PlanRequest(tables=(T("a"),), rebuild=True))
    assert [guard.verdict for guard in found.guards if guard.name == "history"] == [verdict]
    begin = "begins with the rows that landed has then" if options else "from where its replication slot is"
    assert any(begin in str(each.summary) for each in found.warnings)


@pytest.mark.parametrize(
    ("options", "keyed", "warned"),
    [(", snapshot 'initial'", False, True), (", snapshot 'initial'", True, False), ("", False, False)],
)
def test_rows_that_an_interrupted_first_batch_may_repeat_are_a_warning_unless_the_table_has_a_key(
    options: str, keyed: bool, warned: bool
) -> None:
    project, problems = read_project(only_reader(options, keyed=keyed))
    assert project is not None
    risk = ChangesRisk.ROWS_TWICE.of(source="landed")
    assert [
        (each.summary, each.remedy, each.subject, each.severity) for each in problems if "twice" in each.summary
    ] == [(f"a {risk}", risk.remedy, "a", Severity.WARNING)] * warned
    found = make_plan(project, "dev", {}, PlanRequest(tables=(T("a"),)))
    said = [str(each.summary) for each in found.warnings if "twice" in str(each.summary)]
    assert said == [f"{risk}; {risk.remedy}"] * warned


def test_plans_say_that_a_deleted_reader_does_not_hold_the_slot() -> None:
    project, left = over_changes(), "cannot continue after an undelete: the replication slot of landed does not wait"
    world = {name: deployed(table, bindings={"landed": 0, "a": 1}) for name, table in project.tables.items()}
    deleted = make_plan(project, "dev", world, PlanRequest(tables=(T("b"), T("a"), T("c")), verb="delete"))
    assert [each.table for each in deleted.warnings if str(each.summary).startswith(left)] == ["a"]
    texts = revision_of(project.tables[T("a")]).texts
    former = OtherVersion(1, "old", (Binding(T("landed"), 0, True),), texts=texts, drop_after=99.0)
    world[T("a")] = ObservedDeployment(highest_version=1, in_trash=former)
    back = make_plan(project, "dev", world, PlanRequest(tables=(T("a"),), verb="undelete"))
    assert any("if changes of landed are gone" in str(each.summary) for each in back.warnings)
