"""headgate inventory: every table with its feeds, its readers and its serving version; and its errors."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
from command_line import written

from tui.command_line import exit_codes


def test_before_the_first_start_the_inventory_is_what_is_declared(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = written(["inventory"], capsys)
    assert list(found) == ["format", "project", "environment", "tables", "functions", "left_out"]
    assert [(t["table"], t["version"], t["state"], [c["table"] for c in t["children"]]) for t in found["tables"]] == [
        ("a", None, None, ["b"]), ("b", None, None, []), ("landed", None, None, ["a"]),
    ]  # fmt: skip
    assert found["tables"][0] == {
        "table": "a", "product": "p", "layer": "source", "format": "parquet", "external": False, "stateful": False,
        "keyed": False,
        "owner": None, "declared": True, "folder": "pipelines/sources/p/a",
        "files": ["pipelines/sources/p/a/sql-scripts/ddl.a.sql", "pipelines/sources/p/a/sql-scripts/dml.a.sql"],
        "parents": [{"table": "landed", "streamed": True}], "children": [{"table": "b", "streamed": True}],
        "other_products": [], "version": None, "state": None,
    }  # fmt: skip


def test_a_ledger_adds_versions_states_and_undeclared_tables(
    folder: Path, ledger: Any, deployed: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger.put_deployment(deployed("a", version=3))
    ledger.put_deployment(deployed("old", reads="b", product="q", state="failed"))
    found = {t["table"]: t for t in written(["inventory"], capsys)["tables"]}
    assert [(name, t["version"], t["state"], t["declared"]) for name, t in found.items()] == [
        ("a", 3, "running", True), ("b", None, None, True), ("landed", None, None, True), ("old", 1, "failed", False),
    ]  # fmt: skip
    assert [t["table"] for t in written(["inventory", "--cross-product"], capsys)["tables"]] == ["b"]
    assert [t["table"] for t in written(["inventory", "--product", "q"], capsys)["tables"]] == ["old"]


def test_people_see_a_line_for_each_table_that_was_asked_for(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_codes.run_command_line(["inventory", "--single-reader"]) == 0
    said = capsys.readouterr()
    assert [line.split() for line in said.out.splitlines()] == [
        ["TABLE", "PRODUCT", "LAYER", "FORMAT", "KIND", "VER", "STATE", "READS", "READ", "BY"],
        ["a", "p", "source", "parquet", "stateless", "1", "b"],
        ["landed", "p", "source", "json", "external", "a"],
    ]
    assert said.err == "shop dev: 2 of 3 tables, 0 deployed\n"


def test_an_unknown_product_is_a_wrong_command(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert written(["inventory", "--product", "pp"], capsys, 2) == {
        "error": {"class": "UsageError", "summary": "there is no product pp", "remedy": "did you mean p?"}
    }


def test_completion_offers_products_and_the_kinds_of_tables(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_codes.run_command_line(["completion", "products"]) == 0
    assert capsys.readouterr().out.split() == ["p"]
    assert exit_codes.run_command_line(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    for words, offered in (
        ("inventory --u", "--unused"),
        ("health --f", "--fail-on"),
        ("impact --ch", "--children"),
        ("lineage --u", "--up"),
    ):
        typed = f"COMP_WORDS=(headgate {words}); COMP_CWORD=2"
        program = f"{script}compopt() {{ :; }}; {typed}; _headgate; echo ${{COMPREPLY[@]}}"
        done = subprocess.run(["bash"], input=program, text=True, capture_output=True, check=True)
        assert done.stdout.strip() == offered


@pytest.mark.parametrize(
    ("typed", "completed"), [("fct_r", "fct_revenue"), ("+fct_r", "+fct_revenue"), ("2+fct_r", "2+fct_revenue")]
)
def test_the_shell_completes_selectors(
    folder: Path, capsys: pytest.CaptureFixture[str], typed: str, completed: str
) -> None:
    assert exit_codes.run_command_line(["completion", "bash"]) == 0
    script = capsys.readouterr().out.replace("headgate completion tables", "echo fct_revenue fct_takings")
    ask = f'COMP_WORDS=(headgate stop {typed}); COMP_CWORD=2; _headgate; echo "${{COMPREPLY[@]}}"'
    said = subprocess.run(["bash", "-c", f"{script}\n{ask}"], capture_output=True, text=True, check=True)
    assert said.stdout.split() == [completed]
