"""headgate report: the hierarchy of a table as a tree, as nested data, and as a picture; and its errors."""

import json
import shutil
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest
import yaml
from command_line import written

from tui.command_line import exit_codes
from tui.commands.inventory_report import MOST_LEVELS

SAMPLE = Path(__file__).parents[3] / "pipelines/samples/pizzeria"


@pytest.fixture
def pizzeria(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The sample project as the current folder, never started."""
    shutil.copytree(SAMPLE, tmp_path / "pizzeria")
    monkeypatch.setenv("HEADGATE_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path / "pizzeria")
    return tmp_path / "pizzeria"


TREE = """\
TABLE                PRODUCT  LAYER         KIND       VER  STATE  LAG
int_order_items      sales    intermediate  stateless
upstream
  src_orders         sales    source        stateful
    orders           sales    source        external
feeds
  fct_kitchen_load   kitchen  fact          stateful
    vw_busy_windows  kitchen  view          stateless
  int_priced_items   sales    intermediate  stateless
    fct_revenue      sales    fact          stateful
"""

NARROW = """\
TABLE                    KIND       VER  STATE  LAG
int_priced_items         stateless
upstream
  int_order_items        stateless
    src_orders (1 more)  stateful
  pizzas (static)        external
"""


def test_a_tree_up_and_down(pizzeria: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_codes.run_command_line(["report", "INT_ORDER_ITEMS"]) == 0
    assert capsys.readouterr().out == TREE


def test_a_narrow_terminal_leaves_out_what_is_least_needed_and_never_a_name(
    pizzeria: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "58")
    assert exit_codes.run_command_line(["report", "int_priced_items", "--up", "--depth", "2"]) == 0
    said = capsys.readouterr().out
    assert said == NARROW
    assert max(len(line) for line in said.splitlines()) <= 58


def test_a_ledger_adds_version_state_and_lag(
    folder: Path, ledger: Any, deployed: Any, measured: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger.put_deployment(deployed("a", version=4, state="degraded"))
    ledger.put_measurements([measured("a", version=4, lag_rows=1500, exact=False)])
    assert exit_codes.run_command_line(["report", "a", "--up"]) == 0
    assert capsys.readouterr().out.splitlines()[1].split() == [
        "a",
        "p",
        "source",
        "stateless",
        "v4",
        "degraded",
        "~1.5k",
    ]
    found = written(["report", "b", "--up"], capsys)["parents"][0]
    assert {key: found[key] for key in ("table", "version", "state", "lag_rows", "trend", "streamed")} == {
        "table": "a", "version": 4, "state": "degraded", "lag_rows": 1500, "trend": "steady", "streamed": True,
    }  # fmt: skip


def test_a_deployed_statement_that_reads_what_is_gone_shows_it(
    folder: Path, ledger: Any, deployed: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger.put_deployment(deployed("old", reads="vanished"))
    assert exit_codes.run_command_line(["report", "old"]) == 0
    assert [line.split() for line in capsys.readouterr().out.splitlines()[1:4]] == [
        ["old", "p", "fact", "stateless", "v1", "running"], ["upstream"], ["vanished", "gone"],
    ]  # fmt: skip
    (gone,) = written(["report", "old"], capsys)["parents"]
    assert gone == {"table": "vanished", "declared": False, "state": None, "streamed": True, "parents": []}


@pytest.mark.parametrize(("stateful", "kind"), [(False, ["keyed"]), (True, ["keyed,", "stateful"])])
def test_a_table_whose_rows_replace_others_is_called_keyed(
    stateful: bool, kind: list[str], folder: Path, ledger: Any, deployed: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger.put_deployment(deployed("old", mode="upsert/2", stateful=stateful))
    assert exit_codes.run_command_line(["report", "old", "--up"]) == 0
    assert capsys.readouterr().out.splitlines()[1].split() == ["old", "p", "fact", *kind, "v1", "running"]
    found = written(["report", "old", "--up"], capsys)
    assert (found["keyed"], found["stateful"]) == (True, stateful)


def test_json_and_yaml_nest_the_same(pizzeria: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = written(["report", "int_priced_items"], capsys)
    assert list(found)[:4] == ["format", "project", "environment", "table"]
    assert [(parent["table"], parent["streamed"]) for parent in found["parents"]] == [
        ("int_order_items", True), ("pizzas", False),
    ]  # fmt: skip
    assert found["parents"][0]["parents"][0]["parents"][0]["table"] == "orders"
    assert [child["table"] for child in found["children"]] == ["fct_revenue"]
    assert exit_codes.run_command_line(["report", "int_priced_items", "--yaml"]) == 0
    assert yaml.safe_load(capsys.readouterr().out) == found


def test_one_direction_has_no_key_of_the_other(pizzeria: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "parents" not in written(["report", "src_orders", "--down"], capsys)


def test_a_picture_has_each_table_once_and_a_line_for_each_reading(
    pizzeria: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_codes.run_command_line(["report", "int_priced_items", "--svg", "r.svg"]) == 0
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "written: r.svg\n")
    root = ElementTree.parse(pizzeria / "r.svg").getroot()
    space = "{http://www.w3.org/2000/svg}"
    heads = [text.text for text in root.iter(f"{space}text") if text.get("class") == "head"]
    assert sorted(str(head) for head in heads) == [
        "fct_revenue", "int_order_items", "int_priced_items", "orders", "pizzas", "src_orders",
    ]  # fmt: skip
    lines = [path.get("class") for path in root.iter(f"{space}path") if str(path.get("class")).startswith("line")]
    assert sorted(map(str, lines)) == ["line condition", *["line value"] * 4]


@pytest.mark.parametrize(
    ("words", "summary"),
    [
        ("report pizza", "pizza is neither declared nor deployed"),
        ("report ` --up", "a table without a name is neither declared nor deployed"),
        ("report pizzas --depth 0", "argument --depth: '0' is not a whole number from 1 to 1000000"),
        ("report pizzas --yaml", "--json and --yaml cannot be combined"),
        ("report pizzas --svg no/such/r.svg", "cannot be written: No such file or directory"),
    ],
)
def test_a_mistake_is_one_sentence(
    pizzeria: Path, capsys: pytest.CaptureFixture[str], words: str, summary: str
) -> None:
    error = written(words.split(), capsys, 2)["error"]
    assert summary in error["summary"] and error["remedy"]


def test_a_hierarchy_too_deep_to_be_nested_names_the_depth(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    above = "b"
    for number in range(MOST_LEVELS):
        name = f"c{number:03d}"
        scripts = folder / f"pipelines/facts/p/{name}/sql-scripts"
        scripts.mkdir(parents=True)
        (scripts / f"ddl.{name}.sql").write_text(f"CREATE TABLE {name} (id BIGINT, kind STRING) USING parquet;")
        (scripts / f"dml.{name}.sql").write_text(f"INSERT INTO {name} SELECT id, kind FROM STREAM {above};")
        above = name
    assert f"--depth {MOST_LEVELS}" in written(["report", above], capsys, 2)["error"]["remedy"]
    found = written(["report", above, "--up", "--depth", str(MOST_LEVELS)], capsys)
    assert json.dumps(found).count('"parents"') == MOST_LEVELS + 1
    assert exit_codes.run_command_line(["report", above, "--up", "--yaml", "--depth", str(MOST_LEVELS)]) == 0
    assert yaml.safe_load(capsys.readouterr().out) == found
