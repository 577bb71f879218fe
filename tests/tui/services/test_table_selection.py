"""Selectors on the command line: over the files for plans, over deployments for everything else."""

from pathlib import Path
from typing import Any

import pytest

from core.model.names import TableName
from core.observed.versions import Binding
from tests.support.command_line import written
from tests.support.ledger_rows import external_row
from tui.command_line import exit_codes


@pytest.fixture
def shop(ledger: Any, deployed: Any) -> Any:
    """A project with landed → a → b, deployed as declared; b has the tag nightly."""
    ledger.put_deployment(external_row("landed"))
    ledger.put_deployment(deployed("a", bindings=(Binding(TableName("landed"), 0, True),)))
    ledger.put_deployment(deployed("b", reads="a"))
    Path("pipelines/facts/p/b/b.yml").write_text("tags: [nightly]\n")
    return ledger


def tables(found: Any) -> list[str]:
    return [each["table"] for each in found["statements"]]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("+b", ["a", "b", "landed"]), ("1+b", ["a", "b"]), ("landed+1", ["a", "landed"]), ("A", ["a"]),
        ("tag:nightly", ["b"]), ("1+tag:nightly landed", ["a", "b", "landed"]),
    ],
)  # fmt: skip
def test_lists_show_the_tables_of_a_selector(
    shop: Any, words: str, expected: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert tables(written(["ls", *words.split()], capsys)) == expected


def test_inputs_of_undeployed_tables_are_those_of_the_files(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tables(written(["ls", "+a+"], capsys)) == ["a", "b", "landed"]


def test_an_act_leaves_out_external_tables_that_a_selector_brings(
    shop: Any, agent: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    agent.script["stop"] = {"statements": []}
    assert exit_codes.run_command_line(["stop", "+b", "--confirm", "2"]) == 0
    assert [request["args"]["tables"] for request in agent.heard if request["op"] == "stop"] == [["a", "b"]]
    assert exit_codes.run_command_line(["stop", "tag:nightly", "--confirm", "yes"]) == 0
    assert agent.heard[-1]["args"]["tables"] == ["b"]


def test_a_plan_covers_the_tables_of_a_selector_and_lists_them_by_name(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = written(["plan", "1+b", "--offline"], capsys)
    assert plan["request"]["tables"] == ["a", "b"]
    plan = written(["plan", "+b", "--exclude", "b+", "--offline"], capsys)
    assert (plan["request"]["tables"], plan["request"]["exclude"]) == (["a", "b", "landed"], ["b"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["ls", "++a"], "'++a' is not a selector"),
        (["ls", "tag:night"], "did you mean nightly?"),
        (["stop", "+zz"], "zz"),
        (["plan", "layer:fact", "--offline"], "is not a table name"),
    ],
)
def test_a_mistaken_selector_is_one_sentence(
    shop: Any, agent: Any, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_codes.run_command_line(words) == 2
    assert said in capsys.readouterr().err
