"""The strategies offered for each statement of a plan, with their costs; nothing unmeasured has a cost."""

import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from core.model.errors import Refused
from core.model.names import TableName as T
from core.model.reasons import Reason
from core.observed.planner_input import Seconds
from core.observed.table_statistics import TableStatistics
from core.plan.codec import plan_as_json, plan_from_json
from core.plan.descriptions import eta_words
from core.plan.model import Retention, RetentionKind, StrategyOffer
from core.plan.rendering import head_parts
from core.plan.request import PlanRequest, StrategyChoice
from core.planner.planner import make_plan
from core.planner.strategy_costs import not_executable_warnings, not_executable_yet, refuse_not_executable
from core.project.model import Settings
from tests.support.domain_builders import deployed, plan, project, running, table
from tests.support.priced_project import TEXTS, declared, measured, node_of, observed, offered, planned, words
from tests.support.random_worlds import World, cases, times

FILTERED = f"{TEXTS['a'][1]} WHERE v > 1"
MIN = TEXTS["b"][1].replace("max(", "min(")
SUM = TEXTS["b"][1].replace("max(", "sum(")
HAVING = f"{TEXTS['b'][1]} HAVING max(v) > 1"
MORE_SOURCES = "INSERT INTO c SELECT k, m FROM STREAM b UNION ALL SELECT k, v AS m FROM STREAM a"
PARTITIONED = (TEXTS["c"][0] + " PARTITIONED BY (k)", TEXTS["c"][1])
LOST = {"checkpoint_ok": False}


@pytest.mark.parametrize(
    ("edits", "asked", "strategies"),
    [
        ({"a": FILTERED}, "a", ["in_place", "earliest", "partial", "seeded", "carry_over"]),
        ({"b": HAVING}, "b", ["in_place", "earliest", "partial", "seeded", "fork"]),
        ({"b": MIN}, "b", ["earliest", "partial", "seeded", "in_place"]),
        ({"b": SUM}, "b", ["earliest", "partial", "seeded"]),
        ({"c": MORE_SOURCES}, "c", ["earliest", "seeded"]),
        ({"c": PARTITIONED}, "c", ["earliest", "partial", "seeded", "carry_over", "chain"]),
    ],
    ids=["row 3", "row 6c", "row 6a, same state", "row 6a, other state", "row 7a", "row 8"],
)
def test_the_strategies_of_a_row_with_the_default_first(
    edits: dict[str, str], asked: str, strategies: list[str]
) -> None:
    assert list(offered(planned(declared(**edits), asked), asked)) == strategies


def test_a_stateless_reader_of_a_rebuilt_table_may_keep_its_table_and_a_stateful_one_may_not() -> None:
    found = planned(declared(), "a", rebuild=True)
    assert list(offered(found, "b")) == ["earliest", "partial"]
    assert list(offered(found, "c")) == ["earliest", "partial", "seam"]


def test_a_first_start_may_begin_later() -> None:
    found = planned(declared(), "a", world={})
    assert list(offered(found, "a")) == ["first", "partial", "seeded"]
    assert node_of(found, "a").retention == Retention(RetentionKind.OK) and node_of(found, "a").replay_rows is None


def test_kept_recorded_and_resumed_statements_have_no_offers() -> None:
    world = observed(a={"state": "stopped"})
    assert not any(node.offers for node in planned(declared(), "a", "b", world=world).nodes)


def test_a_rebuild_reads_what_its_parents_hold_and_is_done_after_the_slowest_of_them() -> None:
    found = planned(declared(), "a", rebuild=True)
    a, b, c = (node_of(found, name) for name in "abc")
    assert (a.replay_rows, a.replay_bytes, a.eta_s) == (1_000, 50_000, 10.0)
    assert (b.replay_rows, b.replay_bytes, b.eta_s) == (800, 40_000, 10.0 + 800 / 50)
    assert (c.replay_rows, c.replay_bytes, c.eta_s) == (80, 4_000, 10.0 + 800 / 50 + 80 / 20)
    assert offered(found, "b")["earliest"].disk_bytes == 4_000 + 512
    assert offered(found, "a")["earliest"] == StrategyOffer("earliest", 1_000, 10.0, 50_000, 40_000, ())


def test_a_strategy_that_no_agent_carries_out_is_warned_of_and_refused_by_name() -> None:
    found = planned(declared(), "c", rebuild=True)
    later = replace(found, nodes=tuple(replace(n, strategy="later") if n.table == "c" else n for n in found.nodes))
    assert [(w.table, w.summary) for w in not_executable_warnings(later.nodes)] == [
        ("c", "later cannot be executed yet: it can only be planned, and agents refuse it")
    ]
    with pytest.raises(Refused, match="the plan uses later for c, which this version cannot execute yet"):
        refuse_not_executable(later)
    refuse_not_executable(found)


def test_a_refused_choice_names_the_possible_ones() -> None:
    made = project(table("src"), table("a", "src", settings=upserted(sequence="")))
    refused = plan(made, running(made), "a", choices=(StrategyChoice(T("a"), "chain"),), rebuild=True).refusals
    assert [r.remedy for r in refused] == ["use earliest, seeded"]


@pytest.mark.parametrize(
    ("of", "unknown", "lost"),
    [
        ("src", "rows", "replay_rows eta_s"),
        ("src", "bytes", "replay_bytes"),
        ("a", "rate_rows_s", "eta_s"),
        ("a", "bytes", "disk_bytes"),
    ],
)
def test_an_unknown_figure_makes_the_cost_unknown(of: str, unknown: str, lost: str) -> None:
    world = observed(**{of: measured(of, **{unknown: None})})
    offer = offered(planned(declared(), "a", rebuild=True, world=world), "a")["earliest"]
    assert [
        name for name in ("replay_rows", "eta_s", "replay_bytes", "disk_bytes") if getattr(offer, name) is None
    ] == (lost.split())


def test_without_any_figure_nothing_is_known_and_nothing_is_guessed() -> None:
    world = {name: replace(seen, statistics=None) for name, seen in observed().items()}
    node = node_of(planned(declared(), "a", rebuild=True, world=world), "a")
    assert (node.replay_rows, node.eta_s, node.replay_bytes, node.retention) == (
        None,
        None,
        None,
        Retention(RetentionKind.UNKNOWN),
    )


def test_the_state_of_a_stateful_statement_counts_as_space_and_is_asked_for() -> None:
    world = observed(b=measured("b", state_bytes=None))
    assert offered(planned(declared(), "b", rebuild=True, world=world), "b")["earliest"].disk_bytes is None


def test_below_a_version_that_holds_less_nothing_is_known_of_the_rows() -> None:
    found = planned(declared(), "a", choose="a=carry-over")
    assert [node_of(found, name).replay_rows for name in "abc"] == [0, None, None]
    assert node_of(found, "a").loses == ("rows from before its start position",)


def test_a_version_that_continues_from_a_checkpoint_reads_nothing_again() -> None:
    node = node_of(planned(declared(a=FILTERED), "a"), "a")
    assert (node.replay_rows, node.replay_bytes, node.eta_s, node.retention) == (0, 0, None, None)


# Retention


def test_missing_history_is_refused_and_named() -> None:
    found = planned(declared(), "a", rebuild=True, world=observed(a=measured("a", gone=3)))
    assert node_of(found, "a").retention == Retention(RetentionKind.SHORT, 3, "2026-01-01 00:00")
    assert found.refusals and found.empty and "3 files" in found.refusals[0].summary


@pytest.mark.parametrize("start", ["earliest", "now", "2026-01-03T00:00:00Z"])
def test_a_start_position_reads_the_remaining_rows(start: str) -> None:
    found = planned(declared(), "a", rebuild=True, start=start, world=observed(a=measured("a", gone=3)))
    assert not found.refusals


@pytest.mark.parametrize(
    ("at", "retention"),
    [
        ("2026-01-01T00:00:00Z", Retention(RetentionKind.OK)),
        ("2025-12-31T23:59:59Z", Retention(RetentionKind.SHORT, 1, "2026-01-01 00:00")),
    ],
)
def test_a_partial_version_needs_only_input_after_its_start(at: str, retention: Retention) -> None:
    world = observed(a=measured("a", gone=1))
    found = planned(declared(), "a", choose=f"a=partial@{at}", world=world)
    assert node_of(found, "a").retention == retention
    whole = offered(planned(declared(), "a", rebuild=True, world=world), "a")["earliest"]
    assert (node_of(found, "a").replay_rows, node_of(found, "a").eta_s) == (whole.replay_rows, whole.eta_s), (
        "every file"
    )


def test_readers_of_a_recreated_table_find_everything_in_place() -> None:
    world = observed(b=measured("b", gone=5))
    assert node_of(planned(declared(), "a", rebuild=True, world=world), "b").retention == Retention(RetentionKind.OK)


# Strategies that no agent carries out yet.


def test_the_strategies_of_releases_are_planned_in_full_and_named() -> None:
    found = planned(declared(b=HAVING), "b", choose="b=fork c=seam")
    assert not_executable_yet(found) == ()
    assert (
        not_executable_yet(planned(declared(b=HAVING), "b"))
        == ()
        == not_executable_yet(planned(declared(), "a", rebuild=True))
    )
    assert found.steps and not found.refusals


def upserted(**settings: object) -> Settings:
    return Settings(**{"mode": "upsert", "key": ("id",), "sequence": "id", "tags": ("compatible",), **settings})  # type: ignore[arg-type]


def test_a_keyed_table_is_written_again_in_place_and_stateful_readers_are_rebuilt() -> None:
    tolerant = Settings(tags=("tolerant",))
    made = project(
        table("src"), table("a", "src", settings=upserted()),
        table("b", "a", settings=tolerant), table("c", "a", stateful=True, settings=tolerant),
    )  # fmt: skip
    found = plan(made, running(made), "a", rebuild=True)
    assert list(offered(found, "a")) == ["earliest", "keyed"]
    found = plan(made, running(made), "a", choices=(StrategyChoice(T("a"), "keyed"),))
    assert [(str(n.table), str(n.action), n.version) for n in found.nodes] == [
        ("src", "keep", 0), ("a", "rebuild", 1), ("c", "rebuild", 2),
    ]  # fmt: skip
    assert [f"{s.do} {s.table}@{s.version}" for s in found.steps][:2] == ["rewrite a@1", "catch_up a@1"]
    assert not_executable_yet(found) == () and node_of(found, "a").loses == (
        "the current rows: each is written again under its key",
    )
    assert node_of(found, "c").reason is Reason.PARENT_REWRITTEN


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (Settings(key=("id",), tags=("compatible",)), Settings(tags=("tolerant",))),
        (upserted(key=()), Settings(tags=("tolerant",))),
        (upserted(tags=()), Settings(tags=("tolerant",))),
        (upserted(), Settings()),
    ],
    ids=["appended", "no key", "not compatible", "reader not tolerant"],
)
def test_a_table_is_not_written_again_in_place_without_every_condition(a: Settings, b: Settings) -> None:
    made = project(table("src"), table("a", "src", settings=a), table("b", "a", settings=b))
    assert "keyed" not in offered(plan(made, running(made), "a", rebuild=True), "a")


BELOW = ("CREATE TABLE d (k STRING) USING parquet", "INSERT INTO d SELECT k FROM STREAM c")


def test_a_chained_version_continues_beside_the_old_one_and_keeps_its_rows() -> None:
    found = planned(declared(c=PARTITIONED), "c", choose="c=chain")
    assert words(found) == [] and not_executable_yet(found) == () and node_of(found, "c").loses == ()
    assert [f"{s.do} {s.table}@{s.version}" for s in found.steps] == [
        "create c@2", "fork c@2", "start c@2", "catch_up c@2", "swap c@2", "stop c@1",
    ]  # fmt: skip


def test_readers_of_a_chained_version_continue_in_the_new_one() -> None:
    made, world = declared(c=PARTITIONED, d=BELOW), observed()
    world[T("d")] = deployed(made.tables[T("d")], statistics=TableStatistics())
    found = planned(made, "c", choose="c=chain", world=world)
    assert words(found) == []
    assert [(str(n.table), str(n.action), n.strategy) for n in found.nodes if n.action != "keep"] == [
        ("c", "rebuild", "chain"), ("d", "restart", "seam"),
    ]  # fmt: skip
    assert [f"{s.do} {s.table}@{s.version}" for s in found.steps] == [
        "create c@2", "fork c@2", "start c@2", "catch_up c@2", "swap c@2", "seam d@1", "stop c@1",
    ]  # fmt: skip
    assert not node_of(found, "d").lowered


def test_a_streaming_reader_that_cannot_move_prevents_a_chain() -> None:
    named = (BELOW[0], BELOW[1].replace("FROM STREAM c", "FROM STREAM c IDENTIFIED BY c"))
    made, world = declared(c=PARTITIONED, d=named), observed()
    world[T("d")] = deployed(made.tables[T("d")], statistics=TableStatistics())
    assert words(planned(made, "c", choose="c=chain", world=world)) == [
        "chain cannot be used for c: d streams it and could not go on in the new version: it streams more than one "
        "table, or names its source. use earliest, partial, seeded, carry-over"
    ]


def test_a_reader_of_a_chained_version_from_its_first_row_is_told_what_it_lacks() -> None:
    lacks = (
        "gets only rows of the newest version of c: earlier rows are served by its pointer alone; headgate plan c "
        "--rebuild puts all rows into one version"
    )
    made = declared(d=BELOW)
    chained = planned(made, "d", world=observed(c={"rows_before": True}))
    assert [w.summary for w in chained.warnings if w.table == "d"] == [lacks]
    assert lacks not in [w.summary for w in planned(made, "d").warnings]
    together = planned(declared(c=PARTITIONED, d=BELOW), "c", "d", choose="c=chain")
    assert lacks in [w.summary for w in together.warnings]
    rebuilt = planned(declared(c=PARTITIONED, d=BELOW), "c", "d", world=observed(c={"rows_before": True}))
    assert lacks not in [w.summary for w in rebuilt.warnings]


def test_a_chained_table_gets_no_column_in_place() -> None:
    more = (
        TEXTS["c"][0].replace("BIGINT)", "BIGINT, more STRING)"),
        TEXTS["c"][1].replace(" FROM", ", k AS more FROM"),
    )
    assert words(planned(declared(c=more), "c")) == []
    assert words(planned(declared(c=more), "c", world=observed(c={"rows_before": True}))) == [
        "c cannot be altered in place: its pointer serves rows from before v1 as well. rebuild it: headgate plan c "
        "--rebuild"
    ]


WIDER = (PARTITIONED[0].replace("BIGINT)", "BIGINT, more STRING)"), PARTITIONED[1].replace(" FROM", ", k AS more FROM"))


@pytest.mark.parametrize(
    ("chosen", "edits", "known", "why"),
    [
        ("c=chain", {"c": PARTITIONED}, {"rows_before": True}, "its pointer serves rows from before its first"),
        (
            "c=chain",
            {"c": PARTITIONED},
            LOST,
            "its checkpoint, its table or an input is missing or belongs to another query",
        ),
        ("c=chain", {"c": WIDER}, {}, "its columns change as well"),
        ("b=fork", {"b": HAVING}, {"rows_before": True}, "its pointer serves rows from before its first"),
        ("a=carry-over", {"a": FILTERED}, {"deployed": None, "revision": "changed"}, "what changed is unknown"),
    ],
)
def test_a_version_continues_another_only_if_their_inputs_match(
    chosen: str, edits: dict[str, Any], known: dict[str, Any], why: str
) -> None:
    found = planned(declared(**edits), chosen[0], choose=chosen, world=observed(**{chosen[0]: known}))
    refused = [r.summary for r in found.refusals if r.table == chosen[0]]
    assert refused and refused[0].startswith(f"{chosen[2:]} cannot be used for {chosen[0]}: {why}")


def test_a_table_with_a_reader_out_of_reach_is_not_chained() -> None:
    made = declared(
        c=PARTITIONED, crm=("CREATE TABLE crm (k STRING) USING parquet", "INSERT INTO crm SELECT k FROM STREAM c")
    )
    world = observed()
    world[T("crm")] = deployed(made.tables[T("crm")])
    assert "chain" not in offered(planned(made, "c", world=world), "c")
    behind = "crm would be left behind on a version that receives no more rows"
    assert words(planned(made, "c", choose="c=chain", world=world)) == [
        f"chain cannot be used for c: {behind}. use earliest, partial, seeded, carry-over"
    ]


@given(cases(), st.randoms(use_true_random=False))
@settings(max_examples=times(2))
def test_every_offered_strategy_can_be_chosen(drawn: tuple[World, PlanRequest], chance: random.Random) -> None:
    world, request = drawn[0], replace(drawn[1], exclude=(), choices=(), keep_table=False, start="")
    found = world.plan(request)
    nodes = [node for node in found.nodes if node.offers and not found.refusals]
    for node in chance.sample(nodes, min(4, len(nodes))):
        offer = chance.choice([each for each in node.offers if "partition" not in str(each.note)])
        at = {"partial": "2026-01-02T00:00:00Z", "seeded": "now"}.get(offer.strategy, "")
        again = world.plan(replace(request, choices=(StrategyChoice(node.table, offer.strategy, at),)))
        event(offer.strategy)
        assert [refusal for refusal in again.refusals if refusal.table == node.table] == []
        assert node_of(again, node.table).offers[0].strategy == node_of(again, node.table).strategy == offer.strategy


def test_a_table_rebuilt_from_a_partial_one_loses_rows_as_well() -> None:
    found = planned(declared(), "a", rebuild=True, children="all", start="now")
    cut = ("rows from before its start position",)
    assert {str(node.table): node.loses for node in found.nodes} == {"src": (), "a": cut, "b": cut, "c": cut}
    whole = planned(declared(), "a", rebuild=True, children="all")
    assert not any(node.loses for node in whole.nodes)


def test_a_plan_and_its_undo_are_predicted_from_start_to_swap() -> None:
    """The ETA was once just the reading time (10 s for table a), but a run takes three times as long."""
    took = dict.fromkeys(("create", "start", "validate", "swap", "stop", "restart"), Seconds(1.0, 3.0))
    asked = PlanRequest(tables=(T("a"),), rebuild=True, children="none")
    found = make_plan(declared(), "dev", observed(), asked, durations=took)
    a = node_of(found, "a")
    # 1,000 rows at 100 per second, a tenth of that at best; three checks five seconds apart; the comparison; the swap.
    assert a.eta_s == 10.0 and a.predicted_low_s == found.predicted_low_s == 1 + (1 + 10) + 1 + 1
    # At most: reading at half the speed, a trigger of 10 s, two rounds.
    assert a.predicted_high_s == found.predicted_high_s == 3 + (20 + 10 + 10 + 10) + 3 + 3
    assert head_parts(found)[-1] == "ETA 14\N{EN DASH}59 s" and eta_words(a) == "14\N{EN DASH}59 s"
    assert plan_from_json(plan_as_json(found)) == found
    assert found.hash == make_plan(declared(), "dev", observed(), asked).hash
    unknown = make_plan(declared(), "dev", observed(), asked)
    assert (unknown.predicted_high_s, node_of(unknown, "a").eta_s) == (None, 10.0)
    assert eta_words(node_of(unknown, "a")) == "?" and "ETA" not in " ".join(head_parts(unknown))
    edited = declared(a=TEXTS["a"][1] + " WHERE v > 0")
    (way,) = make_plan(edited, "dev", observed(), replace(asked, rebuild=False), durations=took).undo
    assert way.act == "plan undo" and way.predicted_high_s is not None
