"""`payload:`, `mirror_offsets:` and `connector:` in a table's yml: accepted values, and Problems with their lines."""

import pytest
import small_project

from core.model.names import TableName as T
from core.project_reader.loader import read_project
from core.project_reader.revision_reader import read_revision, revision_of

A, B, LANDED = (f"pipelines/{path}.yml" for path in ("facts/p/a/a", "facts/p/b/b", "sources/p/landed/landed"))


URL = "https://connect.example:8083/base/connectors/orders"


def on_topics(yml: dict[str, str], **selects: str) -> dict[str, str]:
    files = small_project.texts(**selects)
    (path,) = [path for path in files if path.endswith("ddl.landed.sql")]
    options = "'kafka.bootstrap.servers'='h:9092', subscribe='t,u'"
    files[path] = f"CREATE TABLE landed {small_project.COLUMNS} USING kafka OPTIONS ({options});"
    return files | yml | {"headgate.yml": files["headgate.yml"] + "connectors: {kafka: {}}\n"}


def test_they_are_read_and_come_back_from_the_text_of_the_revision() -> None:
    project = small_project.project(
        on_topics({LANDED: f"payload: hidden\nconnector: {URL}\nsilence: 5 minutes\n", A: "mirror_offsets: my-group\n"})
    )
    assert project.tables[T("landed")].settings.connector == URL
    assert project.tables[T("landed")].settings.silence == "5 minutes"
    assert project.tables[T("landed")].settings.hides_payload
    assert project.tables[T("a")].settings.mirror_offsets == "my-group"
    for table in project.tables.values():
        revision = revision_of(table)
        again = read_revision(table.name, revision.texts, project.defaults)
        assert again is not None and again.settings == table.settings


def test_a_table_may_show_what_the_project_hides_by_default() -> None:
    files = on_topics({LANDED: "payload: shown\n"})
    project = small_project.project(files | {"headgate.yml": files["headgate.yml"] + "defaults: {payload: hidden}\n"})
    table = project.tables[T("landed")]
    assert not table.settings.hides_payload and project.tables[T("a")].settings.hides_payload
    again = read_revision(table.name, revision_of(table).texts, project.defaults)
    assert again is not None and again.settings == table.settings


@pytest.mark.parametrize(
    ("yml", "selects", "expected"),
    [
        ({LANDED: "payload: hiden\n"}, {}, (LANDED, 1, "payload must be hidden or shown")),
        (
            {A: "owner: me\npayload: hidden\n"}, {},
            (A, 2, "payload: a has neither messages nor rows of a database that could be hidden"),
        ),
        (
            {LANDED: "owner: me\nconnector: http://u:p@h:8083/connectors/c\n"}, {},
            (LANDED, 2, "connector must be the URL of a connector in Kafka Connect"),
        ),
        (
            {LANDED: "connector: h:8083/c\n"}, {},
            (LANDED, 1, "connector must be the URL of a connector in Kafka Connect"),
        ),
        *(
            (
                {LANDED: f'connector: "{url}"\n'}, {},
                (LANDED, 1, "connector must be the URL of a connector in Kafka Connect"),
            )
            for url in ("http://h/connectors/für", "http://[::1/connectors/x", "http://h/connectors/\\e[31mx")
        ),
        (
            {A: "connector: http://h:8083/connectors/c\n"}, {},
            (A, 1, "connector: a is no external table over topics"),
        ),
        ({LANDED: "silence: a while\n"}, {}, (LANDED, 1, "silence must be an interval")),
        ({B: "silence: 1 minute\n"}, {}, (B, 1, "silence: b is no external table over topics")),
        ({A: "mirror_offsets: two words\n"}, {}, (A, 1, "mirror_offsets must be a consumer group")),
        ({B: "owner: me\nmirror_offsets: g\n"}, {}, (B, 2, "mirror_offsets: b streams no topic")),
        ({LANDED: "mirror_offsets: g\n"}, {}, (LANDED, 1, "mirror_offsets: landed streams no topic")),
        (
            {LANDED: "owner: me\ncompatibility: full\n"}, {},
            (LANDED, 2, "compatibility: landed is external, and Headgate does not edit its columns"),
        ),
        (
            {A: "mirror_offsets: g\n", B: "mirror_offsets: g\n"}, {"b": "SELECT id, kind FROM STREAM landed"},
            (B, 1, "mirror_offsets: b and a commit offsets of topic t to one group, g"),
        ),
    ],
)  # fmt: skip
def test_what_has_no_effect_or_shares_a_group_is_a_problem(
    yml: dict[str, str], selects: dict[str, str], expected: tuple[str, int, str]
) -> None:
    found = read_project(on_topics(yml, **selects))[1]
    assert found[0].where is not None and found[0].remedy
    assert (found[0].where.path, found[0].where.line, found[0].summary) == expected


def test_a_default_of_the_project_is_no_group() -> None:
    files = on_topics({})
    found = read_project(files | {"headgate.yml": files["headgate.yml"] + "defaults: {mirror_offsets: g}\n"})[1]
    assert [problem.summary for problem in found] == ["defaults.mirror_offsets must be in the yml of a statement"]


def test_statements_with_groups_of_their_own_are_fine() -> None:
    yml = {A: "mirror_offsets: g\n", B: "mirror_offsets: h\n"}
    assert read_project(on_topics(yml, b="SELECT id, kind FROM STREAM landed"))[1] == ()
