"""Faults and words over what an agent measured of the running sample (`tests.support.lag_recorder`)."""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import pytest
from lag_replay import Said, replay, same_lag

from core.lag.faults import objective_s
from core.model.states import Fault, Trend

FIXTURES = Path(__file__).parents[2] / "fixtures/lag"
OBJECTIVES = {"order_labels": "5 minutes"}
"""As the sample declares."""

WITHIN_S = 30.0
READERS = ("int_order_items", "int_paid_orders", "int_seated_orders", "tickets_delivery", "tickets_dine_in")
"""Of src_orders; order_labels works off its own queue, four files at a time."""


@pytest.fixture(scope="module")
def recorded() -> tuple[dict[str, float], list[Said]]:
    return replay(FIXTURES / "sample_and_faults.tsv.gz", OBJECTIVES)


def first(said: Sequence[Said], table: str, faults: frozenset[Fault], since: float) -> float:
    return next((one.at for one in said if one.table == table and one.at >= since and one.fault in faults), 1e9)


def test_ten_minutes_at_a_load_of_fifteen_on_two_cores_have_no_fault(
    recorded: tuple[dict[str, float], list[Said]],
) -> None:
    """A rule by rows had a banner in 52 of these 120 rounds; batches took up to 32 s on a trigger of 10."""
    phases, said = recorded
    well = [one for one in said if one.at < phases["stopped"]]
    assert len(well) == 16 * 119
    assert [(one.at, one.table, one.why) for one in well if one.fault] == []


def test_statements_on_one_input_with_the_same_lag_say_the_same_word(
    recorded: tuple[dict[str, float], list[Said]],
) -> None:
    phases, said = recorded
    groups = list(same_lag([one for one in said if one.at < phases["stopped"]]))
    assert len(groups) > 200
    assert [group for group in groups if len({one.judged.trend for one in group}) > 1] == []


def test_readers_of_a_parent_that_is_stopped_are_starved_within_half_a_minute_and_well_after_its_start(
    recorded: tuple[dict[str, float], list[Said]],
) -> None:
    phases, said = recorded
    for table in READERS:
        assert first(said, table, frozenset({Fault.STARVED}), phases["stopped"]) <= phases["stopped"] + WITHIN_S
    again = [one for one in said if phases["started"] + WITHIN_S < one.at < phases["frozen"]]
    assert again and not any(one.fault for one in again)


def test_a_pool_that_does_not_answer_is_a_fault_within_half_a_minute_and_of_each_statement_in_its_time(
    recorded: tuple[dict[str, float], list[Said]],
) -> None:
    """Nothing is committed while the server is stopped: each statement is at fault before its objective is missed."""
    phases, said = recorded
    frozen = [one for one in said if phases["frozen"] < one.at < phases["thawed"]]
    assert min(one.at for one in frozen if one.fault) <= phases["frozen"] + WITHIN_S
    late: dict[str, float] = defaultdict(float)
    for one in frozen:
        if not one.fault and (one.behind_s or 0.0) > objective_s(OBJECTIVES.get(one.table, ""), one.inputs[-1]):
            late[one.table] += 5.0
    assert all(seconds <= WITHIN_S for seconds in late.values()), dict(late)
    assert {one.table for one in frozen if one.fault} == {one.table for one in frozen}


def test_a_table_that_is_taken_away_fails_its_statements_at_once_and_starves_what_is_below(
    recorded: tuple[dict[str, float], list[Said]],
) -> None:
    phases, said = recorded
    fallen = frozenset({Fault.FAILED, Fault.STARVED})
    for table in ("src_orders", *READERS, "order_labels"):
        assert first(said, table, fallen, phases["removed"]) <= phases["removed"] + WITHIN_S
    broken = [one for one in said if one.at > phases["removed"] and one.state == "failed"]
    assert broken and all(one.fault is Fault.FAILED for one in broken)
    starved = [one for one in said if one.at > phases["removed"] + 45 and one.judged.trend is Trend.STARVED]
    assert starved and all(one.fault for one in starved)


def test_a_quarter_of_an_hour_at_a_load_of_nineteen_has_only_faults_that_are_true() -> None:
    """Right after the start of 16 statements five of them are behind their minute, and then none for 13 minutes.

    A rule by rows had a banner in 75 of these 177 rounds.
    """
    _, said = replay(FIXTURES / "sample_at_load.tsv.gz", OBJECTIVES)
    assert len(said) > 2800 and {one.fault for one in said} == {Fault.NONE, Fault.BEHIND}
    assert [(one.at, one.table, one.why) for one in said if one.fault and one.at > 135] == []
    behind: dict[str, list[bool]] = defaultdict(list)
    for one in said:
        missed = (one.behind_s or 0.0) > objective_s(OBJECTIVES.get(one.table, ""), one.inputs[-1])
        behind[one.table].append(missed)
        lately = behind[one.table]
        # True when said: it was so in three measurements, of which the last may be two that it is over for.
        assert not one.fault or any(all(lately[n : n + 3]) for n in range(len(lately)))
        # And said when true, within half a minute.
        assert one.fault or not (len(lately) >= 6 and all(lately[-6:]))
    assert not any(len({one.judged.trend for one in group}) > 1 for group in same_lag(said))
