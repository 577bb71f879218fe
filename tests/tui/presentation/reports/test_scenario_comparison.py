"""The comparison of scenarios as a table, as Markdown and as bars."""

from typing import Any

from tui.presentation.reports.scenario_comparison import comparison_lines, comparison_markdown
from tui.presentation.styling.theme import ASCII


def result(scenario: int, **figures: Any) -> dict[str, Any]:
    usual = {"title": "some way", "p50_s": 1.0, "p99_s": 4.0, "states": 100, "right": 90, "later": 3, "wrong": 5,
             "missed": 2, "twice": 0, "database_transactions": 1200, "database_blocks": 1000, "slot_bytes": 5000,
             "statements": 1, "state_bytes": 0}  # fmt: skip
    return {"scenario": scenario, **usual, **figures}


def test_a_bar_ends_at_the_99th_percentile_and_its_first_part_at_the_median() -> None:
    lines = comparison_lines([result(3), result(6, p50_s=2.0, p99_s=8.0, right=100, wrong=0)], ASCII)
    assert [line for line in lines if line.startswith("  3")] == [
        f"  3  {'#' * 5}{'.' * 15}{' ' * 20}  1.0 s, 4.0 s",
        f"  3  {'#' * 36}{'.' * 4}  90 of 100; 5 wrong, 3 later, 2 missed",
    ]
    assert f"  6  {'#' * 10}{'.' * 30}  2.0 s, 8.0 s" in lines
    assert lines[1].endswith("1,200   8.2 MB  5 kB           1    0 B")


def test_a_scenario_without_a_row_has_no_latency_and_an_empty_bar() -> None:
    lines = comparison_lines([result(1, p50_s=None, p99_s=None, right=0, missed=100)], ASCII)
    assert "-, -" in lines[-4] and f"  1  {'.' * 40}  0 of 100; 5 wrong, 3 later, 100 missed" == lines[-1]


def test_markdown_has_a_cell_for_each_column() -> None:
    lines = comparison_markdown([result(3)])
    assert len({line.count("|") for line in lines[:3]}) == 1 and lines[2].startswith("| 3 some way | 1.0 s | 4.0 s |")
