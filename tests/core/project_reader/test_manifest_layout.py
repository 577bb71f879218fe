"""A project of YAML manifests gives the tables and statements of the usual layout, and Problems in its own files."""

from collections.abc import Mapping

import pytest

from core.model.names import TableName as T
from core.model.problems import Problem, Severity
from core.project.model import Layer, Project
from core.project.unreadable_file import UnreadableFile
from core.project_reader.loader import read_project, read_sound_tables
from core.project_reader.manifest_layout import generated_texts
from core.project_reader.revision_reader import revision_of
from core.sql.registered_functions import READING_PYTHON
from tests.support.manifest_project import DEAR, HEADGATE, OUT, files


def good(found: Mapping[str, str]) -> Project:
    project, problems = read_project(generated_texts(found))
    assert project is not None and not problems, problems
    return project


def wrong(found: Mapping[str, str]) -> tuple[Problem, ...]:
    problems = read_sound_tables(generated_texts(found))[1]
    assert all(problem.remedy and problem.where for problem in problems), problems
    assert all(problem.where and problem.where.path in found for problem in problems), problems
    return problems


def lines(found: Mapping[str, str]) -> list[str]:
    return [f"{problem.where}: {problem.summary}" for problem in wrong(found)]


def test_each_manifest_is_a_statement_and_a_table_that_none_writes_is_external() -> None:
    project = good(files())
    assert {name: (table.external, table.layer, table.unit) for name, table in project.tables.items()} == {
        "cheap": (False, Layer.FACT, "cheap_orders"),
        "dear": (False, Layer.FACT, "dear_orders"),
        "orders": (True, Layer.SOURCE, "orders"),
    }
    cheap = project.tables[T("cheap")]
    assert cheap.dml is not None and cheap.parsed is not None
    assert cheap.dml.text == (
        "INSERT INTO cheap\nSELECT\n    `id`,\n    `price`\nFROM\n    STREAM `orders`\nWHERE\n    `price` < 10\n"
    )
    assert (cheap.settings.description, cheap.manifest) == ("Orders below 10", "manifests/cheap.yaml")
    assert (cheap.dml.file, cheap.ddl.file) == ("manifests/cheap.yaml", "schemas/out.sql")


def test_the_revision_of_a_table_does_not_depend_on_where_its_files_have_it() -> None:
    before, moved = good(files()).tables, files(schemas__out_sql="\n\n-- Outputs.\n" + OUT)
    moved["manifests/dear.yml"] = "# A note.\n\n" + DEAR.replace("\n  ", "\n    ")
    after = good(moved).tables
    assert {name: revision_of(table).hash for name, table in after.items()} == {
        name: revision_of(table).hash for name, table in before.items()
    }
    dear = after[T("dear")]
    assert dear.dml is not None and str(dear.dml.at(3)) == "manifests/dear.yml:7"
    assert str(dear.ddl.at(3)) == "schemas/out.sql:9"


def test_settings_are_merged_over_templates_and_these_over_headgate_yml() -> None:
    found = files(
        headgate_yml=None,
        base_yaml="trigger: 1 minute\nowner: base\nobjective: {behind: 5 minutes}\nlayer: intermediate\n",
        job__template_yaml=None,
    )
    found["headgate.yml"] = HEADGATE + "defaults: {trigger: 9 seconds, owner: all, runbook: here}\n"
    found["job-template.yaml"] = "template: base.yaml\nowner: template\ntags: [a, b]\nproduct: shop\n"
    found["manifests/dear.yml"] = DEAR + "tags: [c]\ntrigger:\n"
    dear = good(found).tables[T("dear")]
    settings = dear.settings
    assert (settings.trigger, settings.owner, settings.runbook) == ("1 minute", "template", "here")
    assert (settings.objective, settings.tags) == ("5 minutes", ("c",))
    assert (dear.product, dear.layer) == ("shop", Layer.INTERMEDIATE)


def test_a_statement_set_gives_each_of_its_statements_a_name_of_its_own_in_one_unit() -> None:
    text = """name: split
trigger: 3 seconds
statements:
  - target-table: cheap
    sql: SELECT id, price FROM STREAM orders WHERE price < 10
  - target-table: dear
    trigger: 5 seconds
    sql: |
      SELECT id, price
      FROM STREAM orders
"""
    tables = good(files(manifests__cheap_yaml=None) | {"manifests/dear.yml": text}).tables
    assert {tables[T(name)].unit for name in ("cheap", "dear")} == {"split"}
    assert [tables[T(name)].settings.trigger for name in ("cheap", "dear")] == ["3 seconds", "5 seconds"]
    dear = tables[T("dear")]
    assert dear.dml is not None and str(dear.dml.at(3)) == "manifests/dear.yml:10"


def test_variables_in_a_manifest_have_their_values_and_are_known_as_written() -> None:
    found = files()
    found["headgate.yml"] = HEADGATE.replace("dev: {}", "dev: {variables: {limit: 20}}") + (
        "variables:\n  limit: {type: int}\n  often: {type: string, default: 7 seconds}\n"
    )
    found["manifests/dear.yml"] = DEAR.replace(">= 10", ">= ${limit}") + "trigger: ${often}\n"
    dear = good(found).tables[T("dear")]
    assert dear.dml is not None and dear.dml.text.endswith("WHERE price >= 20\n")
    assert dear.settings.trigger == "7 seconds"
    assert dict(dear.variables) == {"limit": "20", "often": "7 seconds"}
    found["manifests/dear.yml"] = found["manifests/dear.yml"].replace("${limit}", "${limits}")
    assert lines(found)[1:] == ["manifests/dear.yml:6:18: limits is not a declared variable"]


def test_an_external_table_has_the_settings_beside_the_file_that_declares_it() -> None:
    found = files() | {"schemas/orders.yml": "description: what customers order\nreaders: [finance]\n"}
    assert good(found).tables[T("orders")].settings.readers == ("finance",)
    found["schemas/orders.yml"] = "owner: a\nsilence: never\n"
    assert "schemas/orders.yml:2: silence must be an interval" in lines(found)
    found["schemas/orders.yml"] = ""
    found["schemas/order.yml"] = "owner: a\n"
    assert lines(found) == ["schemas/order.yml: schemas/order.yml matches no external table"]


CODE = "name: a\ntarget-table: dear\ncode: |\n\n  def dear(orders):\n      return orders\n"


def test_the_query_has_the_name_of_its_manifest() -> None:
    assert good(files()).tables[T("dear")].settings.query_name == "dear-orders"
    named = good(files() | {"manifests/dear.yml": DEAR.replace("dear-orders", "'null'")}).tables[T("dear")]
    assert named.settings.query_name == "null"


def test_code_is_a_job_whose_lines_are_those_of_the_manifest() -> None:
    dear = good(files() | {"manifests/dear.yml": CODE.replace("orders\n", "orders\nrequirements: [numpy]\n")}).tables[
        T("dear")
    ]
    assert dear.parsed is not None and dear.parsed.in_python and dear.settings.requirements == ("numpy",)
    assert dear.dml is not None and [str(dear.dml.at(n)) for n in (2, 7, 8)] == [
        f"manifests/dear.yml:{line}" for line in (5, 5, 6)
    ]


MISTAKES = {
    "no target": (DEAR.replace("target-table: dear\n", ""), "1: there is no target-table"),
    "no name": (DEAR.replace("name: dear-orders\n", ""), "1: the manifest has no name"),
    "both sql and code": (DEAR + "code: x\n", "7: the manifest has sql and code"),
    "neither": ("name: a\ntarget-table: dear\n", "1: the manifest has neither sql nor code"),
    "unknown key": (DEAR + "triger: 1 second\n", "7: triger is not a known key"),
    "tab": ("name: a\n\ttarget-table: dear\n", "2:1: this file is not valid YAML"),
    "not a mapping": ("- a\n", "1: this file must be a mapping"),
    "two documents": (DEAR + "---\nname: b\n", "7:1: this file is not valid YAML: it contains a second document"),
    "not a string": (DEAR.replace("dear-orders", "7"), "1: name must be a string"),
    "sql not a string": ("name: a\ntarget-table: dear\nsql: 7\n", "3: sql must be a string"),
    "sql a list": ("name: a\ntarget-table: dear\nsql: [a]\n", "3: sql must be one value"),
    "empty sql": ("name: a\ntarget-table: dear\nsql: ''\n", "3: sql must be a SELECT"),
    "undeclared target": (DEAR.replace("table: dear", "table: deer"), "2: no file of table definitions declares"),
    "qualified target": (DEAR.replace("table: dear", "table: '`kafka`.`dear`'"), "2: target-table `kafka`.`dear`"),
    "no table name": (DEAR.replace("table: dear", "table: de-ar"), "2: 'de-ar' is not a table name"),
    "no name of a job": (DEAR.replace("dear-orders", "'1 x'"), "1: name must be a name of letters"),
    "sql that does not parse": (DEAR.replace("price >= 10", "price >="), "6:15: the SQL cannot be parsed"),
    "unknown column": (DEAR.replace("SELECT id", "SELECT idd"), "4: dear reads idd, a column that"),
    "undeclared input": (DEAR.replace("STREAM orders", "STREAM ordres"), "5: dear reads ordres, which no DDL declares"),
    "an INSERT": (DEAR.replace("SELECT id", "INSERT INTO dear SELECT id"), "4: sql begins with INSERT"),
    "no query": (DEAR.replace("SELECT id, price", "/* a").replace(">= 10", ">= 10 */"), "4: sql contains no query"),
    "no SELECT": (DEAR.replace("SELECT id, price", "-- a\n  UPDATE orders"), "5: sql begins with UPDATE"),
    "no stream": (DEAR.replace("STREAM ", ""), "3: the statement reads no stream"),
    "columns": (DEAR.replace("id, price", "id"), "3: dear has 2 columns and its statement writes 1"),
    "two statements": (DEAR.replace("SELECT id", "SELECT ';';\n  SELECT id"), "4: sql contains several statements"),
    "a comment in a folded value": (DEAR.replace("|", ">").replace("price\n", "price -- x\n"), "4: this comment hides"),
    "wrong setting": (DEAR + "trigger: often\n", "7: trigger must be an interval"),
    "wrong setting below": (DEAR + "objective:\n  behind: often\n", "7: objective.behind must be an interval"),
    "a mapping over a value": (DEAR + "owner: {a: b}\n", "7: owner must be one value"),
    "a setting of Flink": (DEAR + "flinkProperties:\n  state.backend: rocksdb\n", "8: state.backend is a setting"),
    "a setting of Spark": (DEAR + "sparkProperties: {spark.sql.x: 1}\n", "7: the pool of dev does not set spark.sql.x"),
    "an empty set": ("name: a\nstatements: []\n", "2: statements must be a list"),
    "a set of strings": ("name: a\nstatements: [a]\n", "2: each of statements must be a mapping"),
    "a set without sql": ("name: a\nstatements:\n  - target-table: dear\n", "3: this statement has no sql"),
    "a set with a target": (
        "name: a\ntarget-table: dear\nstatements: [{target-table: dear, sql: SELECT 1}]\n",
        "2: target-table must be in each of the statements",
    ),
    "no layer": (DEAR + "layer: middle\n", "7: layer must be one of"),
    "no product": (DEAR + "product: A B\n", "7: product must be a name"),
    "template missing": (DEAR + "template: none.yaml\n", "7: the template none.yaml does not exist"),
    "itself as template": (DEAR + "template: ../x.yaml\n", "7: the template ../x.yaml does not exist"),
    "bad encoding": (UnreadableFile("it is not UTF-8", "save it as UTF-8"), "dear.yml cannot be read"),
    "another function": ("name: a\ntarget-table: dear\ncode: |\n  x = 1\n", "4: the job defines no function dear"),
    "folded code": ("name: a\ntarget-table: dear\ncode: >\n  x = 1\n  y = 2\n", "3: YAML joins the lines of this code"),
    "code in quotes": (
        'name: a\ntarget-table: dear\ncode: "x = 1\\ndef dear(orders:"\n',
        f"3: the code is not valid Python {READING_PYTHON}",
    ),
    "empty code": ("name: a\ntarget-table: dear\ncode: ''\n", "3: code must be the text of a Python module"),
    "code that does not compile": (
        CODE.replace("(orders)", "(orders"),
        f"5: the code is not valid Python {READING_PYTHON}",
    ),
    "an input of code": (CODE + "inputs: {order: orders}\n", "7: inputs has order, which is no parameter"),
    "an input that is no table": (CODE + "inputs: {orders: 'orders, b'}\n", "7: the input orders must be one table"),
    "an undeclared input of code": (CODE.replace("(orders)", "(ordres)"), "5: dear reads ordres, which no DDL"),
    "an option as a requirement": (CODE + "requirements: [--pre]\n", "7: requirements must be a list of packages"),
    "a yes for all code": (CODE + "state_compatible: true\n", "7: state_compatible must be"),
}  # fmt: skip
"""Manifests, each with the line and the first words of the Problem that it gives."""


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_is_a_problem_at_its_line_and_leaves_the_other_tables_readable(case: str) -> None:
    text, expected = MISTAKES[case]
    found = files() | {"manifests/dear.yml": text}
    shown = [
        f"{problem.where}: {problem.summary}".removeprefix("manifests/dear.yml:").strip() for problem in wrong(found)
    ]
    assert any(line.startswith(expected) for line in shown), shown
    project, _ = read_sound_tables(generated_texts(found))
    assert project is not None and T("cheap") in project.tables
    assert T("dear") not in project.tables or project.tables[T("dear")].external


def test_all_mistakes_of_all_manifests_are_reported_at_once() -> None:
    texts = {f"manifests/m{n}.yaml": text for n, (text, _) in enumerate(MISTAKES.values())}
    reported = {problem.where.path for problem in wrong(files() | texts) if problem.where}
    assert reported >= texts.keys()


def test_two_manifests_of_one_name_or_one_target_are_both_refused() -> None:
    again = DEAR.replace("dear-orders", "cheap_orders")
    found = files() | {"manifests/dear.yml": again}
    assert lines(found) == [
        "manifests/dear.yml:1: the names cheap-orders and cheap_orders differ only in case or punctuation"
    ]
    project, _ = read_sound_tables(generated_texts(found))
    assert project is not None and set(project.broken) == {"cheap", "dear"}
    found = files() | {"manifests/dear.yml": DEAR.replace("table: dear", "table: cheap")}
    assert "manifests/dear.yml:2: cheap has two writers" in lines(found)
    project, _ = read_sound_tables(generated_texts(found))
    assert project is not None and set(project.broken) == {"cheap", "dear"}


def test_templates_that_form_a_circle_are_a_problem_of_each_manifest_that_uses_them() -> None:
    found = files() | {"a.yaml": "template: b.yaml\n", "b.yaml": "template: a.yaml\n"}
    found["manifests/dear.yml"] = DEAR + "template: a.yaml\n"
    assert lines(found) == ["b.yaml:1: the templates form a circle: a.yaml → b.yaml → a.yaml"]
    project, _ = read_sound_tables(generated_texts(found))
    assert project is not None and set(project.broken) == {"dear"}


def test_a_mistake_in_a_template_breaks_only_the_manifests_that_use_it() -> None:
    found = files() | {"a.yaml": "name: x\nsilence: 1 minute\nfoo: bar\n"}
    found["manifests/dear.yml"] = DEAR + "template: a.yaml\n"
    assert lines(found) == [
        "a.yaml:1: name must be in a manifest, because it belongs to one job",
        "a.yaml:2: silence must be in a manifest, because it belongs to one job",
        "a.yaml:3: foo is not a known key",
    ]
    project, _ = read_sound_tables(generated_texts(found))
    assert project is not None and set(project.broken) == {"dear"} and not project.stray


def test_a_mapping_and_a_value_under_one_key_are_not_merged() -> None:
    found = files() | {
        "job-template.yaml": "objective: {behind: 1 minute}\n",
        "manifests/dear.yml": DEAR + "objective: 1\n",
    }
    assert "manifests/dear.yml:7: objective is one value here and a mapping in job-template.yaml:1" in lines(found)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("layout: manifests", "layout: manifest", "headgate.yml:6: layout must be folders or manifests"),
        ("layout: manifests\n", "", "headgate.yml:6: manifests must be left out"),
        ("  tables: [schemas/in.sql, schemas/out.sql]", "  folder: a", "headgate.yml:8: manifests.tables must"),
        ("schemas/in.sql", "schemas/no.sql", "headgate.yml:8: schemas/no.sql does not exist"),
        ("  tables", "  template: no.yaml\n  tables", "headgate.yml:8: no.yaml does not exist"),
        ("  tables", "  folder: ../x\n  tables", "headgate.yml:8: manifests.folder must be a path below"),
        ("  tables", "  folder: pipelines/a\n  tables", "headgate.yml:8: manifests.folder must be outside"),
        ("  tables", "  tabels: a\n  tables", "headgate.yml:8: manifests.tabels is not a known key"),
    ],
)  # fmt: skip
def test_a_mistake_about_the_layout_is_one_of_headgate_yml(old: str, new: str, expected: str) -> None:
    found = files() | {"headgate.yml": HEADGATE.replace(old, new)}
    shown = lines(found)
    assert any(line.startswith(expected) for line in shown), shown
    assert read_project(generated_texts(found))[0] is None


def test_a_mistake_in_the_table_definitions_has_its_line() -> None:
    found = files(
        schemas__out_sql=OUT + "CREATE TABLE cheap (a INT) USING parquet;\nDROP TABLE x;\nCREATE TABLE z (a INT"
    )
    assert lines(found) == [
        "schemas/out.sql:8: cheap is declared twice",
        "schemas/out.sql:9: a file of table definitions contains CREATE TABLE, not DROP TABLE",
        "schemas/out.sql:10:16: this bracket is never closed",
    ]
    found = files(schemas__out_sql=OUT.replace("price DOUBLE -- in", "price DOUBEL -- in"))
    assert [line.rpartition(":")[0] for line in lines(found)] == ["schemas/out.sql:6:9"]


def test_only_errors_of_severity_error_make_a_table_unreadable() -> None:
    assert {problem.severity for problem in wrong(files() | {"schemas/x.yml": "a: 1\n"})} == {Severity.WARNING}
