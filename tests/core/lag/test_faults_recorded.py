"""Faults and trends over recordings of the running sample (`tests.support.lag_recorder`)."""

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from lag_replay import Said, replay, same_lag

from core.lag.faults import objective_s
from core.model.states import Fault, Trend

FIXTURES = Path(__file__).parents[2] / "fixtures/lag"
OBJECTIVES = {"order_labels": "5 minutes"}
"""Objectives declared in the sample."""

WITHIN_S = 30.0
READERS = ("int_order_items", "int_paid_orders", "int_seated_orders", "tickets_delivery", "tickets_dine_in")
"""Readers of src_orders; order_labels is not among them, as it processes its own queue, four files at a time."""


BELOW = (*READERS, "int_priced_items", "fct_kitchen_load", "fct_revenue", "fct_takings", "tickets_takeaway",
         "vw_busy_windows")  # fmt: skip
"""Statements that have nothing to read while src_orders is stopped; order_labels still has its queue."""

Recorded = tuple[dict[str, float], list[Said]]


@pytest.fixture(scope="module", params=["sample_and_faults", "sample_at_light_load"])
def recorded(request: pytest.FixtureRequest) -> Recorded:
    """Return two recordings: at a load of fifteen on two cores, and at a load of three (0.2 to 7)."""
    return replay(FIXTURES / f"{request.param}.tsv.gz", OBJECTIVES)


def first(said: Sequence[Said], table: str, faults: frozenset[Fault], since: float) -> float:
    return next((one.at for one in said if one.table == table and one.at >= since and one.fault in faults), 1e9)


def read_until(said: Sequence[Said], table: str, since: float, until: float) -> float:
    """Return when a statement, or one that feeds it, last had work: pending rows that were processed later."""
    own = [one for one in said if one.table == table and since <= one.at < until]
    above = {name for one in own for name in one.inputs} & {*BELOW}
    worked = [one.at for one, after in pairwise(own) if one.rows and after.rows != one.rows]
    return max([since, *worked, *(read_until(said, name, since, until) for name in above)])


def test_ten_minutes_have_no_fault(recorded: Recorded) -> None:
    """At a load of fifteen, with batches of up to 32 s, a rule by rows showed a banner in 52 of 120 rounds."""
    phases, said = recorded
    well = [one for one in said if one.at < phases["stopped"]]
    assert len(well) >= 16 * 117
    assert [(one.at, one.table, one.why) for one in well if one.fault] == []


def test_statements_with_the_same_input_and_lag_have_the_same_trend(recorded: Recorded) -> None:
    phases, said = recorded
    groups = list(same_lag([one for one in said if one.at < phases["stopped"]]))
    assert len(groups) > 200
    assert [group for group in groups if len({one.judged.trend for one in group}) > 1] == []


def test_readers_of_a_stopped_parent_are_starved_within_half_a_minute_of_their_last_work(
    recorded: Recorded,
) -> None:
    """Readers once became starved one level per round. At a load of fifteen, fct_revenue still has work for 39 s."""
    phases, said = recorded
    for table in BELOW:
        starved = first(said, table, frozenset({Fault.STARVED}), phases["stopped"])
        worked = read_until(said, table, phases["stopped"], min(starved, phases["started"]))
        assert starved <= worked + WITHIN_S and worked <= phases["stopped"] + 50, table
    for table in READERS:
        assert first(said, table, frozenset({Fault.STARVED}), phases["stopped"]) <= phases["stopped"] + WITHIN_S


def test_a_starved_statement_recovers_when_its_parent_starts_without_another_fault(recorded: Recorded) -> None:
    """The watermark of a join stood still while one side was stopped, and was once reported as `stalled` for 25 s."""
    phases, said = recorded
    since = [one for one in said if phases["started"] < one.at < phases["frozen"]]
    assert {one.fault for one in since} == {Fault.STARVED, Fault.NONE}
    again = [one for one in since if phases["started"] + WITHIN_S < one.at]
    assert again and not any(one.fault for one in again)


def test_a_pool_that_does_not_answer_is_no_fault_of_any_statement(recorded: Recorded) -> None:
    """Missing commits prove nothing about the statements, so that nobody looks for one cause in sixteen of them."""
    phases, said = recorded
    silent = [one for one in said if one.state == "unknown" and phases["frozen"] < one.at < phases["thawed"]]
    assert len({one.table for one in silent}) > 10 and not any(one.fault for one in silent)
    late = {one.judged.trend for one in silent if one.at > phases["frozen"] + WITHIN_S}
    # The files alone show that no input is pending.
    assert Trend.UNKNOWN in late and late <= {Trend.UNKNOWN, Trend.IDLE}


def test_a_removed_table_fails_its_statements_at_once_and_starves_their_readers(recorded: Recorded) -> None:
    phases, said = recorded
    fallen = frozenset({Fault.FAILED, Fault.STARVED})
    for table in ("src_orders", *READERS, "order_labels"):
        assert first(said, table, fallen, phases["removed"]) <= phases["removed"] + WITHIN_S
    for table in BELOW:
        worked = read_until(said, table, phases["removed"], 1e9)
        assert first(said, table, fallen, phases["removed"]) <= worked + WITHIN_S, table
    broken = [one for one in said if one.at > phases["removed"] and one.state == "failed"]
    assert all(one.fault is Fault.FAILED for one in broken)
    starved = [one for one in said if one.at > phases["removed"] + 45 and one.judged.trend is Trend.STARVED]
    assert starved and all(one.fault for one in starved)


def test_a_quarter_of_an_hour_at_a_load_of_nineteen_has_only_faults_that_are_true() -> None:
    """Right after the start five of 16 statements are behind their objective, and then none for 13 minutes.

    A rule by rows showed a banner in 75 of these 177 rounds.
    """
    _, said = replay(FIXTURES / "sample_at_load.tsv.gz", OBJECTIVES)
    assert len(said) > 2800 and {one.fault for one in said} == {Fault.NONE, Fault.BEHIND}
    assert [(one.at, one.table, one.why) for one in said if one.fault and one.at > 135] == []
    behind: dict[str, list[bool]] = defaultdict(list)
    for one in said:
        missed = (one.behind_s or 0.0) > objective_s(OBJECTIVES.get(one.table, ""), one.inputs[-1])
        behind[one.table].append(missed)
        lately = behind[one.table]
        # A report is justified only if three consecutive measurements were behind, even if later ones are not.
        assert not one.fault or any(all(lately[n : n + 3]) for n in range(len(lately)))
        # A justified report must come within half a minute.
        assert one.fault or not (len(lately) >= 6 and all(lately[-6:]))
    # After the start, the trend is known only to statements that have committed enough batches.
    assert not any(len({one.judged.trend for one in group} - {Trend.UNKNOWN}) > 1 for group in same_lag(said))
    assert not any(one.judged.trend is Trend.UNKNOWN for one in said if one.at > 135)
