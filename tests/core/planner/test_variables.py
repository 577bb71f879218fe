"""A changed value is an edit of the tables that use it, and its plan shows the variable with both values."""

import pytest

from core.changes.kinds import ChangeKind
from core.model.names import TableName as T
from core.plan.codec import plan_as_json, plan_from_json, plan_hash
from core.plan.descriptions import node_why
from core.plan.diff import compare_plans, difference_words
from core.plan.model import Plan
from core.project.model import Project
from core.project_reader.git_comparison import compare_with_commit
from core.project_reader.loader import read_project
from core.project_reader.parse_cache import ParseCache
from core.project_reader.revision_reader import read_revision, revision_of
from tests.support.domain_builders import deployed, evidence_of, plan

COLUMNS = "id BIGINT, kind STRING, n BIGINT, ts TIMESTAMP"
PLACES = {"src": "sources/p/src", "other": "sources/p/other", "a": "facts/p/a"}


def texts(select: str, value: str, *, type: str = "string", yml: str = "trigger: 10 seconds\n") -> dict[str, str]:
    head = (
        "project: shop\nid: 12345678-1234-5678-1234-567812345678\ndefault_env: dev\n"
        f"variables: {{v: {{type: {type}}}, shown: {{type: string, default: same}}}}\n"
        f"environments:\n  dev: {{variables: {{v: {value}}}}}\n"
        f"  prod: {{data: data-prod, variables: {{v: {value}, shown: other}}}}\n"
    )
    paths = {name: f"pipelines/{place}/sql-scripts" for name, place in PLACES.items()}
    return {
        "headgate.yml": head,
        **{
            f"{paths[name]}/ddl.{name}.sql": f"CREATE TABLE {name} ({COLUMNS}) USING json LOCATION '{name}';"
            for name in ("src", "other")
        },
        f"{paths['a']}/ddl.a.sql": "CREATE TABLE a (id BIGINT, n BIGINT) USING parquet COMMENT '${shown}';",
        f"{paths['a']}/dml.a.sql": f"INSERT INTO a\n{select};\n",
        f"pipelines/{PLACES['a']}/a.yml": yml,
    }


def project(found: dict[str, str]) -> Project:
    read, problems = read_project(found, environment="dev")
    assert read is not None, problems
    return read


def planned(before: dict[str, str], after: dict[str, str], table: str = "a") -> Plan:
    """Plan a table of `after`, with the tables of `before` deployed."""
    old = project(before)
    observed = {name: deployed(each, bindings={"src": 0, "other": 0}) for name, each in old.tables.items()}
    return plan(project(after), observed, table)


@pytest.mark.parametrize(
    ("select", "type", "values", "kind", "action"),
    [
        ("SELECT id, n FROM STREAM src WHERE kind = ${v}", "string", ("x", "y"), "filter_or_projection", "restart"),
        ("SELECT id, n + ${v} AS n FROM STREAM src", "int", ("1", "2"), "filter_or_projection", "restart"),
        ("SELECT id, n FROM STREAM ${v}", "identifier", ("src", "other"), "source_replaced", "rebuild"),
        ("SELECT max(n) AS id, count(*) AS n FROM STREAM src WATERMARK ts DELAY OF INTERVAL 1 DAY "
         "GROUP BY window(ts, '1 hour'), ${v}", "identifier", ("id", "kind"),
         "state_changed", "rebuild"),
        ("SELECT max(id) AS id, count(*) AS n FROM STREAM src WATERMARK ts DELAY OF ${v} GROUP BY window(ts, '1 hour')",
         "interval", ("1 minute", "2 minutes"), "watermark_delay", "restart"),
        ("SELECT max(id) AS id, count(*) AS n FROM STREAM src WATERMARK ts DELAY OF INTERVAL 1 DAY "
         "GROUP BY window(ts, '${v}')", "interval", ("1 hour", "2 hours"), "state_changed", "rebuild"),
        ("SELECT id, n FROM STREAM src -- ${v}\nWHERE 'same' = '${v}' OR true", "string", ("x", "x"), "none", "keep"),
    ],
)  # fmt: skip
def test_a_changed_value_is_classified_by_what_it_changes(
    select: str, type: str, values: tuple[str, str], kind: str, action: str
) -> None:
    found = planned(*(texts(select, value, type=type) for value in values))
    node = next(node for node in found.nodes if node.table == "a")
    assert (node.change, node.action) == (ChangeKind(kind), action), evidence_of(node)
    shown = [words for words in evidence_of(node) if words.startswith("variable")]
    assert shown == ([] if kind == "none" else [f"variable v: {values[0]} → {values[1]}"])


def test_another_path_of_an_input_is_refused_with_the_variable() -> None:
    """What a checkpoint has read means nothing in other files."""
    before, after = (texts("SELECT id, n FROM STREAM src", value) for value in ("one", "two"))
    for found in (before, after):
        path = f"pipelines/{PLACES['src']}/sql-scripts/ddl.src.sql"
        found[path] = found[path].replace("LOCATION 'src'", "LOCATION '/in/${v}'")
    (refused,) = planned(before, after, "src").refusals
    assert refused.summary == "src is external and changed: location: /in/one → /in/two, variable v: one → two"


def test_a_setting_with_a_variable_is_an_edit_of_that_setting() -> None:
    select, yml = "SELECT id, n FROM STREAM src", "trigger: ${v} seconds\n"
    found = planned(*(texts(select, value, type="int", yml=yml) for value in ("10", "30")))
    (node,) = (node for node in found.nodes if node.table == "a")
    assert (node.change, evidence_of(node)) == (
        ChangeKind.TRIGGER_OR_RATE,
        ("trigger: 10 seconds → 30 seconds", "variable v: 10 → 30"),
    )


def test_a_literal_replaced_by_an_equal_variable_is_only_recorded() -> None:
    before = texts("SELECT id, n FROM STREAM src WHERE kind = 'x'", "x")
    found = planned(before, texts("SELECT id, n FROM STREAM src WHERE kind = ${v}", "x"))
    (node,) = (node for node in found.nodes if node.table == "a")
    assert (str(node.action), node.change) == ("record", ChangeKind.COMMENT_OR_FORMAT)
    assert evidence_of(node) == ("it uses the variable v, which is x",)
    back = planned(texts("SELECT id, n FROM STREAM src WHERE kind = ${v}", "x"), before)
    assert evidence_of(back.nodes[-1]) == ("it no longer uses the variable v",)


def test_a_plan_keeps_the_variables_of_both_revisions() -> None:
    select = "SELECT id, n FROM STREAM src WHERE kind = ${v}"
    found = planned(texts(select, "x"), texts(select, "y"))
    (node,) = (node for node in found.nodes if node.table == "a")
    assert (dict(node.old.variables), dict(node.texts.variables)) == (
        {"shown": "same", "v": "x"},
        {"shown": "same", "v": "y"},
    )
    assert node.texts.as_written.dml == f"INSERT INTO a\n{select};\n"
    again = plan_from_json(plan_as_json(found))
    assert again == found and plan_hash(again) == found.hash
    assert "  evidence: variable v: x → y" in node_why(found, T("a"))
    read = read_revision(T("a"), node.texts, project(texts(select, "y")).defaults)
    assert read is not None and read.hash == node.revision


def test_the_difference_of_two_plans_names_the_variables() -> None:
    select = "SELECT id, n FROM STREAM src WHERE kind = ${v}"
    first, second = (planned(texts(select, "x"), texts(select, value)) for value in ("y", "z"))
    said = [difference_words(each) for each in compare_plans(first, second)]
    assert any("new variables" in each and "v = y" in each and "v = z" in each for each in said), said


def test_the_plan_of_a_new_table_shows_its_values() -> None:
    declared = project(texts("SELECT id, n FROM STREAM src WHERE kind = ${v}", "x"))
    found = plan(declared, {}, "a")
    assert "  variables: shown = same, v = x" in node_why(found, T("a"))


def test_a_value_that_changed_since_a_commit_changes_its_tables_only() -> None:
    select = "SELECT id, n FROM STREAM src WHERE kind = ${v}"
    old, new = texts(select, "x"), texts(select, "y")
    then = {"headgate.yml": old["headgate.yml"]}
    found = compare_with_commit("main", project(new), new, then, ParseCache(), environment="dev")
    assert (found.changed, found.settings) == ((T("a"),), ("variables.v",))
    assert found.before[T("a")] == revision_of(project(old).tables[T("a")]).texts
