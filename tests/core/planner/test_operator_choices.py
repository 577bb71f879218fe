"""Operators' choices: accepted if possible, otherwise refused with the possible ones."""

from dataclasses import replace

import pytest

from core.changes.spark_cross_check import proof_key
from core.model.names import TableName as T
from core.observed.planner_input import ObservedDeployment
from core.observed.versions import Binding
from core.plan.model import Plan
from core.plan.request import PlanRequest, StrategyChoice
from core.planner.planner import make_plan
from core.project.revision import revision_hash
from core.project_reader.revision_reader import revision_of
from tests.support.domain_builders import actions, evidence_of, steps
from tests.support.priced_project import TEXTS, declared, node_of, observed, offered, planned, words

FILTERED = f"{TEXTS['a'][1]} WHERE v > 1"
MIN = TEXTS["b"][1].replace("max(", "min(")
SUM = TEXTS["b"][1].replace("max(", "sum(")
LONGER = TEXTS["b"][1].replace("10 minutes", "20 minutes")
WHERE = TEXTS["b"][1].replace(" GROUP", " WHERE v > 1 GROUP")
HAVING = f"{TEXTS['b'][1]} HAVING max(v) > 1"
MORE_KEYS = TEXTS["b"][1].replace("GROUP BY k", "GROUP BY v, k")
CAST = TEXTS["b"][1].replace("max(v)", "CAST(max(v) AS STRING)")
RETYPED = ("CREATE TABLE b (k STRING, ts TIMESTAMP, m STRING) USING parquet", CAST)
OTHER_SOURCE = "INSERT INTO c SELECT k, v AS m FROM STREAM a"
MORE_SOURCES = "INSERT INTO c SELECT k, m FROM STREAM b UNION ALL SELECT k, v AS m FROM STREAM a"
PARTITIONED = (f"{TEXTS['c'][0]} PARTITIONED BY (k)", TEXTS["c"][1])
RETYPED_A = (TEXTS["a"][0].replace("id BIGINT", "id STRING"), TEXTS["a"][1].replace("id,", "CAST(id AS STRING) AS id,"))
LOST = {"checkpoint_ok": False}


def said(found: Plan, table: str) -> tuple[str, str, bool]:
    node = node_of(found, table)
    return str(node.action), node.strategy, node.lowered


# Raising is free


@pytest.mark.parametrize(
    ("edits", "chosen", "action"),
    [
        ({}, "a=earliest", "rebuild"),
        ({"a": FILTERED}, "a=earliest", "rebuild"),
        ({"a": FILTERED}, "a=partial@2026-01-02", "rebuild"),
        ({"a": FILTERED}, "a=seeded@now", "rebuild"),
        ({"a": FILTERED}, "a=carry-over", "rebuild"),
        ({"b": HAVING}, "b=fork", "rebuild"),
        ({"a": FILTERED}, "a=in-place", "restart"),
    ],
)
def test_more_than_the_default_may_be_done_without_asking(edits: dict[str, str], chosen: str, action: str) -> None:
    found = planned(declared(**edits), chosen[0], choose=chosen)
    strategy = chosen[2:].partition("@")[0].replace("-", "_")
    assert words(found) == [] and said(found, chosen[0]) == (action, strategy, False)
    assert next(iter(offered(found, chosen[0]))) == strategy


@pytest.mark.parametrize("strategy", ["earliest", "in-place", "fork", "seeded@now"])
def test_a_table_from_outside_has_no_strategy(strategy: str) -> None:
    found = planned(declared(), "src", "a", choose=f"src={strategy}")
    assert words(found) == [
        f"{strategy.partition('@')[0]} cannot be used for src: it has no statement. leave out this --strategy"
    ]
    assert actions(found) == {"src": "keep", "a": "keep"}


def test_a_rebuild_that_was_chosen_takes_its_readers_along() -> None:
    assert actions(planned(declared(), "a", choose="a=earliest")) == {
        "src": "keep", "a": "rebuild", "b": "rebuild", "c": "rebuild",
    }  # fmt: skip


# Lowering


@pytest.mark.parametrize("edit", [MIN, LONGER, WHERE], ids=["min for max", "a longer window", "a filter below"])
def test_less_may_be_done_where_spark_takes_the_old_state(edit: str) -> None:
    found = planned(declared(b=edit), "b", choose="b=in-place")
    assert words(found) == [] and said(found, "b") == ("restart", "in_place", True)
    assert steps(found) == ["restart b@1"] and "c" not in actions(found)
    assert list(offered(found, "b"))[:2] == ["in_place", "earliest"]


@pytest.mark.parametrize(
    ("edits", "table", "known", "why"),
    [
        (
            {"b": SUM},
            "b",
            {},
            "its state has different operators, keys or values, which Spark rejects or misreads as the old ones",
        ),
        ({"b": MORE_KEYS}, "b", {}, "its state has different operators, keys or values"),
        ({"b": RETYPED}, "b", {}, "the old table cannot hold its columns"),
        ({"c": MORE_SOURCES}, "c", {}, "Spark rejects a checkpoint written for other sources"),
        ({"c": OTHER_SOURCE}, "c", {}, "its offsets would be applied to another source"),
        ({"c": PARTITIONED}, "c", {}, "its table is written differently"),
        ({"b": MIN}, "b", LOST, "its checkpoint, its table or an input is missing or belongs to another query"),
        ({"b": MIN}, "b", {"deployed": None, "revision": "changed"}, "what changed is unknown"),
    ],
    ids=["other state", "other keys", "row 5", "row 7a", "row 7c", "row 8", "row 0b", "not known"],
)
def test_less_is_refused_where_the_table_would_be_wrong(
    edits: dict[str, str], table: str, known: dict[str, object], why: str
) -> None:
    found = planned(declared(**edits), table, choose=f"{table}=in-place", world=observed(**{table: known}))
    (refusal,) = [each for each in found.refusals if "in-place" in each.summary]
    assert refusal.summary.startswith(f"in-place cannot be used for {table}: {why}")
    assert refusal.remedy.startswith("use earliest") and "in-place" not in refusal.remedy
    assert found.empty and not node_of(found, table).lowered


def test_a_reader_of_a_recreated_table_cannot_stay_on_its_checkpoint() -> None:
    found = planned(declared(), "a", rebuild=True, choose="c=in-place")
    assert words(found) == [
        "in-place cannot be used for c: its offsets are meaningless in an upstream table that is re-created. "
        "use earliest, partial, seam"
    ]


@pytest.mark.parametrize(
    ("edits", "chosen", "why"),
    [
        (
            {"a": RETYPED_A, "b": MIN},
            "b=in-place",
            "its offsets are meaningless in an upstream table that is re-created",
        ),
        ({"a": RETYPED_A, "b": HAVING}, "b=fork", "current offsets are meaningless in a, which is re-created"),
        ({"a": RETYPED_A, "b": MIN}, "b=seeded@now", "current offsets are meaningless in a, which is re-created"),
    ],
)
def test_a_choice_is_judged_by_the_actions_on_its_parents(edits: dict[str, str], chosen: str, why: str) -> None:
    found = planned(declared(**edits), "a", "b", choose=chosen)
    (refusal,) = [each for each in found.refusals if each.table == "b"]
    assert refusal.summary == f"{chosen[2:].partition('@')[0]} cannot be used for b: {why}"
    assert node_of(found, "b").action == "rebuild" and found.empty


def test_a_requested_rebuild_is_not_a_restart() -> None:
    found = planned(declared(), "a", rebuild=True, choose="a=in-place")
    assert words(found)[0].startswith("in-place cannot be used for a: a rebuild was requested")


# Seams


def test_a_seam_keeps_the_table_of_the_reader_and_its_readers() -> None:
    below = ("CREATE TABLE d (k STRING) USING parquet", "INSERT INTO d SELECT k FROM STREAM c")
    made = declared(d=below)
    found = planned(
        made, "b", rebuild=True, choose="c=seam", world={**observed(), T("d"): ObservedDeployment("running")}
    )
    assert words(found) == [] and said(found, "c") == ("restart", "seam", True)
    assert actions(found) == {"a": "keep", "b": "rebuild", "c": "restart"}
    assert node_of(found, "c").bindings == (Binding(T("b"), 2, True),)
    assert steps(found) == [
        "create b@2", "start b@2 < 1", "catch_up b@2 < 2", "validate b@2 < 3", "swap b < 3,4", "seam c@1 < 2,3,5",
        "stop b@1 < 5,6",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("edits", "chosen", "why"),
    [
        ({}, "b=seam", "it keeps state"),
        ({"c": f"{TEXTS['c'][1]} WHERE m > 1"}, "c=seam", "its own statement changes"),
    ],
)
def test_a_seam_is_refused(edits: dict[str, str], chosen: str, why: str) -> None:
    found = planned(declared(**edits), "a", rebuild=True, choose=chosen)
    assert words(found)[0].startswith(f"seam cannot be used for {chosen[0]}: {why}. use earliest")
    assert found.empty


def test_a_seam_without_a_recreated_parent_is_refused() -> None:
    assert words(planned(declared(c=f"{TEXTS['c'][1]} WHERE m > 1"), "c", choose="c=seam")) == [
        "seam cannot be used for c: none of its upstream tables is re-created. use in-place, earliest, partial, "
        "seeded, carry-over"
    ]


# Parts


@pytest.mark.parametrize(
    ("at", "begins", "evidence"),
    [
        (
            "2026-01-02T00:05:00Z",
            "2026-01-02T00:10:00Z",
            "starts at 2026-01-02T00:10:00Z, the first window start at or after 2026-01-02T00:05:00Z: "
            "WHERE a.ts >= TIMESTAMP '2026-01-02T00:10:00Z'",
        ),
        (
            "2026-01-02T00:10:00Z",
            "2026-01-02T00:10:00Z",
            "starts at 2026-01-02T00:10:00Z: WHERE a.ts >= TIMESTAMP '2026-01-02T00:10:00Z'",
        ),
    ],
)
def test_a_part_begins_at_the_start_of_a_window(at: str, begins: str, evidence: str) -> None:
    node = node_of(planned(declared(b=MIN), "b", choose=f"b=partial@{at}"), "b")
    assert (node.at, evidence_of(node)[-1], node.loses) == (
        begins,
        evidence,
        ("rows from before its start position",),
    )
    assert node.begins_where == (f"a.ts >= TIMESTAMP '{begins}'",)
    assert node_of(planned(declared(b=MIN), "b"), "b").begins_where == ()


@pytest.mark.parametrize(
    ("edits", "chosen", "kept"),
    [
        ({"a": FILTERED}, "a=in-place", True),
        ({"a": FILTERED}, "a=carry-over", True),
        ({"a": FILTERED}, "a=earliest", False),
    ],
)
def test_a_version_that_continues_a_partial_one_lacks_the_same_rows(
    edits: dict[str, str], chosen: str, kept: bool
) -> None:
    where = ("src.ts >= TIMESTAMP '2026-01-02T00:00:00Z'",)
    found = planned(declared(**edits), "a", choose=chosen, world=observed(a={"begins_where": where}))
    assert node_of(found, "a").begins_where == (where if kept else ())


@pytest.mark.parametrize(
    ("chosen", "why"),
    [
        ("b=partial", "it needs a time or a partition: partial@2026-01-02T03:04Z"),
        ("b=partial@12", "a has no versions to start at: its format is parquet"),
        ("b=partial@soon", "soon is neither a time, a partition nor a version"),
        ("b=partial@k=x", "none of the tables that it streams is partitioned by k"),
        ("b=seeded", "it needs a position: seeded@now"),
        ("b=seeded@2026-01-02T00:00:00Z", "it needs a position: seeded@now"),
        ("b=seeded@12", "a version is a start position of partial, not of seeded: partial@12"),
        ("b=carry-over", "it keeps state"),
        ("b=fork", "its state does not fit the new query"),
        ("b=chain", "chain applies only when the format, partitioning or location of its table changes"),
        ("b=keyed", "its table is not upserted by a key"),
        ("b=first", "it does not apply to this change"),
        ("b=earliest@12", "it cannot start at 12"),
    ],
)
def test_an_impossible_strategy_is_refused_with_the_possible_ones(chosen: str, why: str) -> None:
    found = planned(declared(b=MIN), "b", choose=chosen)
    strategy = chosen[2:].partition("@")[0]
    had = ["earliest", "partial", "seeded", "in-place"]
    other = strategy if "@" in chosen and strategy in ("partial", "seeded") else ""
    proposed = [f"{each} at another position" if each == other else each for each in had]
    assert words(found) == [f"{strategy} cannot be used for b: {why}. use {', '.join(proposed)}"]
    assert found.empty


def test_a_fork_of_an_unchanged_statement_is_refused_for_that_reason() -> None:
    found = planned(declared(), "b", choose="b=fork", rebuild=True)
    (refused,) = words(found)
    assert (
        "fork cannot be used for b: its query does not change, so that a fork would be a copy of what serves" in refused
    )


def test_a_fork_of_a_stateless_statement_is_refused_for_that_reason() -> None:
    (refused,) = words(planned(declared(a=FILTERED), "a", choose="a=fork"))
    assert "fork cannot be used for a: it keeps no state that could be taken along" in refused


def test_a_partial_version_by_partition_of_its_input() -> None:
    by_k = (f"{TEXTS['a'][0]} PARTITIONED BY (k)", TEXTS["a"][1])
    plain = ("CREATE TABLE c (k STRING, m BIGINT) USING parquet", "INSERT INTO c SELECT k, v AS m FROM STREAM a")
    world = observed()
    world[T("a")] = replace(world[T("a")], deployed=None)
    world[T("c")] = replace(world[T("c")], deployed=None)
    found = planned(declared(a=by_k, c=plain), "c", choose="c=partial@k=x", world=world)
    assert words(found) == []
    assert evidence_of(node_of(found, "c"))[-1] == "starts at partition k=x: WHERE a.k >= 'x'"


def test_a_choice_for_a_table_outside_the_plan_is_refused() -> None:
    assert words(planned(declared(b=MIN), "b", choose="a=earliest")) == [
        "earliest cannot be used for a: the plan does not start it. leave out this --strategy"
    ]
    assert words(planned(declared(), "a", choose="c=earliest")) == [
        "a strategy is chosen for c, which this plan does not touch. leave out this --strategy"
    ]


# --from


def test_a_requested_table_begins_at_the_given_position_and_its_readers_at_their_beginning() -> None:
    found = planned(declared(), "a", "b", world={}, start="now")
    assert [(str(n.table), n.strategy, n.at) for n in found.nodes] == [
        ("src", "", ""), ("a", "seeded", "now"), ("b", "first", ""),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("start", "strategy", "at"),
    [
        ("", "earliest", ""),
        ("earliest", "earliest", ""),
        ("now", "seeded", "now"),
        ("2026-01-02T00:05:00Z", "partial", "2026-01-02T00:10:00Z"),
    ],
)
def test_a_rebuild_begins_at_the_requested_position(start: str, strategy: str, at: str) -> None:
    found = planned(declared(b=MIN), "b", start=start)
    node = node_of(found, "b")
    assert words(found) == [] and (node.strategy, node.at, node.lowered) == (strategy, at, False)


def test_a_choice_for_one_table_takes_precedence_over_from() -> None:
    assert node_of(planned(declared(b=MIN), "b", start="now", choose="b=partial@2026-01-02"), "b").strategy == "partial"


@pytest.mark.parametrize(
    ("start", "choice", "said"),
    [
        ("now", "b=partial@2026-01-02", True),
        ("earliest", "b=partial@2026-01-02", True),
        ("now", "b=earliest", True),
        ("2026-01-02", "b=partial@2026-01-02", False),
        ("earliest", "b=earliest", False),
        ("", "b=partial@2026-01-02", False),
    ],
)
def test_if_from_and_a_strategy_differ_the_one_that_counts_is_named(start: str, choice: str, said: bool) -> None:
    found = planned(declared(b=MIN), "b", start=start, choose=choice)
    warned = [warned.summary for warned in found.warnings if "--from" in warned.summary]
    assert warned == ([f"--strategy {choice} takes precedence over --from {start}"] if said else [])


def test_a_time_to_begin_at_needs_an_event_time() -> None:
    assert words(planned(declared(c=MORE_SOURCES), "c", start="2026-01-02T00:00:00Z")) == [
        "partial cannot be used for c: its event time is unknown: it has no watermark, no window and not "
        "exactly one timestamp column. "
        "use earliest, seeded"
    ]


# --keep-table


def test_keep_table_restarts_what_would_be_rebuilt() -> None:
    found = planned(declared(b=MIN), "b", keep_table=True)
    assert words(found) == [] and said(found, "b") == ("restart", "in_place", True) and steps(found) == ["restart b@1"]


def test_keep_table_does_not_affect_statements_that_keep_their_table_anyway() -> None:
    found = planned(declared(a=FILTERED), "a", keep_table=True)
    assert words(found) == [] and said(found, "a") == ("restart", "in_place", False)


GROWN = (TEXTS["c"][0].replace("m BIGINT", "m BIGINT, n BIGINT"), "INSERT INTO c SELECT k, m, m * 2 AS n FROM STREAM b")


@pytest.mark.parametrize(
    ("edits", "known", "request_", "why"),
    [
        ({"b": SUM}, {}, {}, "b cannot keep its table: its state has different operators, keys or values"),
        ({"b": RETYPED}, {}, {}, "b cannot keep its table: the old table cannot hold its columns"),
        ({}, {"b": {"state": "absent"}}, {}, "b has no table to keep: it would be created"),
        ({}, {}, {"rebuild": True}, "a rebuild creates a new table, but --keep-table keeps the existing one"),
    ],
)
def test_keep_table_is_refused_where_the_table_would_be_wrong_or_new(
    edits: dict[str, str], known: dict[str, dict[str, str]], request_: dict[str, bool], why: str
) -> None:
    found = planned(declared(**edits), "b", keep_table=True, world=observed(**known), **request_)
    assert words(found)[0].startswith(why) and found.empty


def test_keep_table_is_refused_where_columns_are_added() -> None:
    found = planned(declared(c=GROWN), "c", keep_table=True)
    assert words(found) == ["c cannot keep its table: columns are added. leave out --keep-table"]


def test_a_failed_upgrade_test_rules_out_a_restart_and_the_plan_says_so() -> None:
    made, world = declared(a=FILTERED), observed()
    assert said(planned(made, "a"), "a")[0] == "restart"
    old = world[T("a")].deployed
    assert old is not None
    shown = {proof_key(revision_hash(old), revision_of(made.tables[T("a")]).hash): "case late: rows are wrong"}
    words_of_it = "an upgrade test shows that it must not continue from its checkpoint: case late: rows are wrong"
    found = make_plan(made, "dev", world, PlanRequest(tables=(T("a"),)), answers=shown)
    assert said(found, "a") == ("rebuild", "earliest", False)
    assert words_of_it in [warning.summary for warning in found.warnings if warning.table == "a"]
    in_place = PlanRequest(tables=(T("a"),), choices=(StrategyChoice(T("a"), "in_place"),))
    (refused,) = make_plan(made, "dev", world, in_place, answers=shown).refusals
    assert refused.summary == f"in-place cannot be used for a: {words_of_it}"
