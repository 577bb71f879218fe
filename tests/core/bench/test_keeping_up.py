from hypothesis import given
from hypothesis import strategies as st

from core.bench.keeping_up import BatchWork, InputWait, Keeping, LagObjective, keeping_up
from core.model.names import TableName

T = TableName("t")
WINDOW_S = 120.0


def simulated(
    rate: float, *, capacity: float, trigger_s: float, fixed_s: float, most: int = 1000
) -> tuple[list[InputWait], list[BatchWork]]:
    """Simulate a statement whose batches take `fixed_s` and the time for their rows; an input arrives every second."""
    unread = [float(second) for second in range(int(WINDOW_S))]
    waits: list[InputWait] = []
    batches: list[BatchWork] = []
    now, before = 0.0, -trigger_s
    while now < WINDOW_S:
        there = [each for each in unread if each <= now]
        mine = there[:most]
        end = now + (fixed_s + len(mine) * rate / capacity if mine else 0.0)
        if mine and end <= WINDOW_S:
            waits += [InputWait(each, end - each, read=True) for each in mine]
            unread = unread[len(mine) :]
            batches.append(BatchWork(now, now - before, end - now, len(there) - len(mine)))
            before = now
        now = max(end, now + trigger_s)
    return [*waits, *(InputWait(each, WINDOW_S - each, read=False) for each in unread)], batches


def judged(rate: float, trigger_s: float, fixed_s: float, objective_s: float = 60.0) -> Keeping:
    waits, batches = simulated(rate, capacity=1000.0, trigger_s=trigger_s, fixed_s=fixed_s)
    return keeping_up(waits, batches, LagObjective(T, objective_s), since=2 * trigger_s, until=WINDOW_S).keeping


@given(st.floats(1, 700), st.sampled_from([1.0, 5.0, 10.0]), st.floats(0.1, 1.0))
def test_a_rate_well_below_the_capacity_is_kept(rate: float, trigger_s: float, fixed_s: float) -> None:
    assert judged(rate, trigger_s, fixed_s) is Keeping.KEEPS_UP


@given(st.floats(1250, 5000), st.sampled_from([1.0, 5.0, 10.0]), st.floats(0.1, 1.0))
def test_a_rate_well_above_the_capacity_is_not(rate: float, trigger_s: float, fixed_s: float) -> None:
    assert judged(rate, trigger_s, fixed_s) in (Keeping.RISING, Keeping.BEHIND)


def test_a_limited_statement_fails_if_it_leaves_ever_more() -> None:
    for most, expected in ((20, Keeping.KEEPS_UP), (10, Keeping.KEEPS_UP), (9, Keeping.RISING), (5, Keeping.RISING)):
        waits, batches = simulated(1, capacity=1e6, trigger_s=10, fixed_s=0.5, most=most)
        found = keeping_up(waits, batches, LagObjective(T, 300), since=20, until=WINDOW_S)
        assert found.keeping is expected, most


def test_an_input_that_waits_for_longer_than_the_objective_is_a_fault_even_if_batches_are_short() -> None:
    assert judged(10, 10.0, 0.5, objective_s=5.0) is Keeping.BEHIND


def test_without_input_nothing_is_said() -> None:
    found = keeping_up([], [], LagObjective(T, 60), since=0, until=10)
    assert found.keeping is Keeping.NO_INPUT
    assert found.kept


def test_an_unread_input_counts() -> None:
    waits = [InputWait(0.0, 100.0, read=False)]
    found = keeping_up(waits, [], LagObjective(T, 60), since=0, until=100)
    assert (found.keeping, found.unread) == (Keeping.BEHIND, 1)
