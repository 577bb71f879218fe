"""The planner places statements that leave it the choice, and leaves what runs where it is."""

import json
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from core.model.actions import Action
from core.observed.planner_input import ObservedDeployment, ObservedPool, OtherVersion
from core.observed.table_statistics import TableStatistics
from core.plan.codec import canonical_text, plan_as_json, plan_from_json, plan_hash
from core.plan.model import Placement, Plan
from core.plan.rendering import plan_sections
from core.plan.request import PlanRequest
from core.planner.planner import make_plan
from core.project.model import Pool, Project, Settings
from core.project.resources import Amounts, PoolClass
from core.project_reader.revision_reader import revision_of
from tests.support.domain_builders import T, project, running, table

EVERYTHING = PlanRequest(everything=True)
TWO = (Pool("p0", capacity=Amounts(4)), Pool("p1", capacity=Amounts(2)))


def spread(*pools: Pool, spreads: bool = True, **settings: Settings) -> Project:
    """Return a chain of statements a, b, c and d in an environment with pools."""
    names = {"a": "src", "b": "a", "c": "b", "d": "c"}
    made = [table(name, parent, settings=settings.get(name, Settings())) for name, parent in names.items()]
    found = project(*made, src="")
    dev = replace(found.environments["dev"], pool=pools[0], named_pools=pools, spreads=spreads)
    return replace(found, environments={"dev": dev})


def placed(plan: Plan) -> dict[str, str]:
    return {str(node.table): node.pool for node in plan.nodes if node.pool}


def why(plan: Plan, name: str) -> str:
    return next(str(node.placed) for node in plan.nodes if node.table == name)


def in_pools(declared: Project, **pools: str) -> dict[T, ObservedDeployment]:
    """Return running statements, each in a pool."""
    by_name = {pool.name: pool for pool in declared.environments["dev"].named_pools}
    found = running(declared)
    for name, pool in pools.items():
        found[T(name)] = replace(found[T(name)], pool=replace(by_name[pool], capacity=Amounts()))
    return found


def test_new_statements_go_where_most_stays_free() -> None:
    found = make_plan(spread(*TWO), "dev", {}, EVERYTHING)
    assert placed(found) == {"a": "p0", "b": "p1", "c": "p0", "d": "p0"}
    assert why(found, "a") == "runs in p0, which has the most room: 75 % of its statements stay free"
    assert [str(guard.summary) for guard in found.guards if guard.name == "pool"] == ["a, c, d run in p0; b runs in p1"]


def test_the_plan_gives_the_reason_for_each_pool_that_it_has_chosen() -> None:
    sections = plan_sections(make_plan(spread(*TWO, a=Settings(pool="p1")), "dev", {}, EVERYTHING))
    assert sections["POOLS"] == (
        "b runs in p0, which has the most room: 75 % of its statements stay free",
        "c runs in p0, which has the most room: 50 % of its statements stay free",
        "d runs in p0, which has the most room: 25 % of its statements stay free",
    )
    assert "POOLS" not in plan_sections(make_plan(spread(*TWO, spreads=False), "dev", {}, EVERYTHING))


def test_the_reasons_are_in_the_order_of_the_choices() -> None:
    large = Settings(resources=Amounts(cores=2))
    found = make_plan(
        spread(*(Pool(f"p{n}", capacity=Amounts(cores=4)) for n in (0, 1)), d=large), "dev", {}, EVERYTHING
    )
    assert plan_sections(plan_from_json(json.loads(json.dumps(plan_as_json(found)))))["POOLS"] == (
        "d runs in p0, which has the most room: 50 % of its cores stay free",
        "a runs in p1, which has the most room: 88 % of its cores stay free",
        "b runs in p1, which has the most room: 75 % of its cores stay free",
        "c runs in p1, which has the most room: 62 % of its cores stay free",
    )


def test_without_placement_the_default_pool_is_taken_as_before() -> None:
    found = make_plan(spread(*TWO, spreads=False, d=Settings(pool="p1")), "dev", {}, EVERYTHING)
    assert placed(found) == {"a": "p0", "b": "p0", "c": "p0", "d": "p1"}
    assert (why(found, "a"), why(found, "d")) == ("runs in p0, the default pool", "runs in p1, which its yml names")


def test_a_class_is_kept_and_a_name_comes_first() -> None:
    pools = (
        Pool("p0"),
        Pool("f0", of_class="fast", capacity=Amounts(2)),
        Pool("f1", of_class="fast", capacity=Amounts(1)),
    )
    fast = Settings(pool=PoolClass("fast"))
    declared = spread(*pools, spreads=False, a=Settings(pool="f0"), b=fast, c=fast)
    found = make_plan(declared, "dev", {}, EVERYTHING)
    assert placed(found) == {"a": "f0", "b": "f1", "c": "f0", "d": "p0"}
    assert why(found, "c") == "runs in f0, which has the most room of class fast: 0 % of its statements stay free"
    small = replace(TWO[0], of_class="fast")
    only = make_plan(spread(TWO[1], small, spreads=False, a=fast), "dev", {}, EVERYTHING)
    assert why(only, "a") == "runs in p0, the only pool of class fast that takes new statements"


def test_pools_without_a_capacity_share_by_number() -> None:
    found = make_plan(spread(Pool("p0"), Pool("p1")), "dev", {}, EVERYTHING)
    assert placed(found) == {"a": "p0", "b": "p1", "c": "p0", "d": "p1"}
    assert why(found, "d") == "runs in p1, which has no capacity that could be exceeded, and only 1 statement"


def test_what_runs_stays_where_it_is_whatever_room_there_is_elsewhere() -> None:
    declared = spread(*TWO)
    seen = in_pools(declared, a="p1", b="p1", c="p1", d="p1")
    assert make_plan(declared, "dev", seen, EVERYTHING).empty
    seen[T("b")] = replace(seen[T("b")], engine="4.1.0")
    found = make_plan(declared, "dev", seen, PlanRequest(tables=(T("b"),)), pools={"p1": ObservedPool(True, "4.2.0")})
    assert [(node.action, node.pool) for node in found.nodes if node.table == "b"] == [(Action.RESTART, "p1")]
    assert why(found, "b") == "stays in p1" and not found.refusals


def rebuilt(declared: Project, seen: dict[T, ObservedDeployment], **more: Any) -> Plan:
    return make_plan(declared, "dev", seen, PlanRequest(tables=(T("d"),), rebuild=True), **more)


def test_a_new_version_stays_in_the_pool_of_the_old_one_if_that_has_room() -> None:
    declared = spread(*TWO)
    roomy, full = in_pools(declared, a="p0", b="p0", c="p0", d="p1"), in_pools(declared, a="p0", b="p0", c="p1", d="p1")
    assert placed(rebuilt(declared, roomy))["d"] == "p1"
    there = rebuilt(declared, full)
    assert placed(there)["d"] == "p0" and not there.refusals
    assert why(there, "d").startswith("runs in p0, which ")
    unfit = rebuilt(declared, roomy, pools={"p1": ObservedPool(unfit="silent")})
    assert placed(unfit)["d"] == "p0"


def test_no_statement_is_placed_in_a_pool_that_takes_none() -> None:
    declared, cordoned = spread(*TWO), {"p0": ObservedPool(True), "p1": ObservedPool(unfit="down")}
    found = make_plan(declared, "dev", {}, PlanRequest(tables=(T("a"),)), pools={"p0": ObservedPool(True)})
    assert placed(found) == {"a": "p1"} and why(found, "a") == "runs in p1, the only pool that takes new statements"
    (refusal,) = make_plan(declared, "dev", {}, PlanRequest(tables=(T("a"),)), pools=cordoned).refusals
    assert str(refusal.summary) == "no pool takes a: p0 is cordoned; p1 is down" and refusal.guard == "pool"


def test_a_stopped_statement_of_a_cordoned_pool_starts_in_another_one() -> None:
    declared = spread(*TWO)
    seen = in_pools(declared, a="p0", b="p0", c="p0", d="p1")
    seen[T("d")] = replace(seen[T("d")], state="stopped", wanted="stopped")
    one = PlanRequest(tables=(T("d"),))
    assert [(node.action, node.pool) for node in make_plan(declared, "dev", seen, one).nodes if node.table == "d"] == [
        (Action.RESUME, "p1")
    ]
    found = make_plan(declared, "dev", seen, one, pools={"p1": ObservedPool(True)})
    assert [(node.action, node.pool, node.row) for node in found.nodes if node.table == "d"] == [
        (Action.RESTART, "p0", "12")
    ]
    assert not found.refusals


def test_a_drain_moves_what_names_no_pool_without_an_edit() -> None:
    declared = spread(*TWO)
    seen = in_pools(declared, a="p0", b="p0", c="p0", d="p1")
    drain = PlanRequest(tables=(T("d"),), children="none", drains="p1")
    found = make_plan(declared, "dev", seen, drain)
    (node,) = (node for node in found.nodes if node.table == "d")
    assert (node.action, node.pool, node.old.yml) == (Action.RESTART, "p0", node.texts.yml)
    assert not [warned for warned in found.warnings if warned.kind == "files_name_pool"]
    elsewhere = make_plan(declared, "dev", {**seen, T("d"): replace(seen[T("d")], pool=Pool("p0"))}, EVERYTHING)
    assert elsewhere.empty, "the next plan leaves it there"


def test_a_statement_that_names_its_pool_is_moved_by_a_drain_and_not_by_its_file() -> None:
    declared = spread(*TWO, spreads=False, d=Settings(pool="p0"))
    drain = PlanRequest(tables=(T("d"),), children="none", drains="p1")
    found = make_plan(declared, "dev", in_pools(declared, a="p0", b="p0", c="p0", d="p1"), drain)
    assert why(found, "d") == "runs in p0, to which the drain of p1 moves it"
    (warned,) = (each for each in found.warnings if each.kind == "files_name_pool")
    assert "the yml of d must name the new pool before its next plan, which is denied" in str(warned.summary)


def test_what_fits_nowhere_is_refused_with_the_room_of_every_pool() -> None:
    declared = spread(Pool("p0", capacity=Amounts(2, 1.0)), Pool("p1", capacity=Amounts(1)))
    (refusal,) = make_plan(declared, "dev", {}, EVERYTHING).refusals
    assert str(refusal.summary) == (
        "d fits into no pool: with d, p0 would hold 3 of at most 2 statements and 1.5 of at most 1 cores; "
        "with d, p1 would hold 2 of at most 1 statement"
    )


def test_a_reviewed_choice_is_kept_while_it_has_room() -> None:
    declared, one = spread(*TWO), PlanRequest(tables=(T("a"),))
    first = make_plan(declared, "dev", {}, one, chosen={T("a"): "p1"})
    assert placed(first) == {"a": "p1"} and first.hash != make_plan(declared, "dev", {}, one).hash
    assert why(first, "a") == "runs in p1, which has room and was chosen when the plan was made"
    full = (TWO[0], replace(TWO[1], capacity=Amounts(cores=0.1)))
    for pools, known in ((full, {}), (TWO, {"p1": ObservedPool(True)})):
        again = make_plan(spread(*pools), "dev", {}, one, chosen={T("a"): "p1"}, pools=known)
        assert placed(again) == {"a": "p0"} and again.hash != first.hash


def test_the_pool_is_part_of_the_plan_and_of_its_hash_and_its_reason_is_not() -> None:
    found = make_plan(spread(*TWO), "dev", {}, EVERYTHING)
    data = json.loads(canonical_text(plan_as_json(found)))
    assert canonical_text(plan_as_json(plan_from_json(data))) == canonical_text(data)
    assert plan_hash(replace(found, nodes=tuple(replace(node, placed=None) for node in found.nodes))) == found.hash
    assert plan_hash(replace(found, nodes=tuple(replace(node, pool="p1") for node in found.nodes))) != found.hash
    for node in data["nodes"]:
        del node["pool"], node["placed"]
    old = plan_from_json(data)
    assert {node.pool for node in old.nodes} == {""} and {node.placed for node in old.nodes} == {None}


def test_a_rollback_goes_back_to_the_pool_of_the_former_version() -> None:
    declared = spread(*TWO)
    seen = in_pools(declared, a="p0", b="p0", c="p0", d="p0")
    now = seen[T("d")]
    assert now.deployed is not None
    former = OtherVersion(1, bindings=now.bindings, texts=now.deployed, pool="p1")
    seen[T("d")] = replace(now, version=2, highest_version=2, pointer="d__v2", former=former, kept=(1,))
    found = make_plan(declared, "dev", seen, PlanRequest(verb="rollback", tables=(T("d"),)))
    assert placed(found) == {"d": "p1"} and why(found, "d") == "goes back to p1, where this version ran"
    assert {node.placed.kind for node in found.nodes if node.placed} == {Placement.BACK}


def test_a_version_that_a_failed_run_has_made_stays_in_its_pool() -> None:
    declared = spread(*TWO)
    seen = in_pools(declared, a="p0", b="p0", c="p0", d="p0")
    now = seen[T("d")]
    orphan = OtherVersion(2, revision_of(declared.tables[T("d")]).hash, now.bindings, pool="p1")
    seen[T("d")] = replace(now, highest_version=2, kept=(2,), retained=(2,), orphan_versions=(orphan,))
    again = PlanRequest(tables=(T("d"),), rebuild=True, continues="r1")
    found = make_plan(declared, "dev", seen, again)
    assert placed(found) == {"d": "p1"} and not found.refusals
    assert why(found, "d") == "runs in p1, in which a failed run has made this version"


def test_an_edit_in_another_pool_than_the_default_one_is_undone_there() -> None:
    declared = spread(*TWO)
    seen = in_pools(declared, a="p1", b="p1", c="p1", d="p1")
    edited = table("d", "c", settings=Settings(trigger="1 minute"))
    after = replace(declared, tables={**declared.tables, T("d"): edited})
    found = make_plan(after, "dev", seen, PlanRequest(tables=(T("d"),)))
    assert placed(found) == {"d": "p1"}
    (way,) = found.undo
    assert way.act == "plan undo" and str(way.words).startswith("restart with the old text on the same checkpoint")


POOLS = st.lists(
    st.builds(Amounts, st.none() | st.integers(1, 5), st.none() | st.sampled_from((0.5, 1.0, 2.0))),
    min_size=2,
    max_size=3,
)
WHERE = st.sampled_from(("", "p0", "p1"))


@given(POOLS, st.fixed_dictionaries(dict.fromkeys("abcd", WHERE)), st.sets(st.sampled_from(("p0", "p1"))), st.data())
def test_plans_over_any_pools(capacities: list[Amounts], where: dict[str, str], cordoned: set[str], data: Any) -> None:
    pools = tuple(Pool(f"p{n}", capacity=each) for n, each in enumerate(capacities))
    declared = spread(*pools)
    seen = in_pools(declared, **{name: pool for name, pool in where.items() if pool})
    for name, pool in where.items():
        if pool:
            batch = data.draw(st.sampled_from((None, 0.5, 20.0)))
            seen[T(name)] = replace(seen[T(name)], statistics=TableStatistics(batch_s=batch), trigger="10 seconds")
        else:
            del seen[T(name)]
    known = {pool.name: ObservedPool(pool.name in cordoned) for pool in pools}
    found = make_plan(declared, "dev", seen, EVERYTHING, pools=known)
    turned = dict(data.draw(st.permutations(sorted(seen.items()))))
    assert make_plan(declared, "dev", turned, EVERYTHING, pools=dict(reversed(known.items()))).hash == found.hash
    new = placed(found)
    assert not {name for name, pool in where.items() if pool} & new.keys(), "running statements stay"
    assert not cordoned & {*new.values()}
    used = {pool.name: [name for name, there in (*where.items(), *new.items()) if there == pool.name] for pool in pools}
    for pool in pools:
        most = pool.capacity.statements
        assert not any(there == pool.name for there in new.values()) or most is None or len(used[pool.name]) <= most
    if all(each.cores is None for each in capacities):
        rooms = [
            99
            if pool.capacity.statements is None
            else max(0, pool.capacity.statements - list(where.values()).count(pool.name))
            for pool in pools
            if pool.name not in cordoned
        ]
        fits = sum(rooms) >= list(where.values()).count("")
        assert bool(found.refusals) != fits
