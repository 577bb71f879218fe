"""Releases as text and as data: what each waits for, both versions, and the rollback or why it is impossible."""

import json
from dataclasses import replace
from typing import Any

import pytest

from core.model.names import TableName
from core.observed.planner_input import Seconds
from core.observed.versions import Measurement
from core.run.records import MigrationTicket
from core.run.release import UNMEASURED, Release, ReleasePair, ReleaseSide, ReleaseState
from tui.presentation.screen_content.releases import (
    release_as_json,
    release_details,
    release_lines,
    rollback_words,
    ticket_words,
    trend_of,
    verdict,
)
from tui.presentation.styling.value_formatting import clock, lag_words

NOW = 1_800_000_000.0
ORDERS = TableName("orders")
IDLE = Measurement(ORDERS, 1, NOW, lag_rows=0, trend="idle")
BEHIND = Measurement(
    ORDERS, 2, NOW, lag_rows=12_040, trend="draining", eta_s=240.0, in_rows_s=220.0, out_rows_s=980.0,
    durations={"getBatch": 900},
)  # fmt: skip
OLD = ReleaseSide(1, "running", runs=True, stops_at=None, figures=IDLE)
NEW = ReleaseSide(2, "running", runs=True, stops_at=None, figures=BEHIND)
PAIR = ReleasePair(
    ORDERS, OLD, NEW, serves=1, gate="gate", note="lag 12,040 rows, 0 of 3", checks="", found="", lacks=""
)


def release(state: str = "hydrating", **known: Any) -> Release:
    every: dict[str, Any] = dict(
        run="9f2c-1", plan="9f2c0a", actor="ana", state=ReleaseState(state), since=NOW - 60, pairs=(PAIR,), left=None,
        serves=False, note="", blocked="nothing has been swapped", old_until=None,
    )  # fmt: skip
    return Release(**(every | known))


def test_a_hydrating_release_names_the_slowest_table_its_backlog_and_its_bottleneck() -> None:
    found = release_details(release(), NOW)
    assert found[0] == f"release 9f2c-1  hydrating since {clock(NOW - 60)}  by ana"
    assert found[1] == "  orders v2 is behind by 12k rows, 4m left; most of a batch is reading."
    assert found[3:7] == (
        "TABLE   VER   STATE         LAG       IN      OUT  TREND         SLOW",
        "orders  v1*   running         0        -        -  idle          -",
        "        v2    running       12k    220/s    980/s  4m left       reading",
        "  gate: lag 12,040 rows, 0 of 3",
    )
    assert all(len(line) <= 80 for line in found)


def test_a_version_that_caught_up_is_not_reported_as_behind_by_nothing() -> None:
    there = replace(PAIR, new=replace(NEW, figures=IDLE))
    said = "orders v2 has caught up, which is measured three times before its gate opens."
    assert verdict(release(pairs=(there,)), NOW) == said


def test_a_version_that_processes_less_than_arrives_does_not_converge() -> None:
    slow = replace(PAIR, new=replace(NEW, figures=replace(BEHIND, out_rows_s=180.0, trend="growing", rate_rows_s=40.0)))
    assert verdict(release(pairs=(slow,)), NOW).endswith("It receives more rows than it processes.")


@pytest.mark.parametrize(
    ("state", "known", "said"),
    [
        ("held", {}, "Held since {since}: headgate release swap 9f2c-1 moves the pointers."),
        ("preparing", {"pairs": ()}, "The new versions are being created and started."),
        ("observing", {"blocked": "", "old_until": NOW + 60},
         "The replaced versions keep running until {until}; headgate rollback 9f2c-1 takes seconds until then."),
        ("swapping", {"note": "resumed: all move"}, "Moving the pointers: orders to v2. Resumed: all move."),
        ("needs you", {"note": "b@v2 failed"},
         "Its run has failed: b@v2 failed. Next: headgate runs retry 9f2c-1, or headgate runs cancel 9f2c-1."),
        ("aborted", {"note": "nothing was swapped"}, "Nothing was swapped; the old versions still serve."),
        ("rolling back", {"pairs": ()},
         "The old versions continue from their checkpoints and catch up before the pointers move."),
        ("rolled back", {}, "The old versions serve again."),
        ("done", {}, ""),
    ],
)  # fmt: skip
def test_each_state_gives_advice(state: str, known: dict[str, Any], said: str) -> None:
    expected = said.format(since=clock(NOW - 60), until=clock(NOW + 60))
    assert verdict(release(state, **known), NOW) == expected


def test_an_opened_gate_is_reported_in_the_past_tense_with_its_time() -> None:
    opened = replace(PAIR, gate="done", note="caught up: lag 0 rows, watermark 2026-01-01T00:00", gate_at=NOW - 60)
    found = release_details(release("held", pairs=(opened,)), NOW)
    assert f"  gate: caught up at {clock(NOW - 60)}: lag 0 rows, watermark 2026-01-01T00:00" in found


def test_a_failure_is_shown_by_its_first_sentence_and_in_full_below() -> None:
    long = "orders: 12 rows are only in v2; of the others, " + "and more " * 60 + "at last"
    failed = replace(PAIR, checks="failed", found=long)
    found = release_details(release("needs you", note=long, pairs=(failed,)), NOW)
    assert found[1].startswith("  Its run has failed: orders: 12 rows are only in v2. Next: headgate runs retry")
    assert "  checks: orders: 12 rows are only in v2" in found
    assert all(len(line) <= 120 for line in found) and any(line.endswith("at last") for line in found)


def test_a_list_shows_the_rollback_of_each_release() -> None:
    soaking = replace(PAIR, old=replace(OLD, stops_at=NOW + 600), serves=2)
    found = release_lines([release("observing", pairs=(soaking,), blocked="", old_until=NOW + 600)], NOW)
    until = clock(NOW + 600)
    assert found == (
        f"9f2c-1  observing until {until}  1 table",
        f"  headgate rollback 9f2c-1, in seconds until {until}",
        f"  orders  v1 → v2  serves v2  v1 is running, stops {until}, lag 0 rows; v2 is running, lag 12k rows",
    )
    assert rollback_words(release(blocked="orders v1: it is deleted"), NOW) == "no rollback: orders v1: it is deleted"


def test_a_list_shows_the_lag_of_both_versions_and_the_pending_condition() -> None:
    found = release_lines([release(left=Seconds(0.0, 80.0))], NOW)
    assert found == (
        f"9f2c-1  hydrating since {clock(NOW - 60)}, up to 80 s left  1 table",
        "  orders v2 is behind by 12k rows, 4m left; most of a batch is reading.",
        "  no rollback: nothing has been swapped",
        "  orders  v1 → v2  serves v1  v1 is running, lag 0 rows; v2 is running, lag 12k rows",
    )
    assert ", longer than predicted  1 table" in release_lines([release(left=Seconds(0.0, 0.0))], NOW)[0]
    assert "longer" not in release_lines([release("held", left=Seconds(0.0, 0.0))], NOW)[0]
    rests = replace(PAIR, old=replace(OLD, state="stopped", runs=False), serves=2)
    (_, _, line) = release_lines([release("done", pairs=(rests,), blocked="")], NOW)
    assert line.endswith("v1 is stopped; v2 is running, lag 12k rows")


@pytest.mark.parametrize("state", ["aborted", "needs you", "rolled back"])
def test_a_stopped_serving_version_is_named_with_the_command_that_starts_it(state: str) -> None:
    rests = replace(PAIR, old=replace(OLD, state="stopped", runs=False))
    said = verdict(release(state, pairs=(rests,), note="nothing was swapped"), NOW)
    assert said.endswith(". orders v1 serves and is stopped: headgate start orders starts it.")
    other = replace(rests, table=TableName("items"))
    said = verdict(release(state, pairs=(other, rests), note="nothing was swapped"), NOW)
    assert said.endswith("items v1, orders v1 serve and are stopped: headgate start items orders starts them.")
    assert "headgate start" not in verdict(release(state, note="nothing was swapped"), NOW)


def test_unknown_values_are_shown_as_unknown() -> None:
    assert lag_words(replace(BEHIND, lag_rows=None)) == "?" and lag_words(replace(BEHIND, exact=False)) == "~12k"
    assert lag_words(replace(BEHIND, lag_rows=None, lag_files=1)) == "1 file"
    assert trend_of(replace(NEW, figures=UNMEASURED)) == trend_of(replace(NEW, runs=False)) == "-"


def test_a_ticket_names_reader_table_cutover_and_deadline() -> None:
    one = MigrationTicket(
        "9f2c-1", "orders", "BI", "", "ana", False, "orders__v1", "orders__v2", 41, NOW - 60, NOW + 60
    )  # type: ignore[arg-type]  # A name as it is.
    assert ticket_words(one, NOW) == (
        f"BI (ana) reads orders__v1: move to orders__v2, cut at batch 41, {clock(NOW - 60)}, until {clock(NOW + 60)}"
    )
    assert ticket_words(replace(one, deadline=NOW - 1), NOW).endswith("(overdue)")
    written = json.loads(json.dumps(release_as_json(release(tickets=(one,)))))
    assert written["tickets"][0]["cut_batch"] == 41 and written["rollback"] is None
    assert (written["state"], written["pairs"][0]["new"]["lag_rows"]) == ("hydrating", 12_040)
