"""The option `metadata`: where it is set, the columns and refused names, and how a change of it is planned."""

from dataclasses import replace

import pytest

from core.changes.classification import classify
from core.changes.kinds import ChangeKind
from core.lineage.column_lineage import UPSTREAM, LineageTracer
from core.model.actions import Action
from core.model.names import TableName as T
from core.observed.planner_input import ObservedDeployment
from core.observed.versions import Binding
from core.plan.model import Plan
from core.plan.request import PlanRequest
from core.planner.planner import make_plan
from core.project.model import Project, Settings
from core.project_reader.loader import read_project
from core.project_reader.parse_cache import ParseCache
from core.project_reader.revision_reader import read_revision, revision_of
from core.project_reader.table_yml import deployed_yml_as_file
from core.sql.metadata_columns import METADATA_COLUMNS, declares_metadata, with_metadata_columns
from core.statement_tests.fixture_rows import expected_columns_of
from tests.core.project_reader.test_loader import MANIFEST, errors, good, texts
from tests.support.domain_builders import evidence_of

A, B, SRC = T("a"), T("b"), T("src")
FOLDER = "pipelines/facts/p/a"
YML = f"{FOLDER}/a.yml"
ON = {YML: "metadata: true\n"}
ALL = [column.name for column in METADATA_COLUMNS]


def shop(*extra: tuple[str, str], a: str = "SELECT id FROM STREAM src", b: str = "SELECT id FROM STREAM a") -> Project:
    return good(texts(*extra, src="", a=a, b=b))


def names(project: Project, table: T) -> list[str]:
    return [column.name for column in project.tables[table].parsed_ddl.columns]


@pytest.mark.parametrize(
    ("project", "product", "table", "expected"),
    [
        ("", "", "", False),
        ("true", "", "", True),
        ("true", "false", "", False),
        ("false", "true", "", True),
        ("", "true", "false", False),
        ("true", "false", "true", True),
    ],
)
def test_the_nearest_value_wins(project: str, product: str, table: str, expected: bool) -> None:
    manifest = MANIFEST
    manifest += f"defaults: {{metadata: {project}}}\n" if project else ""
    manifest += f"products: {{p: {{metadata: {product}}}}}\n" if product else ""
    extra = [("headgate.yml", manifest), (YML, f"metadata: {table}\n" if table else "")]
    found = shop(*extra)
    assert found.tables[A].settings.metadata is expected
    assert (names(found, A) == ["id", *ALL]) is expected
    assert names(found, SRC) == ["id"] and not found.tables[SRC].settings.metadata, "an input that others write"
    deployed = deployed_yml_as_file(revision_of(found.tables[A]).texts.yml, found.defaults_of("p"))
    again = shop(("headgate.yml", manifest), (YML, deployed))
    assert revision_of(again.tables[A]).hash == revision_of(found.tables[A]).hash


def test_a_deployed_revision_has_the_columns_whatever_the_defaults_are_now() -> None:
    declared = shop((YML, "metadata: true\n")).tables[A]
    for defaults in (Settings(), Settings(metadata=True)):
        found = read_revision(A, revision_of(declared).texts, defaults)
        assert found is not None and declares_metadata(found.ddl) and found.settings.metadata
        plain = read_revision(A, revision_of(shop().tables[A]).texts, defaults)
        assert plain is not None and not plain.settings.metadata


@pytest.mark.parametrize(
    "ddl",
    [
        "CREATE TABLE a (id BIGINT)\nUSING parquet",
        "CREATE TABLE a (\n  id BIGINT, -- the key :)\n  v DECIMAL(10, 2) COMMENT 'in (EUR)'\n)\nUSING parquet",
        'CREATE TABLE a (/* ( */ `x)` STRUCT<b: DECIMAL(3, 1)> COMMENT "it\\"s )") USING parquet COMMENT \'(a)\'',
    ],
)
def test_columns_are_added_after_the_declared_ones_on_the_same_line(ddl: str) -> None:
    cache = ParseCache()
    before, after = (cache.ddl(text, "ddl.a.sql")[1] for text in (ddl, with_metadata_columns(ddl)))
    assert before is not None and after is not None
    assert after == replace(before, columns=(*before.columns, *METADATA_COLUMNS))
    assert declares_metadata(after) and not declares_metadata(before)
    assert with_metadata_columns(ddl).count("\n") == ddl.count("\n")


def test_a_ddl_that_declares_all_of_them_is_taken_as_it_is() -> None:
    added = revision_of(shop((YML, "metadata: true\n")).tables[A]).texts.ddl
    found = shop((YML, "metadata: true\n"), (f"{FOLDER}/sql-scripts/ddl.a.sql", added))
    assert found.tables[A].ddl.text == added


def test_names_that_collide_are_reported_with_file_line_and_remedy() -> None:
    ddl = "CREATE TABLE a (\n  id BIGINT,\n  __query_id BIGINT\n) USING parquet"
    select = "SELECT id,\n  1 AS __Query_Version\nFROM STREAM src"
    wrong = errors(texts((YML, ON[YML]), (f"{FOLDER}/sql-scripts/ddl.a.sql", ddl), src="", a=select))
    assert [(str(each.where), each.summary) for each in wrong] == [
        (f"{FOLDER}/sql-scripts/ddl.a.sql:3", "a declares __query_id, a column that metadata: true adds"),
        (
            f"{FOLDER}/sql-scripts/dml.a.sql:3",
            "the statement of a writes __query_version, a column that metadata: true adds",
        ),
    ]
    off = "write metadata: false in the yml of the table"
    assert [each.remedy for each in wrong] == [
        f"leave it out or declare all six (headgate help metadata), or {off}", f"give it another name, or {off}",
    ]  # fmt: skip
    assert not read_project(
        texts((f"{FOLDER}/sql-scripts/ddl.a.sql", ddl), src="", a="SELECT id, 1L AS __query_id FROM STREAM src")
    )[1]


def test_metadata_of_an_external_table_and_of_a_product_that_does_not_exist_are_reported() -> None:
    place = "pipelines/sources/p/src/src.yml"
    assert [each.summary for each in errors(texts((place, "metadata: true\n"), src=""))] == [
        "metadata: src is external, and no statement here writes its rows"
    ]
    broken = errors(texts((YML, ON[YML]), src="", a="SELECT id FROM STREAM (SELECT 1)"))
    assert [each.summary for each in broken] == ["STREAM takes the name of one table"]
    manifest = f"{MANIFEST}products: {{other: {{metadata: true}}, p: {{metadata: maybe}}}}\n"
    found = errors(texts(("headgate.yml", manifest), src="", a="SELECT id FROM STREAM src"))
    assert [each.summary for each in found if each.subject != "other"] == ["products.p.metadata must be true or false"]


def test_raw_messages_cannot_have_metadata_and_json_messages_have_it_as_fields() -> None:
    topic = "USING kafka OPTIONS (kafka.bootstrap.servers 'h:9092', topic 't'"
    raw = f"CREATE TABLE a (_key STRING, _value STRING) {topic}, value.format 'raw')"
    json = f"CREATE TABLE a (_key STRING, id BIGINT) {topic})"
    manifest = ("headgate.yml", f"{MANIFEST}connectors: {{kafka: {{}}}}\n")
    place, yml = f"{FOLDER}/sql-scripts/ddl.a.sql", (YML, "metadata: true\nkey: [id]\n")
    wrong = errors(
        texts(
            manifest,
            (YML, "metadata: true\nkey: [_key]\n"),
            (place, raw),
            src="",
            a="SELECT 'k' AS _key, 'v' AS _value FROM STREAM src",
        )
    )
    assert "a writes raw messages, which have no columns for metadata" in [each.summary for each in wrong]
    found = good(texts(manifest, yml, (place, json), src="", a="SELECT 'k' AS _key, id FROM STREAM src"))
    from core.sql.written_topics import message_expressions

    value = message_expressions(found.tables[A].parsed_ddl)[-1]
    fields = ", ".join(f"'{column.name}', CAST({column.name} AS {column.type})" for column in METADATA_COLUMNS)
    assert f"named_struct('id', CAST(id AS bigint), {fields})" in value.replace("`", "")


def test_a_star_passes_metadata_on_only_to_a_reader_without_its_own() -> None:
    for own, above in ((True, []), (False, [(A, "__query_id")])):
        yml = "pipelines/facts/p/b/b.yml"
        place = "pipelines/facts/p/b/sql-scripts/ddl.b.sql"
        columns = (
            f"CREATE TABLE b (id BIGINT, {', '.join(f'{c.name} {c.type}' for c in METADATA_COLUMNS)}) USING parquet"
        )
        extra = [(YML, ON[YML]), (yml, f"metadata: {str(own).lower()}\n"), (place, columns)]
        tracer = LineageTracer(shop(*extra, b="SELECT * FROM STREAM a"))
        at = tracer.column(B, "__query_id")
        assert at is not None
        found = tracer.trace(at, UPSTREAM)
        assert [(edge.source.table, edge.source.column) for edge in found.edges if edge.source.column] == above
        assert not found.gaps
        node = next(each for each in found.nodes if each.at == at)
        assert (node.expression == "added by metadata: true") is own


def test_expected_rows_of_a_test_have_no_metadata() -> None:
    assert expected_columns_of(shop((YML, ON[YML])).tables[A]) == (("id", "bigint"),)


EVENTS = (
    "pipelines/sources/p/src/sql-scripts/ddl.src.sql",
    "CREATE TABLE src (id BIGINT, ts TIMESTAMP) USING json LOCATION 'in'",
)
COUNTS = "SELECT count(*) AS id FROM STREAM src WATERMARK ts DELAY OF INTERVAL 1 MINUTE GROUP BY ts"


@pytest.mark.parametrize(
    ("select", "before", "after", "kind", "evidence"),
    [
        ("SELECT id FROM STREAM src", "", "metadata: true", ChangeKind.COLUMN_ADDED,
         "metadata: false → true"),
        ("SELECT id FROM STREAM src", "metadata: true", "", ChangeKind.COLUMNS_CHANGED, "metadata: true → false"),
        ("SELECT id FROM STREAM src", "metadata: true\ndescription: x", "metadata: true\ndescription: y",
         ChangeKind.FILTER_OR_PROJECTION, "description: x → y"),
        ("SELECT id FROM STREAM src", "metadata: true\ndescription: x", "metadata: true\nowner: y\n",
         ChangeKind.FILTER_OR_PROJECTION, 'description: x → ""'),
        ("SELECT id FROM STREAM src", "metadata: true\nquery_name: x", "metadata: true\nquery_name: y",
         ChangeKind.FILTER_OR_PROJECTION, "query_name: x → y"),
        ("SELECT id FROM STREAM src", "query_name: x", "query_name: y", ChangeKind.DESCRIPTION, "query_name changed"),
        ("SELECT id FROM STREAM src", "description: x", "description: y", ChangeKind.DESCRIPTION,
         "description changed"),
        (COUNTS, "", "metadata: true", ChangeKind.COLUMN_ADDED, "metadata: false → true"),
        (COUNTS, "metadata: true\ndescription: x", "metadata: true\ndescription: y", ChangeKind.CHANGE_AFTER_STATE,
         "description: x → y"),
    ],
)  # fmt: skip
def test_a_change_of_metadata_has_its_kind(
    select: str, before: str, after: str, kind: ChangeKind, evidence: str
) -> None:
    old, new = (revision_of(shop(EVENTS, (YML, yml), a=select).tables[A]) for yml in (before, after))
    found = classify(old, new)
    assert found.kind is kind and evidence in evidence_of(found)
    assert (found.action is Action.REBUILD) == (kind is ChangeKind.COLUMNS_CHANGED)


def planned(now: Project, before: Project, *tables: T) -> Plan:
    observed = {SRC: ObservedDeployment("running")}
    for name, parent in ((A, SRC), (B, A)):
        observed[name] = ObservedDeployment(
            "running", deployed=revision_of(before.tables[name]).texts, version=1, highest_version=1,
            pointer=f"{name}__v1", bindings=(Binding(parent, int(parent != SRC), True),),
        )  # fmt: skip
    return make_plan(now, "dev", observed, PlanRequest(tables=tables or (A,), children="all"))


def test_switching_it_on_alters_the_table_and_restarts_the_statement_on_its_checkpoint() -> None:
    found = planned(shop((YML, ON[YML])), shop())
    assert [(step.do.value, step.table, step.version) for step in found.steps if step.table == A] == [
        ("alter", A, 1), ("restart", A, 1), ("swap", A, 1),
    ]  # fmt: skip
    assert not found.refusals


def test_a_state_over_a_star_of_the_input_is_rebuilt_and_one_below_the_own_columns_is_not() -> None:
    yml = "pipelines/facts/p/b/b.yml"
    place = "pipelines/facts/p/b/sql-scripts/ddl.b.sql"
    distinct = "SELECT DISTINCT * FROM STREAM a WATERMARK ts DELAY OF INTERVAL 1 MINUTE"
    tables = [(f"{FOLDER}/sql-scripts/ddl.a.sql", "CREATE TABLE a (id BIGINT, ts TIMESTAMP) USING parquet"),
              EVENTS,
              (place, "CREATE TABLE b (id BIGINT, ts TIMESTAMP) USING parquet")]  # fmt: skip
    select = {"a": "SELECT id, ts FROM STREAM src", "b": distinct}
    before = shop(*tables, **select)
    only_b = planned(shop(*tables, (yml, "metadata: true\n"), **select), before, B)
    assert {node.table: node.action for node in only_b.nodes}[B] is Action.RESTART
    both = planned(shop(*tables, (YML, ON[YML]), (yml, "metadata: true\n"), **select), before, A, B)
    assert {node.table: node.action for node in both.nodes} == {SRC: Action.KEEP, A: Action.RESTART, B: Action.REBUILD}
