"""headgate health: products and layers summarized, their failures, and the exit code."""

from typing import Any

import pytest
from command_line import written

from core.model.names import TableName
from core.model.states import STATES_WORST_FIRST, TRENDS_WORST_FIRST, State, Trend
from state.row_types import StagedRow
from tui.command_line import exit_codes


@pytest.fixture
def shop(ledger: Any, deployed: Any, measured: Any) -> Any:
    """Two products: p has a failed fact and its reader, q a stopped view; other tables feed both."""
    ledger.put_deployment(deployed("landed", version=0, layer="source", external=True))
    ledger.put_deployment(deployed("a", layer="source"))
    ledger.put_deployment(deployed("a", version=2, layer="source", active=False, state="failed"))
    ledger.put_deployment(
        deployed("b", reads="a", state="failed", error_class="DIVIDE_BY_ZERO", error="by\nzero", state_since=5.0)
    )
    ledger.put_deployment(deployed("c", reads="b", product="q", layer="view", state="stopped", wanted="stopped"))
    ledger.put_measurements(
        [measured("a", trend="draining", lag_rows=10, behind_s=3.0), measured("b", lag_rows=1500, behind_s=70.0)]
    )
    ledger.stage([StagedRow("ana", "/shop", "b", "deploy", 1.0)])
    ledger.stage([StagedRow("ben", "/shop", "b", "deploy", 2.0)])
    return ledger


def test_a_product_is_the_sum_of_its_layers_and_names_what_fails(shop: Any, capsys: pytest.CaptureFixture[str]) -> None:
    found = written(["health"], capsys)
    assert [product["product"] for product in found["products"]] == ["p", "q"]
    p = found["products"][0]
    assert p == {
        "product": "p", "statements": 2, "external": 1, "states": {"failed": 1, "running": 1}, "trend": "draining",
        "lag_rows": 1510, "lag_unknown": 0, "behind_s": 70.0, "oldest_s": 70.0, "staged": 1,
        "failing": [{
            "table": "b", "layer": "fact", "version": 1, "state": "failed", "state_since": 5.0,
            "error_class": "DIVIDE_BY_ZERO", "error": "by\nzero",
        }],
        "layers": [
            {"layer": "source", "statements": 1, "external": 1, "states": {"running": 1}, "trend": "draining",
             "lag_rows": 10, "lag_unknown": 0, "behind_s": 3.0, "oldest_s": 3.0, "staged": 0},
            {"layer": "fact", "statements": 1, "external": 0, "states": {"failed": 1}, "trend": "steady",
             "lag_rows": 1500, "lag_unknown": 0, "behind_s": 70.0, "oldest_s": 70.0, "staged": 1},
        ],
    }  # fmt: skip


def test_a_faulty_external_table_fails_its_product(shop: Any, capsys: pytest.CaptureFixture[str]) -> None:
    shop.update_deployment(TableName("landed"), 0, error="landed has no table: /lake has no _delta_log")
    (p,) = written(["health", "p"], capsys)["products"]
    assert [(each["table"], each["state"]) for each in p["failing"]] == [("landed", "external"), ("b", "failed")]
    assert exit_codes.run_command_line(["health", "p"]) == 0
    (row,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("landed")]
    assert row.split(maxsplit=3) == ["landed", "p", "external", "landed has no table: /lake has no _delta_log"]
    for name in ("landed", "a"):
        shop.update_deployment(TableName(name), int(name == "a"), bindings=())
    assert [each["table"] for each in written(["health", "p"], capsys)["products"][0]["failing"]] == ["b"], (
        "nobody reads it any more"
    )


def test_unmeasured_values_are_unknown(shop: Any, capsys: pytest.CaptureFixture[str]) -> None:
    (q,) = written(["health", "q"], capsys)["products"]
    assert (q["lag_rows"], q["lag_unknown"], q["behind_s"], q["trend"]) == (None, 1, None, "unknown")


def test_a_product_in_which_rows_wait_is_not_idle(shop: Any, measured: Any, capsys: pytest.CaptureFixture[str]) -> None:
    idle = measured("a", trend="idle", lag_rows=0)
    for lag_rows, trend in ((4000, "unknown"), (0, "idle")):
        shop.put_measurements([idle, measured("b", trend="unknown", lag_rows=lag_rows)])
        assert written(["health", "p"], capsys)["products"][0]["trend"] == trend


def test_people_see_products_layers_and_failures(shop: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_codes.run_command_line(["health", "p"]) == 0
    said = capsys.readouterr()
    lines = said.out.splitlines()
    assert [line.split() for line in lines[:4]] == [
        ["PRODUCT", "STATEMENTS", "STATE", "BEHIND", "LAG", "TREND", "STAGED"],
        ["p", "2", "1", "failed,", "1", "running", "1m", "1.5k", "draining", "1"],
        ["source", "1", "1", "running", "3s", "10", "draining"],
        ["fact", "1", "1", "failed", "1m", "1.5k", "steady", "1"],
    ]
    assert lines[-1].split()[:4] == ["b", "v1", "p", "failed"] and lines[-1].endswith("DIVIDE_BY_ZERO: by zero")
    assert "shop dev: 1 of 2 statements running" in said.err


@pytest.mark.parametrize(
    ("words", "code"), [("", 0), ("--fail-on failed", 1), ("q --fail-on failed", 0), ("q --fail-on stopped", 1)]
)
def test_fail_on_considers_only_the_statements_of_these_products(words: str, code: int, shop: Any) -> None:
    assert exit_codes.run_command_line(["health", *words.split()]) == code


def test_an_unknown_product_and_an_environment_that_never_started_are_reported(
    shop: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    error = written(["health", "pp"], capsys, 2)["error"]
    assert (error["summary"], error["remedy"]) == ("no table of product pp is deployed here", "did you mean p?")
    assert written(["health", "--env", "prod"], capsys, 4)["error"]["class"] == "LedgerUnavailable"


def test_every_state_and_trend_has_its_place() -> None:
    assert sorted(STATES_WORST_FIRST) == sorted(State)
    assert sorted(TRENDS_WORST_FIRST) == sorted(Trend)
