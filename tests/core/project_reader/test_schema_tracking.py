"""`schema_tracking:` in a project: the statements it applies to, and where it is a Problem."""

import pytest

from core.model.names import TableName as T
from core.project.model import Settings
from core.project_reader.loader import read_project, read_settings, settings_as_text
from core.project_reader.revision_reader import read_revision, revision_of
from tests.core.project_reader.test_loader import MANIFEST, ddl

SELECT = "SELECT id, v FROM STREAM p"


def project(select: str = SELECT, yml: str = "", default: str = "", form: str = "USING delta") -> dict[str, str]:
    found = {"headgate.yml": f"{MANIFEST}connectors: {{delta: {{}}}}\n{default}", "pipelines/facts/p/c/c.yml": yml}
    for name, text in (("src", ""), ("p", "SELECT id, v FROM STREAM src"), ("c", select)):
        place = f"pipelines/facts/p/{name}/sql-scripts"
        rest = form if text else "USING json LOCATION 'landing'"
        found[f"{place}/ddl.{name}.sql"] = ddl(name, "id BIGINT, v BIGINT", rest)
        if text:
            found[f"{place}/dml.{name}.sql"] = f"INSERT INTO {name}\n{text};\n"
    return found


def one_place(*places: str) -> dict[str, str]:
    """Return a project whose statement streams others' Delta tables at these locations."""
    names = [f"e{n}" for n, _ in enumerate(places, 1)]
    found = project(" UNION ALL ".join(f"SELECT id, v FROM STREAM {name}" for name in names))
    for name, place in zip(names, places, strict=True):
        text = ddl(name, "id BIGINT, v BIGINT", f"USING delta LOCATION '{place}'")
        found[f"pipelines/facts/p/{name}/sql-scripts/ddl.{name}.sql"] = text
    return found


def tracked(found: dict[str, str]) -> dict[str, bool]:
    read, problems = read_project(found)
    assert read is not None, problems
    return {name: table.settings.schema_tracking for name, table in read.tables.items()}


def test_it_survives_a_round_trip_through_its_text() -> None:
    read, _ = read_project(project(yml="schema_tracking: true\n"))
    assert read is not None
    table = read.tables[T("c")]
    assert table.settings.schema_tracking
    assert read_settings(settings_as_text(table.settings), "c.yml", Settings(), []) == table.settings
    texts = revision_of(table).texts
    assert "schema_tracking: true\n" in texts.yml and read_revision(T("c"), texts, Settings()).settings.schema_tracking
    assert "schema_tracking" not in settings_as_text(Settings())


def test_a_default_of_the_project_holds_for_statements_that_can_alone() -> None:
    default = "defaults: {schema_tracking: true}\n"
    assert tracked(project(default=default)) == {"c": True, "p": False, "src": False}
    assert tracked(project(default=default, yml="schema_tracking: false\n"))["c"] is False
    assert tracked(project(default=default, form="USING parquet"))["c"] is False
    manifest = {"headgate.yml": project(default=default)["headgate.yml"]}
    assert tracked(one_place("/lake/a", "/lake/b") | manifest)["c"] is True
    assert tracked(one_place("/lake/a", "/lake/a") | manifest)["c"] is False
    read_again = f"WITH a AS ({SELECT}) SELECT id, v FROM a UNION ALL SELECT id, v FROM a"
    assert tracked(project(read_again, default=default))["c"] is True
    for select in ("SELECT * FROM STREAM p", f"{SELECT} UNION ALL {SELECT}", "SELECT p.* FROM STREAM p"):
        assert tracked(project(select, default=default))["c"] is False
    assert tracked(project("SELECT id * 2 AS id, v FROM STREAM p", default=default))["c"] is True


@pytest.mark.parametrize(
    ("found", "summary", "remedy"),
    [
        (project(form="USING parquet"), "streams no table on Delta", "leave out schema_tracking"),
        (project("SELECT id, v FROM STREAM src"), "streams no table on Delta", "leave out schema_tracking"),
        (project(f"{SELECT} UNION ALL {SELECT}"), "streams p twice, which Spark refuses", "stream it once"),
        (project(f"WITH a AS ({SELECT} UNION ALL {SELECT}) SELECT id, v FROM a"), "streams p twice", "stream it once"),
        (project(f"WITH a AS ({SELECT}) SELECT id, v FROM a UNION ALL {SELECT}"), "streams p twice", "stream it once"),
        (one_place("/lake/e", "file:///lake/e/"), "streams one table twice, as e1 and e2", "under one name, once"),
        (project("SELECT * FROM STREAM p"), "says *", "name its columns"),
    ],
)
def test_asked_for_where_it_cannot_be_it_is_a_problem_of_its_line(
    found: dict[str, str], summary: str, remedy: str
) -> None:
    yml = "pipelines/facts/p/c/c.yml"
    _, problems = read_project({**found, yml: "trigger: 5 seconds\nschema_tracking: true\n"})
    (problem,) = problems
    assert str(problem.where).startswith(f"{yml}:2")
    assert problem.summary.startswith("c tracks columns") and summary in problem.summary
    assert remedy in problem.remedy
    read, problems = read_project({**found, yml: "schema_tracking: false\n"})
    assert read is not None and not problems


def test_a_user_defined_schema_location_is_refused() -> None:
    _, problems = read_project(project("SELECT id, v FROM STREAM p WITH ('schemaTrackingLocation'='/tmp/x')"))
    (problem,) = problems
    assert problem.summary == "schemaTrackingLocation is not an option of a streaming read"
    assert "schema_tracking: true" in problem.remedy
