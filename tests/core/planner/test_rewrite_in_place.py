"""Keyed tables rewritten in place: offered if the rows will be correct, with a warning about rows that stay."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
import small_project

from core.model.evidence import Notice
from core.model.names import TableName as T
from core.plan.descriptions import action_words
from core.plan.model import Plan
from core.plan.request import PlanRequest, StrategyChoice
from core.planner.guards import NEEDS_APPROVAL
from core.planner.planner import make_plan
from core.policy.roles_and_rules import Policy
from core.project.model import Project
from core.text.sentence import Fact
from tests.support.domain_builders import deployed, evidence_of
from tests.support.priced_project import node_of, offered

KEYS_STAY, KEYS_KEPT = Notice.KEYS_STAY.of(), Notice.KEYS_KEPT.of()
COLUMNS = "(id BIGINT, kind STRING, seq BIGINT)"
KEYED = "mode: upsert\nkey: [id]\nsequence: seq\ntags: [compatible]\n"
A = "SELECT id, kind, seq FROM STREAM landed WHERE id > 0"

B = "SELECT id, kind, seq FROM STREAM a WHERE _change_type <> 'update_preimage'"


def declared(a: str = A, *, yml: str = KEYED, b: str = B, columns: str = COLUMNS,
             parent: str = "") -> Project:  # fmt: skip
    """Declare landed → a, keyed and read by b, which accepts changes in any order; `parent` makes b keyed below a."""
    files = small_project.texts(a=a, b=b)
    files = {path: text for path, text in files.items() if "/c/" not in path}
    for path, text in files.items():
        if "/ddl." in path:
            files[path] = text.replace("(id BIGINT, kind STRING)", columns).replace("USING parquet", "USING delta")
    files["pipelines/facts/p/a/a.yml"] = yml
    files["pipelines/facts/p/b/b.yml"] = parent or "tags: [tolerant]\n"
    files["headgate.yml"] += "connectors: {delta: {}}\n"
    return small_project.project(files)


def planned(
    before: Project,
    after: Project,
    table: str = "a",
    strategy: str = "keyed",
    *,
    at: str = "",
    policy: Policy | None = None,
    **request: object,
) -> Plan:
    bound = {"landed": 0, "a": 1}
    world = {name: deployed(each, bindings=bound) for name, each in before.tables.items()}
    choices = (StrategyChoice(T(table), strategy, at),) if strategy else ()
    asked = PlanRequest(tables=(T(table),), choices=choices, **request)  # type: ignore[arg-type]
    return make_plan(after, "dev", world, asked, policy=policy)


def why(found: Plan) -> list[str]:
    return [refusal.summary.partition(": ")[2] for refusal in found.refusals]


def test_a_rewrite_is_one_step_on_a_new_checkpoint_that_ends_once_all_is_read() -> None:
    found = planned(declared(), declared(A.replace("kind,", "upper(kind) AS kind,")))
    assert [f"{s.do} {s.table}@{s.version} {s.after}" for s in found.steps] == ["rewrite a@1 ()", "catch_up a@1 (1,)"]
    assert not found.refusals and not found.warnings and not found.approvals
    node = node_of(found, "a")
    assert (str(node.action), node.version, node.from_version, node.lowered) == ("rebuild", 1, 1, False)
    assert node.evidence[-1] == KEYS_KEPT and action_words(node) == "rewrite v1"
    (way,) = found.undo
    assert way.act == "plan undo", "the old text over what is there, as any edit is undone"


def test_nothing_is_stored_or_run_twice_and_the_whole_history_is_requested() -> None:
    found = planned(declared(), declared(A.replace("kind,", "upper(kind) AS kind,")))
    said = {guard.name: (guard.verdict, guard.summary) for guard in found.guards}
    assert said["disk"] == ("ok", "no table is stored twice")
    assert said["pool"] == ("ok", "no additional statements on local")
    assert said["history"] == ("unknown", "1 rebuild from the earliest row; how far back that reaches is unknown")


@pytest.mark.parametrize(
    ("edit", "stays"),
    [
        (A, KEYS_KEPT),
        (A.replace("kind,", "upper(kind) AS kind,"), KEYS_KEPT),
        (A.replace(" WHERE id > 0", ""), KEYS_KEPT),
        (A.replace("id > 0", "id > 0 AND kind <> 'x'"), KEYS_STAY),
        (A.replace("FROM STREAM landed", "FROM STREAM landed LATERAL VIEW explode(array(1, 2)) v AS n"), KEYS_STAY),
    ],
    ids=["the same text", "a value", "a filter goes", "a filter comes", "a lateral view"],
)
def test_the_offer_names_rows_that_stay_in_the_table(edit: str, stays: Fact[Notice]) -> None:
    found = planned(declared(), declared(edit), strategy="", rebuild=True)
    assert (
        offered(found, "a")["keyed"].note
        == f"{stays}; until it has caught up, readers see old and new rows in any order"
    )


def test_a_reader_that_is_rebuilt_with_its_table_loses_the_changes_from_before() -> None:
    """After a column of a keyed table is renamed, the new version lacks all earlier changes."""
    renamed = COLUMNS.replace("kind", "sort")
    after = declared(A.replace("kind", "kind AS sort"), columns=renamed, b=B.replace("kind", "sort"))
    lost = "changes of a from before: it begins with the rows that a has then"
    found = planned(declared(), after, strategy="")
    assert [(node.table, str(node.action), node.loses) for node in found.nodes if node.table != "landed"] == [
        ("a", "rebuild", ()), ("b", "rebuild", (lost,)),
    ]  # fmt: skip
    alone = planned(declared(), declared(), "b", strategy="", rebuild=True)
    assert node_of(alone, "b").loses == (lost,)
    keyed = "mode: upsert\nkey: [id]\nsequence: seq\n"
    last = planned(declared(parent=keyed), declared(parent=keyed), "b", strategy="", rebuild=True)
    assert node_of(last, "b").loses == (), "it has the last row of each key all the same"


def test_rows_that_no_rebuild_would_have_ask_for_an_approval_and_are_warned_of() -> None:
    found = planned(declared(), declared(A.replace("id > 0", "id > 10")))
    assert [(w.table, w.summary) for w in found.warnings] == [
        ("a", f"is rewritten in place: {KEYS_STAY}; a rebuild would not produce them")
    ]
    assert found.approvals == 1 and node_of(found, "a").lowered
    (asked,) = [guard.summary for guard in found.guards if guard.verdict == NEEDS_APPROVAL]
    assert asked == "another login must approve it: rows may stay that a rebuild would not produce: a"


@pytest.mark.parametrize(
    ("edit", "stays"),
    [(A.replace("id > 0", "id > 10"), KEYS_STAY), (A.replace("kind,", "upper(kind) AS kind,"), KEYS_KEPT)],
)
def test_deletions_that_the_table_remembers_stay_as_well(edit: str, stays: Fact[Notice]) -> None:
    deletes = KEYED + "deletes: kind = 'gone'\n"
    found = planned(declared(yml=deletes), declared(edit, yml=deletes))
    assert node_of(found, "a").evidence[-1] == Notice.DELETIONS_STAY.of(rows=stays)
    told = [warned.summary for warned in found.warnings if "remembered deletion" in warned.summary]
    assert len(told) == int(stays == KEYS_STAY)


def test_an_edit_that_restarts_in_place_may_be_rewritten_as_well() -> None:
    found = planned(declared(), declared(A.replace("kind,", "upper(kind) AS kind,")), strategy="")
    assert next(iter(offered(found, "a"))) == "in_place" and "keyed" in offered(found, "a")


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        ({}, {"yml": KEYED.replace("compatible", "other")}, "it is not tagged compatible, which declares that its "
         "rows may be written again while they are read"),
        ({"yml": KEYED.replace("[id]", "[kind]")}, {}, "its primary key changes"),
        ({"yml": KEYED.replace("sequence: seq\n", "")}, {},
         "its sequence changes, and an existing row might hide every newer one"),
        ({"yml": KEYED.replace("sequence: seq\n", "")}, {"yml": KEYED.replace("sequence: seq\n", "")},
         "it has no sequence, and a batch of a full re-read has several rows per key"),
        ({}, {"a": A.replace("seq FROM", "-seq AS seq FROM")},
         "seq would be computed differently, and old rows would stay beside new ones"),
        ({}, {"a": A.replace("SELECT id,", "SELECT id + 1 AS id,")},
         "id would be computed differently, and old rows would stay beside new ones"),
        ({}, {"a": "SELECT id, kind, seq FROM (SELECT id, kind, seq * 10 AS seq FROM STREAM landed WHERE id > 0)"},
         "seq would be computed differently, and old rows would stay beside new ones"),
        ({"a": f"{A} UNION ALL {A}"}, {"a": f"{A} UNION ALL {A.replace(' seq', ' -seq AS seq')}"},
         "its edit does not show whether id, seq keep their values"),
        ({}, {"columns": COLUMNS.replace(")", ", more INT)"), "a": A.replace("seq FROM", "seq, 1 AS more FROM"),
              "b": B.replace("seq FROM", "seq, 1 AS more FROM")},
         "its columns change as well: deploy them first, by a plan of their own"),
    ],
    ids=["tag", "key", "sequence", "no sequence", "sequence computed", "key computed", "subquery", "union", "columns"],
)  # fmt: skip
def test_it_is_refused_if_rows_would_be_wrong(before: Mapping[str, str], after: Mapping[str, str], reason: str) -> None:
    assert why(planned(declared(**before), declared(**after), rebuild=True)) == [reason]  # type: ignore[arg-type]


def test_a_reader_without_the_tag_tolerant_prevents_it() -> None:
    made = declared(parent="owner: x\n")
    assert why(planned(made, made)) == [
        "b is not tagged tolerant, which declares that it accepts repeated rows in any order"
    ]


def test_below_a_keyed_table_it_is_refused_because_deletions_are_not_repeated() -> None:
    made = declared(parent=KEYED)
    assert why(planned(made, made, "b")) == ["it streams a, which does not repeat its deletions"]


def test_over_a_recreated_upstream_table_it_is_refused() -> None:
    made = declared(parent=KEYED)
    tolerant = replace(made, tables=made.tables)
    found = planned(tolerant, made, "b", "", rebuild=True)
    assert "keyed" not in offered(found, "b")


LATE = "a late row could replace a newer one of its key"
UNKNOWN = "the new version does not know the seq of earlier rows"
DELETES = "deletes: kind = 'x'\n"
EDITED = A.replace("kind,", "upper(kind) AS kind,")


@pytest.mark.parametrize(
    ("strategy", "yml", "reason"),
    [
        ("seeded@now", KEYED, f"{LATE}: {UNKNOWN}"),
        ("seeded@now", KEYED + DELETES, f"{LATE} or bring a deleted key back: {UNKNOWN}"),
        ("carry_over", KEYED + DELETES, f"{LATE} or bring a deleted key back: {UNKNOWN}"),
        ("carry_over", KEYED.replace("sequence: seq\n", ""), "it does more than append rows"),
        ("fork", KEYED + DELETES,
         "the keys that its table remembers as deleted would not come along, and late rows bring them back"),
        ("fork", KEYED, "its table is upserted by a key, and its log does not tell which commits belong to a batch"),
        ("chain", KEYED + DELETES,
         "chain applies only when the format, partitioning or location of its table changes"),
    ],
)  # fmt: skip
def test_a_new_version_that_would_not_know_what_its_rows_replace_is_refused(
    strategy: str, yml: str, reason: str
) -> None:
    name, _, at = strategy.partition("@")
    found = planned(declared(yml=yml), declared(EDITED, yml=yml), strategy=name, at=at)
    assert why(found) == [reason]
    assert name not in offered(planned(declared(yml=yml), declared(EDITED, yml=yml), strategy="", rebuild=True), "a")


def test_a_start_at_a_log_position_is_refused_too_but_not_for_a_first_version() -> None:
    made = declared(parent=KEYED)
    found = planned(made, made, "b", "partial", at="3")
    assert why(found) == [f"{LATE}: {UNKNOWN}"]
    assert "partial" not in offered(planned(made, made, "b", "", rebuild=True), "b")
    first = make_plan(made, "dev", {}, PlanRequest(everything=True, start="now"))
    assert not first.refusals
    assert evidence_of(node_of(first, "a"))[-1] == (
        "starts with rows that arrive from now on; of these, the newest row of each key is kept"
    )


def test_without_a_sequence_the_later_row_is_the_newer_one_and_a_version_may_begin_now() -> None:
    yml = KEYED.replace("sequence: seq\n", "")
    assert not planned(declared(yml=yml), declared(EDITED, yml=yml), strategy="seeded", at="now").refusals


def test_a_rewrite_in_place_cannot_be_held() -> None:
    asked = planned(declared(), declared(EDITED), hold=True)
    (refused,) = asked.refusals
    assert (refused.summary, refused.remedy) == (
        "a cannot be held: it is rewritten in place, and its readers see each row at once",
        "leave out --hold, or rebuild it: --strategy a=earliest",
    )
    by_policy = planned(declared(), declared(EDITED), policy=Policy(hold=True))
    assert [w.summary for w in by_policy.warnings] == [
        "cannot be held: it is rewritten in place, and its readers see each row at once"
    ]
    held = planned(declared(), declared(EDITED), strategy="earliest", hold=True)
    assert not held.refusals and "hold" in [step.do for step in held.steps]
