"""Guards over measurements and policies: the verdict of each, and the remedy for each denial."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest

from core.model.actions import Action, Strategy
from core.model.names import TableName
from core.observed.planner_input import ObservedDeployment
from core.observed.table_statistics import Headroom
from core.plan.model import Guard, Plan, Retention, RetentionKind, StrategyOffer
from core.plan.request import PlanRequest
from core.planner.context import planning_context
from core.planner.guards import judge_plan
from core.planner.planner import make_plan
from core.policy.roles_and_rules import Policy
from core.project.model import Pool, Project, Settings
from core.project.resources import Amounts
from core.project_reader.parse_cache import ParseCache
from core.sql.statement import TableRead, Watermark
from tests.support.domain_builders import T, plan, project, running, table

GB = 10**9


def judged(
    declared: Project,
    observed: dict[TableName, ObservedDeployment],
    request: PlanRequest,
    policy: Policy | None = None,
    room: Headroom | None = None,
    nodes: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
) -> dict[str, Guard]:
    """Return the guards of a request's plan by name; `nodes` overrides fields of the plan's nodes by table."""
    found = make_plan(declared, "dev", observed, replace(request, start=""))
    assert not found.refusals, found.refusals
    context = planning_context(declared, declared.environments["dev"], observed, ParseCache())
    changed = tuple(replace(node, **nodes.get(node.table, {})) for node in found.nodes)
    verdicts = judge_plan(
        context.declared,
        context.observed,
        request,
        changed,
        found.steps,
        policy=policy or Policy(),
        headroom=room or Headroom(),
    )
    for guard in verdicts.guards:
        assert bool(guard.remedy) is (guard.verdict == "deny"), guard
    return {guard.name: guard for guard in verdicts.guards}


CHAIN = project(src="", a="src", b="a", c="b")


def rebuild(*tables: str, children: str = "none", **more: Any) -> PlanRequest:
    return PlanRequest(tables=tuple(map(T, tables)), rebuild=True, children=children, **more)


def chain() -> dict[TableName, ObservedDeployment]:
    return running(CHAIN)


def test_without_figures_and_policy_verdicts_are_unknown() -> None:
    found = judged(CHAIN, chain(), rebuild("c"))
    assert {name: guard.verdict for name, guard in found.items()} == {
        "checkpoint": "ok", "views": "ok", "readers": "ok", "rates": "ok", "history": "unknown", "disk": "unknown",
        "pool": "ok",
    }  # fmt: skip


KEPT, UNCERTAIN = Retention(RetentionKind.OK), Retention(RetentionKind.UNKNOWN)
SHORT = Retention(RetentionKind.SHORT, 7, "2026-08-01 00:00")


@pytest.mark.parametrize(
    ("retention", "start", "strategy", "verdict", "summary"),
    [
        (None, "", "earliest", "unknown", "1 rebuild from the earliest row; how far back that reaches is unknown"),
        (UNCERTAIN, "", "earliest", "unknown", "1 rebuild from the earliest row"),
        (KEPT, "", "earliest", "ok", "1 rebuild from the earliest row, and no input is missing"),
        (SHORT, "", "earliest", "deny",
         "c: 7 files that it has read no longer exist, earliest 2026-08-01 00:00; a rebuild misses their rows"),
        (SHORT, "earliest", "earliest", "warn", "c: 7 files that it has read no longer exist"),
        (SHORT, "2026-07-01T00:00:00Z", "partial", "deny", "c: 7 files that it has read no longer exist"),
        (KEPT, "2026-08-01T00:00:00Z", "partial", "ok", "everything that is replayed is still available"),
        (UNCERTAIN, "2026-08-01T00:00:00Z", "partial", "unknown",
         "it is unknown whether all input after the start position of c still exists"),
        (None, "", "carry_over", "ok", "everything that is replayed is still available"),
    ],
)  # fmt: skip
def test_history(retention: Retention | None, start: str, strategy: str, verdict: str, summary: str) -> None:
    nodes = {"c": {"retention": retention, "strategy": strategy}}
    found = judged(CHAIN, chain(), rebuild("c", start=start), nodes=nodes)["history"]
    assert (found.verdict, found.summary.startswith(summary)) == (verdict, True), found


def test_a_rebuild_over_changes_of_a_database_must_accept_that_earlier_ones_are_missing() -> None:
    source = table("src")
    changes = replace(source, parsed_ddl=replace(source.parsed_ddl, format="postgres_changes"))
    declared = project(changes, a="src", b="a")

    def history(name: str, start: str = "") -> Guard:
        found = make_plan(declared, "dev", running(declared), rebuild(name, start=start))
        return next(guard for guard in found.guards if guard.name == "history")

    assert [history("a", start).verdict for start in ("", "earliest")] == ["deny", "warn"]
    assert history("a").summary.startswith("a: earlier changes in src are no longer in the log of the database")
    assert history("b").verdict == "unknown", "its input is a table"


@pytest.mark.parametrize(
    ("rows", "most", "verdict", "summary"),
    [
        ((1_000, 2_000), None, None, ""),
        ((None, None), None, None, ""),
        ((1_000, 2_000), 3_000, "ok", "3k rows"),
        ((1_000, 2_001), 3_000, "deny", "3k rows; the policy allows 3k rows"),
        (
            (None, 2_000),
            3_000,
            "approve",
            "2k rows and more: no table statistics for b; the policy allows 3k rows, so another",
        ),
        ((None, None), 3_000, "approve", "amount unknown: no table statistics for b, c"),
        ((None, 4_000), 3_000, "deny", "4k rows and more: no table statistics for b; the policy allows 3k rows"),
    ],
)
def test_rows_to_replay(rows: tuple[int | None, ...], most: int | None, verdict: str | None, summary: str) -> None:
    nodes = {name: {"replay_rows": count} for name, count in zip("bc", rows, strict=True)}
    found = judged(CHAIN, chain(), rebuild("b", "c"), Policy(max_replay_rows=most), nodes=nodes).get("replay")
    assert (found.verdict if found else None) == verdict
    assert found is None or found.summary.startswith(summary)


@pytest.mark.parametrize(
    ("seconds", "hours", "verdict"),
    [
        ((None, None, None), None, None),
        ((3600, 5400, 7200), 2, "ok"),
        ((3600, 5400, 7201), 2, "deny"),
        ((None, 60, 60), 2, "approve"),
        ((None, 7201, 60), 2, "deny"),
    ],
)
def test_the_time_to_replay_is_that_of_the_slowest_statement(
    seconds: tuple[float | None, ...], hours: float | None, verdict: str | None
) -> None:
    nodes = {name: {"eta_s": value} for name, value in zip("abc", seconds, strict=True)}
    found = judged(CHAIN, chain(), rebuild("a", "b", "c"), Policy(max_replay_h=hours), nodes=nodes).get("time")
    assert (found.verdict if found else None) == verdict


@pytest.mark.parametrize(
    ("needed", "free", "factor", "verdict"),
    [
        (None, None, None, "unknown"),
        (None, 100 * GB, None, "unknown"),
        (10 * GB, None, None, "unknown"),
        (10 * GB, 13 * GB, None, "ok"),
        (10 * GB, 13 * GB - 1, None, "deny"),
        (10 * GB, 19 * GB, 2.0, "deny"),
        (10 * GB, 20 * GB, 2.0, "ok"),
        (None, 100 * GB, 2.0, "approve"),
        (10 * GB, None, 2.0, "approve"),
    ],
)
def test_disk(needed: int | None, free: int | None, factor: float | None, verdict: str) -> None:
    offers = (StrategyOffer("earliest", disk_bytes=needed), StrategyOffer("keyed", disk_bytes=0))
    found = judged(
        CHAIN,
        chain(),
        rebuild("c"),
        Policy(disk_factor=factor),
        Headroom(disk_free=free),
        nodes={"c": {"offers": offers}},
    )
    assert found["disk"].verdict == verdict, found["disk"]


@pytest.mark.parametrize(
    ("policy", "busy", "verdict", "summary"),
    [
        (Policy(), None, "ok", "2 additional statements on local while both versions run"),
        (Policy(), 0.6, "ok", "2 additional statements on local while both versions run: load 1.2 → 2.0 of 2 cores"),
        (Policy(), 0.9, "warn", "load 1.8 → 3.0 of 2 cores, so batches wait for each other"),
        (Policy(), 1.8, "warn", "load 3.6 → 6.0 of 2 cores, so batches wait for each other"),
        (Policy(max_statements=5), None, "ok", "2 additional statements on local while both versions run"),
        (Policy(max_statements=4), None, "deny",
         "2 additional statements on local while both versions run: that makes 5, and the policy allows 4"),
        (Policy(max_busy_percent=100), 0.6, "ok", "load 1.2 → 2.0 of 2 cores"),
        (Policy(max_busy_percent=99), 0.6, "deny", "load 1.2 → 2.0 of 2 cores; the policy allows 99 % of them"),
        (Policy(max_busy_percent=200), 0.9, "warn", "load 1.8 → 3.0 of 2 cores, so batches wait for each other"),
        (Policy(max_busy_percent=99), None, "approve",
         "the pool's load is unknown; the policy allows 99 %, so another login must approve it"),
    ],
)  # fmt: skip
def test_the_pool_guard_counts_both_versions_of_rebuilt_statements(
    policy: Policy, busy: float | None, verdict: str, summary: str
) -> None:
    found = judged(CHAIN, chain(), rebuild("b", "c"), policy, Headroom(cores=2, busy=busy))["pool"]
    assert found.verdict == verdict and found.summary.endswith(summary), found


def test_pool_counts_what_does_not_run_yet_and_no_external_table() -> None:
    declared = project(src="", a="src", b="src")
    observed = {T("a"): ObservedDeployment("running")}
    found = judged(declared, observed, PlanRequest(everything=True), Policy(max_statements=1))["pool"]
    assert (found.verdict, found.summary) == (
        "deny",
        "1 additional statement on local: that makes 2, and the policy allows 1",
    )
    quiet = judged(declared, running(declared), PlanRequest(everything=True), Policy(max_statements=1))["pool"]
    assert (quiet.verdict, quiet.summary) == ("ok", "no additional statements on local")


@pytest.mark.parametrize(("most", "verdict"), [(None, None), (34.0, "ok"), (33.0, "deny"), (100.0, "ok")])
def test_the_share_of_running_statements_that_a_plan_stops(most: float | None, verdict: str | None) -> None:
    request = PlanRequest(verb="delete", tables=(T("c"),))
    found = judged(CHAIN, chain(), request, Policy(max_stopped_percent=most)).get("stopped")
    assert (found.verdict if found else None) == verdict


@pytest.mark.parametrize(
    ("policy", "request_", "nodes", "why"),
    [
        (Policy(), rebuild("c"), {}, ""),
        (Policy(approve=("delete",)), rebuild("c"), {}, ""),
        (Policy(approve=("delete",)), PlanRequest(verb="delete", tables=(T("c"),)), {}, "it deletes c"),
        (Policy(approve=("rebuild",)), rebuild("c"), {}, "it rebuilds c"),
        (Policy(approve=("swap",)), rebuild("c"), {}, "it swaps pointers"),
        (Policy(approve=("swap",)), PlanRequest(verb="delete", tables=(T("c"),)), {}, ""),
        (Policy(approve=("all",)), rebuild("c"), {}, "the policy requires it for every plan"),
        (Policy(approve=("all",)), PlanRequest(everything=True), {}, ""),
        (Policy(approve_rows=10), rebuild("c"), {"c": {"replay_rows": 10}}, ""),
        (Policy(approve_rows=10), rebuild("c"), {"c": {"replay_rows": 11}}, "more than 10 rows to replay"),
        (Policy(approve_rows=10), rebuild("c"), {}, "the number of rows to replay is unknown"),
        (Policy(approve_rows=10), PlanRequest(verb="delete", tables=(T("c"),)), {}, ""),
        (Policy(), rebuild("c"), {"c": {"lowered": True}}, "less severe than the default: c"),
        (Policy(protected_tables=(T("c"),)), rebuild("c"), {}, "protected: c"),
        (Policy(protected_tables=(T("c"),)), PlanRequest(verb="delete", tables=(T("c"),)), {}, "protected: c"),
        (Policy(protected_tables=(T("b"),)), rebuild("c"), {}, ""),
        (Policy(protected=True), rebuild("c"), {}, ""),
    ],
)  # fmt: skip
def test_plans_that_need_another_logins_approval(
    policy: Policy, request_: PlanRequest, nodes: dict[str, Any], why: str
) -> None:
    found = judged(CHAIN, chain(), request_, policy, nodes=nodes).get("approval")
    assert (found is not None) is bool(why), found
    assert found is None or (found.verdict, found.summary) == ("approve", f"another login must approve it: {why}")


@pytest.mark.parametrize(
    ("policy", "node", "denied"),
    [
        (Policy(), {"strategy": Strategy.KEYED}, False),
        (Policy(protected_tables=(T("c"),)), {"strategy": Strategy.KEYED}, True),
        (Policy(protected=True), {"strategy": Strategy.KEYED}, True),
        (Policy(protected_tables=(T("b"),)), {"strategy": Strategy.KEYED}, False),
        (Policy(protected=True), {"strategy": Strategy.IN_PLACE, "lowered": True, "action": Action.RESTART}, True),
        (Policy(protected=True), {"strategy": Strategy.IN_PLACE, "action": Action.RESTART}, False),
        (Policy(protected=True), {"strategy": Strategy.PARTIAL, "lowered": True}, False),
    ],
)
def test_nothing_protected_is_changed_in_place(policy: Policy, node: dict[str, Any], denied: bool) -> None:
    found = judged(CHAIN, chain(), rebuild("c"), policy, nodes={"c": node}).get("in place")
    assert (found is not None) is denied
    assert found is None or found.verdict == "deny"


def test_a_rewrite_in_place_counts_as_a_rebuild_for_the_policy() -> None:
    node = {"strategy": Strategy.KEYED, "version": 1}
    found = judged(CHAIN, chain(), rebuild("c"), Policy(approve=("rebuild",)), nodes={"c": node})["approval"]
    assert (found.verdict, found.summary) == ("approve", "another login must approve it: it rebuilds c")


def limited(*, rate: bool, watermark: bool) -> Project:
    one = table("c", "b")
    assert one.parsed is not None
    options = (("maxFilesPerTrigger", "1"),) if rate else ()
    reads = (
        TableRead(
            T("b"), streaming=True, options=options, watermark=Watermark("at", "1 minute") if watermark else None
        ),
    )
    return project(replace(one, parsed=replace(one.parsed, reads=reads)), src="", a="src", b="a")


@pytest.mark.parametrize(
    ("rate", "watermark", "state", "request_", "verdict"),
    [
        (True, True, "running", rebuild("c"), "deny"),
        (True, False, "running", rebuild("c"), "ok"),
        (False, True, "running", rebuild("c"), "ok"),
        (True, True, "stopped", PlanRequest(tables=(T("c"),)), "warn"),
        (True, True, "absent", PlanRequest(tables=(T("c"),)), "warn"),
        (True, True, "running", PlanRequest(tables=(T("c"),)), "ok"),
    ],
)
def test_a_rate_limit_under_a_watermark(
    rate: bool, watermark: bool, state: str, request_: PlanRequest, verdict: str
) -> None:
    declared = limited(rate=rate, watermark=watermark)
    found = make_plan(declared, "dev", running(declared, c=state), request_)
    assert {guard.name: guard.verdict for guard in found.guards}["rates"] == verdict


def test_windows_are_named_in_the_plan_and_judged_later() -> None:
    found = judged(CHAIN, chain(), rebuild("c"), Policy(freeze=("Fri 16:00 - Mon 08:00",)))["freeze"]
    assert (found.verdict, found.summary) == ("ok", "no plan is applied during Fri 16:00 - Mon 08:00 (UTC)")


def made(policy: Policy | None = None, **request: Any) -> Plan:
    return make_plan(CHAIN, "dev", chain(), rebuild("c", **request), policy=policy)


def test_a_denial_refuses_the_plan_with_its_way_out() -> None:
    found = made(Policy(max_statements=3))
    assert found.steps == () and found.approvals == 0
    (refusal,) = found.refusals
    assert (
        refusal.summary
        == "1 additional statement on local while both versions run: that makes 4, and the policy allows 3"
    )
    assert refusal.remedy == "plan fewer tables at once, or stop what is not needed"


def test_a_plan_says_how_many_must_approve_it_and_by_which_policy_it_was_judged() -> None:
    asking = Policy(approve=("rebuild",), disk_factor=2)
    found = made(asking)
    assert (found.approvals, found.policy) == (1, asking.digest)
    assert (made().approvals, made().policy) == (0, Policy().digest)
    assert found.hash != made().hash


def test_files_add_protection_and_never_take_it_away() -> None:
    declared = project(table("c", "src", settings=Settings(protect=True)), src="", a="src")
    for policy in (None, Policy(), Policy(protected_tables=(T("a"),))):
        found = make_plan(declared, "dev", running(declared), rebuild("a", "c"), policy=policy)
        (guard,) = (guard for guard in found.guards if guard.verdict == "approve")
        protected = "a, c" if policy and policy.protected_tables else "c"
        assert guard.summary == f"another login must approve it: protected: {protected}"
        assert found.protected is False
    assert make_plan(declared, "dev", running(declared), rebuild("a"), policy=Policy(protected=True)).protected
    kept = project(src="", a="src", protected=True)
    assert make_plan(kept, "dev", running(kept), rebuild("a"), policy=Policy()).protected


def test_verdicts_do_not_depend_on_what_is_outside_the_plan() -> None:
    other = project(src="", a="src", b="a", c="b", x="src", y="x")
    one = make_plan(other, "dev", running(other), rebuild("c"), headroom=Headroom(cores=2, busy=0.3))
    for changed in (running(other, x="failed", y="stopped"), running(other, "src", "a", "b", "c")):
        found = make_plan(other, "dev", changed, rebuild("c"), headroom=Headroom(cores=2, busy=0.2))
        assert [(g.name, g.verdict) for g in found.guards] == [(g.name, g.verdict) for g in one.guards]
        assert found.hash == one.hash


def test_the_plan_of_a_protected_table_says_it_in_its_guards() -> None:
    found = plan(project(table("a", "src", settings=Settings(protect=True)), src=""), {}, "a")
    assert found.approvals == 0, "a first start destroys nothing"


def of_pools(*most: int | None) -> Project:
    """Return the chain in an environment with pools, each with a capacity; c names the second one."""
    pools = tuple(Pool(f"p{n}", capacity=Amounts(each)) for n, each in enumerate(most))
    dev = replace(CHAIN.environments["dev"], pool=pools[0], named_pools=pools)
    c = replace(CHAIN.tables[T("c")], settings=Settings(pool="p1"))
    return replace(CHAIN, environments={"dev": dev}, tables={**CHAIN.tables, T("c"): c})


def test_each_pool_is_judged_by_its_own_capacity() -> None:
    everything = PlanRequest(everything=True)
    assert str(judged(of_pools(None, None), {}, everything)["pool"].summary) == ("a, b run in p0; c runs in p1")
    full = make_plan(of_pools(1, None), "dev", {}, everything).refusals
    assert [str(each.summary) for each in full if each.guard == "pool"] == [
        "2 additional statements on p0, which would hold 2 of at most 1 statement"
    ]
    assert judged(of_pools(2, 1), {}, everything)["pool"].verdict == "ok"


def test_one_refusal_names_every_dimension_of_every_pool_that_is_too_small() -> None:
    declared = of_pools(None, None)
    pools = (Pool("p0", capacity=Amounts(1, 0.75)), Pool("p1", capacity=Amounts(cores=1, mib=128)))
    declared = replace(
        declared, environments={"dev": replace(declared.environments["dev"], pool=pools[0], named_pools=pools)}
    )
    (refusal,) = make_plan(declared, "dev", {}, PlanRequest(everything=True)).refusals
    assert str(refusal.summary) == (
        "2 additional statements on p0, which would hold 2 of at most 1 statement and 1 of at most 0.75 cores; "
        "1 additional statement on p1, which would hold 256m of at most 128m of memory"
    )
    assert "raise capacity:" in str(refusal.remedy)


def test_a_statement_that_declares_more_is_judged_though_it_only_restarts() -> None:
    pool = Pool("local", capacity=Amounts(cores=2))
    one = project(table("c", "src", settings=Settings(resources=Amounts(cores=4))), src="")
    one = replace(one, environments={"dev": replace(one.environments["dev"], pool=pool)})
    seen = running(one)
    texts = seen[T("c")].deployed
    assert texts is not None
    seen[T("c")] = replace(seen[T("c")], deployed=replace(texts, yml='trigger: "10 seconds"\n'))
    (refusal,) = make_plan(one, "dev", seen, PlanRequest(tables=(T("c"),))).refusals
    assert str(refusal.summary) == "no additional statements on local, which would hold 4 of at most 2 cores"
    smaller = replace(
        one, environments={"dev": replace(one.environments["dev"], pool=replace(pool, capacity=Amounts(1)))}
    )
    assert not make_plan(smaller, "dev", seen, PlanRequest(tables=(T("c"),))).refusals


def test_a_move_counts_in_the_new_pool_and_no_longer_in_the_old_one() -> None:
    declared = of_pools(3, 1)
    seen = {name: replace(each, pool=Pool("p0")) for name, each in running(declared).items()}
    move = PlanRequest(tables=(T("c"),))
    assert str(judged(declared, seen, move)["pool"].summary) == "c runs in p1"
    seen[T("b")] = replace(seen[T("b")], pool=Pool("p1"))
    refused = make_plan(declared, "dev", seen, move).refusals
    assert [each.guard for each in refused] == ["pool"]
