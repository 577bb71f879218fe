"""Plans as lines: complete, within the width, with reasons in words."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from core.changes.kinds import ChangeKind
from core.model.actions import Action, StepKind
from core.model.evidence import Notice
from core.model.names import TableName as T
from core.model.reasons import Reason
from core.observed.planner_input import ObservedDeployment
from core.plan.descriptions import (
    change_words,
    eta_words,
    node_why,
    offer_lines,
    replay_words,
    step_words,
)
from core.plan.markdown import plan_as_markdown
from core.plan.model import (
    Exposure,
    Guard,
    LeftBehind,
    Plan,
    PlanNode,
    PlanRefusal,
    PlanWarning,
    Step,
    StrategyOffer,
    Undo,
)
from core.plan.rendering import PlanStanding, plan_lines, plan_sections, request_words
from core.plan.request import PlanRequest
from core.planner.planner import make_plan
from core.project.model import Project, Settings
from core.project.revision import RevisionTexts
from core.project_reader.loader import read_project
from tests.core.project_reader.test_loader import MANIFEST, ddl, texts
from tests.support.domain_builders import plan, project, running, table

OLD = "SELECT id FROM STREAM src"


def changed(select: str = f"{OLD} WHERE id > 1") -> tuple[Project, dict[T, ObservedDeployment]]:
    files = texts(src="", a=select, b="SELECT id FROM STREAM a", c="SELECT id FROM STREAM a")
    found, problems = read_project(files)
    assert found is not None, problems
    place = "pipelines/facts/p/a/sql-scripts"
    old = RevisionTexts(files[f"{place}/ddl.a.sql"], f"INSERT INTO a\n{OLD};\n", "trigger: 10 seconds\n")
    return found, {
        T("src"): ObservedDeployment("running"), T("a"): ObservedDeployment("running", deployed=old),
        T("b"): ObservedDeployment("running"), T("c"): ObservedDeployment("running"),
    }  # fmt: skip


@pytest.mark.parametrize("width", [60, 80, 100, 120, 160, 200])
def test_no_line_is_wider_than_asked_or_ends_in_a_space(width: int) -> None:
    declared = project(
        table("src"), table("a" * 40, "src"), table("b" * 30, "a" * 40, product="q", settings=Settings(owner="o" * 50))
    )
    for found in (
        plan(declared, running(declared), "a" * 40, rebuild=True),
        plan(declared, {}),
        plan(declared, {}, "zz"),
    ):
        for line in plan_lines(found, width):
            assert len(line) <= width and line == line.rstrip()


def test_a_wide_plan_gives_the_reason_beside_each_table() -> None:
    declared, observed = changed()
    found = make_plan(declared, "dev", observed, PlanRequest(tables=(T("a"),)))
    assert any("filter or projection" in line and "filter added: id > 1" in line for line in plan_lines(found, 160))
    narrow = plan_lines(found, 80)
    below = narrow.index("      filter added: id > 1")
    assert "filter or projection" in narrow[below - 1]


def test_why_gives_reason_evidence_and_diff() -> None:
    declared, observed = changed()
    found = make_plan(declared, "dev", observed, PlanRequest(tables=(T("a"),)))
    assert node_why(found, T("a")) == (
        "a: restart",
        "  because it keeps no state, so the new text can continue from the checkpoint",
        "  evidence: filter added: id > 1",
        "  not confirmed by Spark",
        "  undo: headgate plan undo RUN: restart with the old text on the same checkpoint; the rows that are there "
        "stay as they are (--rebuild reads them again); no row is read again",
        "  undone until 90 days after the run, unless another plan changes them first",
        *(f"  option {line}" for line in offer_lines(next(node for node in found.nodes if node.table == "a"))),
        "  dml.a",
        "  @@ -1,2 +1,2 @@",
        "   INSERT INTO a",
        "  -SELECT id FROM STREAM src;",
        "  +SELECT id FROM STREAM src WHERE id > 1;",
    )
    assert node_why(found, T("zz")) == ("zz is not in this plan",)


def test_a_renamed_column_is_refused_naming_each_reader_and_line() -> None:
    files = texts(src="", b="SELECT id\nFROM STREAM a", c="SELECT a.id FROM STREAM a")
    place = "pipelines/facts/p/a/sql-scripts"
    files[f"{place}/ddl.a.sql"] = ddl("a", "ref BIGINT")
    files[f"{place}/dml.a.sql"] = "INSERT INTO a SELECT id AS ref FROM STREAM src"
    old = RevisionTexts(ddl("a"), "INSERT INTO a SELECT id FROM STREAM src")
    observed = {
        T("a"): ObservedDeployment("running", deployed=old),
        T("b"): ObservedDeployment("running"),
        T("c"): ObservedDeployment("running"),
    }
    found, _ = read_project(files)
    assert found is not None
    made = make_plan(found, "dev", observed, PlanRequest(tables=(T("a"),), children="none"))
    assert [r.summary for r in made.refusals] == [
        "a loses column id, which b reads at dml.b.sql:2", "a loses column id, which c reads at dml.c.sql:2",
    ]  # fmt: skip
    assert made.empty


def test_a_renamed_column_is_rebuilt_once_its_readers_name_the_new_one() -> None:
    files = texts(src="", b="SELECT ref AS id FROM STREAM a")
    place = "pipelines/facts/p/a/sql-scripts"
    files[f"{place}/ddl.a.sql"] = ddl("a", "ref BIGINT")
    files[f"{place}/dml.a.sql"] = "INSERT INTO a SELECT id AS ref FROM STREAM src"
    observed = {
        T("a"): ObservedDeployment(
            "running", deployed=RevisionTexts(ddl("a"), "INSERT INTO a SELECT id FROM STREAM src")
        ),
        T("b"): ObservedDeployment(
            "running", deployed=RevisionTexts(ddl("b"), "INSERT INTO b SELECT id FROM STREAM a")
        ),
    }
    found, _ = read_project(files)
    assert found is not None
    made = make_plan(found, "dev", observed, PlanRequest(tables=(T("a"),)))
    assert not made.refusals and [(n.table, n.action, n.row) for n in made.nodes] == [
        ("src", "keep", "0"), ("a", "rebuild", "5"), ("b", "rebuild", "3"),
    ]  # fmt: skip


def test_left_behind_names_product_owner_and_version() -> None:
    declared = project(table("src"), table("a", "src"), table("b", "a", product="q", settings=Settings(owner="team")))
    assert plan_sections(plan(declared, running(declared), "a", rebuild=True))["LEFT BEHIND"] == (
        "b (product q, owner team) stays on a__v1; v1 cannot be retired while it does",
    )


def test_a_request_reads_like_the_command_line() -> None:
    declared = project(src="", a="src")
    found = plan(declared, {}, "a", children="all", exclude=(T("src"),))
    assert request_words(found) == "deploy a --children all --exclude src"


@pytest.mark.parametrize(
    ("do", "version", "words"),
    [
        (StepKind.CREATE, 2, "create a__v2"),
        (StepKind.START, 2, "start a@v2"),
        (StepKind.CATCH_UP, 2, "catch up a@v2"),
        (StepKind.REGISTER, 0, "register a"),
        (StepKind.ALTER, 0, "alter a"),
        (StepKind.ALTER, 1, "alter a__v1"),
        (StepKind.RECORD, 1, "record a"),
        (StepKind.UNPOINT, 1, "drop view a"),
        (StepKind.TOMBSTONE, 1, "trash a__v1"),
    ],
)
def test_a_step_names_what_it_acts_on(do: StepKind, version: int, words: str) -> None:
    assert step_words(Step(1, do, T("a"), version, (), "", "")) == words


def test_a_reader_says_that_its_parent_is_recreated() -> None:
    declared = project(src="", a="src", b="a")
    found = plan(declared, running(declared), "a", rebuild=True)
    assert [change_words(node) for node in found.nodes] == ["none", "rebuild requested", "upstream re-created"]


def test_the_manifest_of_these_tests_is_read() -> None:
    assert read_project({"headgate.yml": MANIFEST})[1] == ()


# The whole output of a plan that contains everything, at both widths.


def node(name: str, action: Action, **parts: Any) -> PlanNode:
    every: dict[str, Any] = dict(
        table=T(name), product="p", layer="fact", stateful=False, action=action, change=ChangeKind.NONE, evidence=(),
        classified=True, strategy="", reason=Reason.UNCHANGED, because_of=(), level=0, loses=(), from_version=3,
        version=3, bindings=(),
    )  # fmt: skip
    return PlanNode(**(every | parts))


def everything() -> Plan:
    rebuild = Action.REBUILD
    nodes = (
        node("src_orders", Action.KEEP, reason=Reason.LANDS, version=0, from_version=0),
        node("int_orders", rebuild, level=1, version=4, change=ChangeKind.CHANGE_BEFORE_STATE,
             evidence=(Notice.LOST.of(what="pre: + status <> 'void'"),), replay_rows=81_000_000, predicted_low_s=870.0,
             predicted_high_s=2610.0, strategy="earliest",
             reason=Reason.STATE_CHANGED,
             undo="plan"),
        node("int_refunds", Action.RECORD, level=1, undo="plan", change=ChangeKind.COMMENT_OR_FORMAT,
             evidence=(Notice.CONFIRMED.of(),)),
        node("fct_order", rebuild, level=2, from_version=7, version=8, stateful=True, reason=Reason.PARENT_REBUILT,
             because_of=(T("int_orders"),), replay_rows=None, eta_s=None, strategy="earliest",
             undo="plan"),
        node("crm_visits", Action.DELETE, level=2, change=None, reason=Reason.DELETED, loses=("table data", "offsets"),
             undo="none"),
    )  # fmt: skip
    return Plan(
        hash="7f3a" + "0" * 60, project_id="p", environment="prod", protected=True, planner="3",
        request=PlanRequest(tables=(T("int_orders"),), children="product"), nodes=nodes,
        order=tuple(n.table for n in nodes[1:]),
        steps=(Step(1, StepKind.CREATE, T("int_orders"), 4, (), ""),),
        left_behind=(LeftBehind(T("crm_orders"), "crm", "int_orders__v3", "crm-team", "int_orders", 1),
                     LeftBehind(T("crm_report"), "crm", "crm_orders__v1", "", "crm_orders", 2)),
        readers=(Exposure("tableau", T("fct_order"), "fct_order__v7", "fct_order__v8", "bi"),),
        guards=(Guard("history", "ok", "orders from 08-01"), Guard("disk", "warn", "380 of 410 GB"),
                Guard("approval", "approve", "int_orders is rebuilt")),
        warnings=(PlanWarning("int_orders", "is degraded"),), approvals=2,
        undo=(Undo("plan undo", (T("int_orders"), T("fct_order")), "rebuild", 81_000_000, 870.0, "until then",
                      880.0, 2700.0),
              Undo("plan undo", (T("int_refunds"),), "record", 0, None, "until then"),
              Undo("", (T("crm_visits"),), "it is in the trash")),
    )  # fmt: skip


LEE = PlanStanding(author="lee", expires="03:10", approved=1)


def test_a_plan_that_does_nothing_shows_no_hash_that_nobody_keeps() -> None:
    declared = project(src="", a="src")
    for found in (plan(declared, running(declared), "a"), plan(declared, running(declared), "gone")):
        assert found.empty or found.refusals
        told = [*plan_lines(found, 80), plan_as_markdown(found)]
        assert not any(found.hash[:4] in line or "single use" in line for line in told)


def test_a_warning_follows_the_name_of_its_table() -> None:
    warnings = (PlanWarning("a", "stays stopped"), PlanWarning("", "no table"))
    told = "\n".join(plan_lines(replace(everything(), warnings=warnings), 160))
    assert "WARNINGS    a: stays stopped\n             no table" in told


@pytest.mark.parametrize("width", [80, 160])
def test_a_plan_with_every_section_is_rendered_as_recorded(width: int) -> None:
    kept = Path(__file__).parents[2] / "fixtures" / "plans" / f"everything_{width}.txt"
    assert "\n".join(plan_lines(everything(), width, LEE)) + "\n" == kept.read_text()


@pytest.mark.parametrize("width", [60, 72, 80, 119, 120, 160])
def test_everything_fits_any_width(width: int) -> None:
    for line in plan_lines(everything(), width, replace(LEE, closed="already applied, run 7f3a-01c2f")):
        assert len(line) <= width and line == line.rstrip()


def test_an_unsubmitted_plan_shows_its_approvals_and_no_author() -> None:
    head = " ".join(plan_lines(everything(), 160)[:1])
    assert "author" not in head and "expires" not in head and "approvals 0 of 2" in head
    refused = replace(everything(), refusals=(PlanRefusal("a", "it cannot be", "do this"),), steps=())
    lines = plan_lines(refused, 80)
    assert " REFUSED     it cannot be. Do this" in lines
    assert any("refused: nothing in it can be executed" in line for line in lines)


@pytest.mark.parametrize(
    ("parts", "replay", "eta"),
    [
        (
            {"action": Action.REBUILD, "replay_rows": 81_000_000, "predicted_low_s": 870.0, "predicted_high_s": 2610.0},
            "81 M",
            "14\N{EN DASH}44 min",
        ),
        ({"action": Action.REBUILD, "replay_rows": 81_000_000, "eta_s": 870.0}, "81 M", "?"),
        ({"action": Action.REBUILD}, "?", "?"),
        ({"action": Action.REBUILD, "replay_rows": 0, "predicted_low_s": 0.4, "predicted_high_s": 8.5}, "0", "< 9 s"),
        ({"action": Action.START}, "?", "?"),
        ({"action": Action.START, "version": 0}, "-", "?"),
        ({"action": Action.KEEP}, "-", "-"),
        ({"action": Action.RESTART}, "-", "?"),
        ({"action": Action.DELETE}, "-", "?"),
    ],
)
def test_unknown_differs_from_nothing(parts: dict[str, Any], replay: str, eta: str) -> None:
    found = node("a", **parts)
    assert (replay_words(found), eta_words(found)) == (replay, eta)


def test_an_offer_has_its_cost_and_says_whether_it_is_supported() -> None:
    offers = (
        StrategyOffer("earliest", 81_000_000, 870.0, 5, 3_100_000_000, ()),
        StrategyOffer("later", None, None, None, None, ("rows from before its start position",), "no old rows"),
    )
    seen = node("a", Action.REBUILD, strategy="earliest", offers=offers)
    earliest = "earliest (chosen): replays 81 M rows; reading 14 m at best; disk 3.1 GB; loses nothing"
    carried = "replays ? rows; reading ? at best; disk ?; loses rows from before its start position; no old rows"
    assert offer_lines(seen, every=True) == (earliest, f"later (not executable yet): {carried}")
    assert offer_lines(seen) == (earliest,)
    assert offer_lines(replace(seen, strategy="later"))[1:] == (f"later (chosen, not executable yet): {carried}",)


def test_the_reasons_of_a_table_count_the_offers_that_are_not_carried_out_yet() -> None:
    offers = (StrategyOffer("earliest"), StrategyOffer("later"))
    seen = node("a", Action.REBUILD, strategy="earliest", offers=offers)
    told = node_why(replace(everything(), nodes=(seen,)), T("a"))
    assert "  1 more option not executable yet: --json has all" in told
    assert not any("later" in line for line in told)


def test_statements_are_counted_without_external_tables_and_kept_ones_in_one_line() -> None:
    tables = [table("src", "landed"), *(table(f"t{n}", "src") for n in range(12))]
    declared = project(table("landed"), *tables)
    seen = {**running(declared), T("t3"): ObservedDeployment()}
    found = make_plan(declared, "dev", seen, PlanRequest(everything=True))
    nodes = tuple(node if node.table == "t3" else replace(node, action=Action.KEEP) for node in found.nodes)
    found = replace(found, nodes=nodes, undo=())
    text = "\n".join(plan_lines(found, 100))
    assert "changes 1 of 13 statements" in text and "13 tables kept as they are" in text
    assert "+t3" in text and not any(f"t{n} " in text for n in range(4, 12))


def test_parts_that_do_not_fit_into_the_header_continue_on_the_next_line() -> None:
    made = replace(everything(), request=PlanRequest(tables=tuple(T(f"a_long_name_of_a_table_{n}") for n in range(9))))
    told = " ".join(" ".join(line.split()) for line in plan_lines(made, 80, LEE)[:5])
    assert all(f"a_long_name_of_a_table_{n}" in told for n in range(9)) and "…" not in told
