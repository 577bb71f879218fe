"""What statements need in a pool, and where they are placed: never over a capacity, and always in the same way."""

from hypothesis import given
from hypothesis import strategies as st

from core.model.names import TableName as T
from core.observed.planner_input import ObservedDeployment, OtherVersion
from core.observed.table_statistics import TableStatistics
from core.planner.pool_load import NOTHING, Load, Unplaced, loads_of, need, place
from core.project.model import Environment, Pool
from core.project.resources import Amounts, over_capacity
from core.project.revision import RevisionTexts

A, B = Pool("a"), Pool("b")


def test_what_a_statement_needs_is_declared_or_estimated_from_its_last_batch() -> None:
    assert need("trigger: 10 seconds\n", "10 seconds") == Load(1, 0.5, 256)
    batch = TableStatistics(batch_s=2.4, state_bytes=64 * 2**20)
    assert need("", "10 seconds", batch) == Load(1, 0.25, 192)
    assert need("", "10 seconds", TableStatistics(batch_s=30.0)) == Load(1, 1.0, 128), "it is always in a batch"
    assert need("", "10 seconds", TableStatistics(batch_s=0.0)) == Load(1, 0.05, 128)
    assert need("resources: {cores: 2}\n", "10 seconds", batch) == Load(1, 2, 192)
    assert need("resources: {cores: 0.5, memory: 1g}\n", "", batch) == Load(1, 0.5, 1024)


def test_older_versions_count_where_they_run_and_what_is_at_rest_nowhere() -> None:
    environment = Environment("dev", pool=A, named_pools=(A, B))
    texts = RevisionTexts(dml="x", yml="resources: {cores: 2, memory: 1g}\n")
    moved = ObservedDeployment(
        "running", deployed=texts, version=2, retained=(1,), former=OtherVersion(1, pool="a"), pool=B
    )
    stopped = ObservedDeployment("stopped", deployed=texts, version=1, wanted="stopped", pool=B)
    external = ObservedDeployment("running", version=0)
    assert loads_of(environment, [moved, stopped, external]) == {"a": Load(1, 2, 1024), "b": Load(1, 2, 1024)}


def test_only_what_grows_beyond_a_capacity_is_too_much() -> None:
    capacity = Amounts(2, 1.5, 512)
    over = over_capacity(capacity, Load(3, 1.75, 600))
    assert [str(each) for each in over] == [
        "3 of at most 2 statements",
        "1.75 of at most 1.5 cores",
        "600m of at most 512m of memory",
    ]
    assert [str(each) for each in over_capacity(capacity, Load(3, 1.75, 600), Load(3, 1.0, 700))] == [
        "1.75 of at most 1.5 cores"
    ]
    assert not over_capacity(Amounts(cores=0.3), Load(3, 0.1 + 0.1 + 0.1, 0))


def test_a_preferred_pool_is_taken_if_it_has_room_and_large_statements_are_packed_if_need_be() -> None:
    pools = (Pool("a", capacity=Amounts(cores=4)), Pool("b", capacity=Amounts(cores=8)))
    empty = {"a": NOTHING, "b": NOTHING}
    small = Unplaced(T("t"), Load(1, 1, 0), ("a", "b"), prefers=("a",))
    assert place([small], pools, empty).by_table[T("t")].pool == "a"
    assert place([small], pools, {**empty, "a": Load(4, 3.5, 0)}).by_table[T("t")].pool == "b"
    # Spread evenly, x of 3 cores would be in b, and then z of 6 fits nowhere.
    waiting = [Unplaced(T(name), Load(1, cores, 0), ("a", "b")) for name, cores in (("x", 3), ("y", 1), ("z", 6))]
    found = place(waiting, pools, empty)
    assert not found.left and found.by_table[T("z")].pool == "b"


NAMES = ("p", "q", "r")
amounts = st.none() | st.integers(1, 6)
capacities = st.builds(Amounts, amounts, amounts, st.none() | st.integers(1, 2048))
needs = st.builds(Load, st.just(1), st.sampled_from((0.0, 0.25, 1.0, 2.5)), st.sampled_from((0.0, 128.0, 512.0)))
loads = st.builds(Load, st.integers(0, 3), st.sampled_from((0.0, 1.0)), st.sampled_from((0.0, 512.0)))
candidates = st.sets(st.sampled_from(NAMES), min_size=1).map(lambda names: tuple(sorted(names)))
preferred = st.lists(st.sampled_from(NAMES), max_size=2).map(tuple)


@given(st.data())
def test_nothing_is_placed_over_a_capacity_and_nothing_that_fits_is_left(data: st.DataObject) -> None:
    pools = [Pool(name, capacity=data.draw(capacities)) for name in NAMES]
    before = {name: data.draw(loads) for name in NAMES}
    waiting = [
        Unplaced(T(f"t{n}"), data.draw(needs), data.draw(candidates), data.draw(preferred))
        for n in range(data.draw(st.integers(0, 7)))
    ]
    found = place(waiting, pools, before)
    assert {each.table for each in waiting} == {*found.by_table, *(each.table for each in found.left)}
    capacity = {pool.name: pool.capacity for pool in pools}
    placed = {
        name: [each for each in waiting if each.table in found.by_table and found.by_table[each.table].pool == name]
        for name in NAMES
    }
    for name in NAMES:
        assert found.loads[name] == sum((each.need for each in placed[name]), before[name])
        assert not placed[name] or not over_capacity(capacity[name], found.loads[name])
        assert all(name in each.candidates for each in placed[name])
    for each in found.left:
        assert all(over_capacity(capacity[name], found.loads[name] + each.need) for name in each.candidates)
    again = place(data.draw(st.permutations(waiting)), data.draw(st.permutations(pools)), before)
    assert (again.by_table, again.loads) == (found.by_table, found.loads)


@given(st.lists(st.integers(0, 4), min_size=3, max_size=3), st.lists(candidates, max_size=8))
def test_statements_that_fit_by_number_are_all_placed(rooms: list[int], wanted: list[tuple[str, ...]]) -> None:
    """With classes, a set of candidates is one pool or all pools, for which the order of placement is optimal."""
    pools = [Pool(name, capacity=Amounts(room)) for name, room in zip(NAMES, rooms, strict=True)]
    sets = [names if len(names) == 1 else NAMES for names in wanted]
    found = place(
        [Unplaced(T(f"t{n}"), Load(1, 0, 0), names) for n, names in enumerate(sets)],
        pools,
        dict.fromkeys(NAMES, NOTHING),
    )
    single = {name: sum(names == (name,) for names in sets) for name in NAMES}
    fits = all(single[name] <= room for name, room in zip(NAMES, rooms, strict=True)) and len(sets) <= sum(rooms)
    assert bool(found.left) != fits
