"""Typed requests: accepted words, rejected words, and the command for a request."""

import pytest

from core.model.actions import Strategy
from core.model.errors import UsageError
from core.model.names import TableName
from core.plan.request import (
    PlanRequest,
    StrategyChoice,
    command_words,
    parse_children,
    parse_choice,
    parse_choices,
    parse_layer,
    parse_start,
    parse_tables,
)
from core.planner.scope import normal_request
from core.project.model import LAYER_FOLDERS, Layer

T = TableName


@pytest.mark.parametrize("folder", LAYER_FOLDERS)
def test_a_layer_is_selected_by_its_name_or_its_folder(folder: str) -> None:
    assert parse_layer(folder) == parse_layer(f" {LAYER_FOLDERS[folder].upper()}") == LAYER_FOLDERS[folder]


@pytest.mark.parametrize(("text", "remedy"), [("fcts", "did you mean fact?"), ("", ", ".join(Layer))])
def test_an_unknown_layer_suggests_the_nearest(text: str, remedy: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_layer(text)
    assert remedy in caught.value.remedy


@pytest.mark.parametrize(
    ("text", "children"),
    [("none", "none"), ("all", "all"), (" product ", "product"), ("b,a, b", "a,b"), ("sales", "sales")],
)
def test_children_are_a_keyword_or_products(text: str, children: str) -> None:
    assert parse_children(text) == children


@pytest.mark.parametrize("text", ["", " , ", "none,all", "all,sales"])
def test_keywords_for_children_cannot_be_combined(text: str) -> None:
    with pytest.raises(UsageError):
        parse_children(text)


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("earliest", "earliest"),
        ("NOW", "now"),
        ("0042", "42"),
        ("20260102", "20260102"),
        ("2026-01-02", "2026-01-02T00:00:00Z"),
        ("2026-01-02 03:04", "2026-01-02T03:04:00Z"),
        ("2026-01-02T03:04:05.25+01:00", "2026-01-02T02:04:05.250000Z"),
        ("2026-01-02T03:04:05Z", "2026-01-02T03:04:05Z"),
        ("Since: 2026-01-02T03:04+01:00", "since:2026-01-02T02:04:00Z"),
    ],
)
def test_a_start_position_is_a_word_a_time_or_a_number(text: str, start: str) -> None:
    assert parse_start(text) == start == parse_start(start)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "erliest",
        "yesterday",
        "-1",
        "1.5",
        "2026-13-01",
        "2026-01-32",
        "since:1h",
        "0001-01-01T00:00+05:00",
        "9" * 19,
    ],
)
def test_an_invalid_start_position_is_reported(text: str) -> None:
    with pytest.raises(UsageError, match="is not a start position"):
        parse_start(text)


@pytest.mark.parametrize(
    ("text", "choice"),
    [
        ("A=seam", StrategyChoice(T("a"), Strategy.SEAM)),
        ("a = carry-over", StrategyChoice(T("a"), Strategy.CARRY_OVER)),
        ("a=partial@2026-01-02", StrategyChoice(T("a"), Strategy.PARTIAL, "2026-01-02T00:00:00Z")),
        ("a=partial@day=2026-01-02", StrategyChoice(T("a"), Strategy.PARTIAL, "day=2026-01-02")),
        ("a=seeded@12", StrategyChoice(T("a"), Strategy.SEEDED, "12")),
    ],
)
def test_a_strategy_is_chosen_for_a_table(text: str, choice: StrategyChoice) -> None:
    assert parse_choice(text) == choice


@pytest.mark.parametrize("text", ["", "a", "a=", "=seam", "a=seem", "a=seam@", "a-b=seam", "a=partial@x\ny", "a=@12"])
def test_an_invalid_choice_is_reported(text: str) -> None:
    with pytest.raises(UsageError):
        parse_choice(text)


def test_a_strategy_for_a_table_may_be_repeated_but_not_contradicted() -> None:
    assert parse_choices(["b=seam", "a=fork", "b=seam"]) == (
        StrategyChoice(T("a"), "fork"),
        StrategyChoice(T("b"), "seam"),
    )
    with pytest.raises(UsageError, match="two strategies are chosen for b: seam and fork"):
        parse_choices(["b=seam", "b=fork"])


def test_names_are_separated_by_commas() -> None:
    assert parse_tables("a, B,,") == ("a", "b") and parse_tables("") == ()


def test_the_command_of_a_request_asks_for_the_same() -> None:
    request = PlanRequest(
        tables=(T("b"), T("a")), products=("p",), layers=("fact",), folders=("pipelines/facts",), children="q,p",
        exclude=(T("d"), T("c")), rebuild=True, start="now",
        choices=(StrategyChoice(T("a"), "partial", "2026-01-02T00:00:00Z"),),
    )  # fmt: skip
    assert " ".join(command_words(normal_request(request))) == (
        "plan deploy a b --product p --layer fact --dir pipelines/facts --children p,q --exclude c,d --rebuild"
        " --from now --strategy a=partial@2026-01-02T00:00:00Z"
    )
    assert (
        " ".join(command_words(normal_request(PlanRequest(everything=True, keep_table=True))))
        == "plan deploy --all --keep-table"
    )
    gone = PlanRequest(verb="delete", pipelines=(T("s"),), children="all")
    assert " ".join(command_words(normal_request(gone))) == "plan delete --pipeline s --children all"
