"""A plan as Markdown: complete, safe against injection, and never longer than a comment may be."""

from dataclasses import replace

import pytest

from core.model.actions import Action
from core.model.evidence import Notice
from core.model.names import TableName as T
from core.plan.markdown import plan_as_markdown
from core.plan.model import Guard, LeftBehind, Plan, PlanRefusal, PlanWarning
from core.plan.rendering import PlanStanding
from core.project.revision import RevisionTexts
from core.text.escaping import escape_markdown
from core.text.markdown_page import COMMENT_LIMIT
from core.text.sentence import Fact
from core.text.wording import counted
from tests.core.plan.test_rendering import LEE, everything, node


def named(plan: Plan) -> Plan:
    """Return the plan with the name of a plan file, as after a hand-over."""
    return replace(plan, request=replace(plan.request, nonce="n"))


def changed(old: str = "SELECT 1", new: str = "SELECT 2") -> Plan:
    nodes = tuple(
        replace(one, old=RevisionTexts("CREATE TABLE a", old, ""), texts=RevisionTexts("CREATE TABLE a", new, ""))
        if one.action is Action.REBUILD
        else one
        for one in everything().nodes
    )
    return named(replace(everything(), nodes=nodes))


def test_a_change_ticket_contains_losses_readers_guards_and_the_apply_command() -> None:
    text = plan_as_markdown(changed(), LEE)
    for part in (
        "### Plan `7f3a00000000`: deploy int_orders",
        "**PROD protected · changes 4 of 4 statements · 1 step · 2 levels · 2 rebuild, 1 record, 1 delete · "
        "loses data · approvals 1 of 2 · author lee · expires 03:10**",
        "| LVL | TABLE | CHANGE | ACTION | WHY | REPLAY | ETA | UNDO |",
        "| 1 | int_orders | input to the state | rebuild v3→v4 | pre: + status &lt;&gt; 'void' | 81 M | "
        "14\N{EN DASH}44 min | plan |",
        "- crm_visits: table data, offsets",
        "- crm_orders (product crm, owner crm-team) stays on int_orders__v3; v3 cannot be retired while it does",
        "- approve: approval: int_orders is rebuilt",
        "- int_orders: is degraded",
        "headgate approve 7f3a00000000\nheadgate apply 7f3a00000000 --confirm 'prod 7f3a'",
        "<details><summary>int_orders: dml, rebuild v3→v4</summary>\n\n```diff\n@@ -1 +1 @@\n-SELECT 1\n+SELECT 2\n",
    ):
        assert part in text, part


def test_a_refused_plan_gives_the_reason_and_not_how_to_apply_it() -> None:
    refused = replace(named(everything()), refusals=(PlanRefusal("a", "it cannot be", "do this"),), steps=())
    text = plan_as_markdown(refused)
    assert "refused: nothing in it can be executed" in text and "- it cannot be. Do this" in text
    assert "headgate apply" not in text


def test_a_plan_that_no_agent_was_given_says_how_to_plan_it() -> None:
    text = plan_as_markdown(everything())
    assert "headgate plan deploy int_orders --env prod" in text and "headgate apply" not in text


@pytest.mark.parametrize(
    ("raw", "safe"),
    [
        ("a | b", "a \\| b"),
        ("`rm -rf`", "\\`rm -rf\\`"),
        ("<script>x</script> & co", "&lt;script&gt;x&lt;/script&gt; &amp; co"),
        ("**bold** [x](y) #12 ~~no~~", "\\*\\*bold\\*\\* \\[x\\](y) \\#12 \\~\\~no\\~\\~"),
        ("two\nlines\t\x0bhere", "two lines here"),
        ("back\\slash", "back\\\\slash"),
        ("\x1b]0;x\x07 \x9b1m", "\\\\x1b\\]0;x\\\\x07 \\\\x9b1m"),
    ],
)
def test_text_in_markdown_is_escaped(raw: str, safe: str) -> None:
    assert escape_markdown(raw) == safe


def lost(what: str) -> Fact[Notice]:
    return Notice.LOST.of(what=what)


def test_hostile_text_still_makes_only_one_row() -> None:
    hostile = "x | y ` z\n</details><img src=x> | "
    plan = replace(
        named(everything()), nodes=(node("a", Action.RESTART, evidence=(lost(hostile),)),),
        warnings=(PlanWarning("a", hostile),), guards=(Guard("disk", "warn", hostile),),
    )  # fmt: skip
    text = plan_as_markdown(plan)
    (row,) = [line for line in text.splitlines() if line.startswith("| 0 |")]
    assert row.replace("\\|", "").count("|") == 9
    assert "<img" not in text and "</details>" not in text


def test_a_text_with_code_fences_stays_inside_ours() -> None:
    text = plan_as_markdown(changed(new="SELECT 1 -- ````\n```\n</details>"))
    inside = text.split("<details>")[1]
    assert inside.splitlines()[2] == "`````diff"
    assert inside.split("</details>")[-2].rstrip().endswith("`````")


def test_control_characters_of_a_text_are_escaped() -> None:
    text = plan_as_markdown(changed(new="SELECT 1 AS `\x1b[2J\x07`"))
    assert "+SELECT 1 AS `\\x1b[2J\\x07`" in text and "\x1b" not in text and "\x07" not in text


def huge(nodes: int = 3_000) -> Plan:
    """Return a plan of thousands of statements with distinct texts in multi-byte characters."""
    every = tuple(
        replace(
            node(
                f"table_{n:05}",
                Action.REBUILD,
                evidence=(lost("größer als ein Wort → " * 40),),
                loses=("ä" * 400,),
            ),
            old=RevisionTexts("CREATE", "SELECT 'ä'\n" * 50, ""),
            texts=RevisionTexts("CREATE", "SELECT 'ö'\n" * 50, ""),
        )
        for n in range(nodes)
    )
    return replace(
        changed(), nodes=every, warnings=tuple(PlanWarning(f"t{n}", "wörter " * 90) for n in range(nodes)),
        left_behind=tuple(LeftBehind(one.table, "q", "x__v1") for one in every),
    )  # fmt: skip


@pytest.mark.parametrize("nodes", [1, 30, 300, 3_000])
def test_a_change_ticket_is_never_too_long_and_names_what_was_omitted(nodes: int) -> None:
    text = plan_as_markdown(huge(nodes), PlanStanding(author="lee"))
    assert len(text.encode()) <= COMMENT_LIMIT < 65_536
    assert "headgate apply 7f3a00000000" in text
    shown = sum(line.startswith("| 3 ") or line.startswith("| 0 ") for line in text.splitlines())
    if shown < nodes:
        assert f"_{nodes - shown} more rows left out_" in text
    details = text.count("<details>")
    assert details == text.count("</details>")
    if details < nodes:
        assert f"_{counted(nodes - details, 'text')} left out; headgate review 7f3a00000000 shows all of them_" in text


def test_a_text_that_is_too_long_is_omitted_completely_and_the_next_is_not() -> None:
    plan = changed(new="SELECT 2\n" * 20_000)
    first, second = [one for one in plan.nodes if one.action is Action.REBUILD]
    small = replace(second, texts=replace(second.texts, dml="SELECT 3"))
    nodes = tuple(small if one is second else one for one in plan.nodes)
    text = plan_as_markdown(replace(plan, nodes=nodes))
    assert f"{first.table}: dml" not in text and f"{second.table}: dml" in text
    assert "_1 text left out" in text


def test_a_request_for_thousands_of_tables_is_not_written_out() -> None:
    request = replace(everything().request, tables=tuple(T(f"table_{n}") for n in range(20_000)))
    text = plan_as_markdown(replace(everything(), request=request))
    assert len(text.encode()) <= COMMENT_LIMIT and "headgate plan deploy … --env prod" in text


def test_an_empty_plan_says_that_there_is_nothing_to_do() -> None:
    text = plan_as_markdown(named(replace(everything(), steps=(), nodes=())))
    assert "nothing to do" in text and "To apply" not in text and "| LVL" not in text
