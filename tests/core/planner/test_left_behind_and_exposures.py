"""Exposures: a plan names the table that each reads now and after the swap, and mentions no other exposure."""

from typing import Any

import pytest

from core.model.names import TableName as T
from core.plan.rendering import reader_sentences
from core.plan.request import StrategyChoice
from core.project.model import Project, Settings
from tests.support.domain_builders import plan, project, running, table

FINANCE = Settings(readers=("board", "finance report (bi-team)"))


def declared(columns: str = "id bigint", **a: Any) -> Project:
    return project(table("src"), table("a", "src", columns=columns, settings=FINANCE, **a), table("b", "a"))


@pytest.mark.parametrize(
    ("request_", "after"),
    [
        ({"rebuild": True}, "a__v2"),
        ({"choices": (StrategyChoice(T("a"), "carry_over"),)}, "a__v2"),
        ({"verb": "delete", "children": "all"}, ""),
    ],
    ids=["rebuilt", "rebuilt otherwise", "deleted"],
)
def test_an_exposure_is_told_which_version_its_pointer_will_serve(request_: dict[str, Any], after: str) -> None:
    made = declared()
    found = plan(made, running(made), "a", **request_)
    assert [(r.reader, r.owner, r.table, r.before, r.after) for r in found.readers] == [
        ("board", "", "a", "a__v1", after), ("finance report", "bi-team", "a", "a__v1", after),
    ]  # fmt: skip


def test_a_reader_of_a_table_that_gets_a_column_finds_it_under_the_same_name() -> None:
    before, after = declared(), declared("id bigint, v string")
    found = plan(after, running(before), "a")
    assert [(r.before, r.after) for r in found.readers] == [("a__v1", "a__v1")] * 2


def test_an_exposure_of_an_unchanged_table_is_not_mentioned() -> None:
    made = declared()
    assert (
        plan(made, running(made, a="stopped"), "a").readers
        == ()
        == plan(made, running(made), "b", rebuild=True).readers
    )


def test_an_exposure_is_told_of_its_ticket_if_a_pointer_moves() -> None:
    """See `headgate help releases`: Headgate cannot know whether an exposure itself names the old version."""
    made = project(table("a", "src", settings=Settings(readers=("BI report (ana)",))), src="", b="a")
    (words,) = reader_sentences(plan(made, running(made), "a", rebuild=True))
    assert words == (
        "BI report (owner ana) reads a: a__v1 now, a__v2 through the pointer after the swap, which opens a ticket: "
        "what names a__v1 itself has to move; then headgate release close RUN 'BI report'"
    )
    (words,) = reader_sentences(plan(made, running(made), "a", "b", verb="delete"))
    assert words == "BI report (owner ana) reads a: a__v1 now, loses it"
