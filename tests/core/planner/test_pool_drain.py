"""Where the statements of a drained pool go: by room, the same each time, or nowhere with every reason."""

from typing import Any

import pytest
from ledger_rows import deployment_row

from core.observed.versions import Deployment
from core.planner.pool_drain import Drain, DrainRefusal, plan_drain
from core.project.model import Environment, Pool
from core.project.resources import Amounts

OLD = Pool("old")


def environment(*others: Pool) -> Environment:
    return Environment("dev", pool=OLD, named_pools=(OLD, *others))


def rows(names: str, pool: Pool = OLD, **fields: Any) -> list[Deployment]:
    return [deployment_row(name, pool=pool, **fields) for name in names]


def drained(deployments: list[Deployment], *others: Pool, **more: Any) -> Drain:
    found = plan_drain(environment(*others), deployments, "old", **more)
    assert found == plan_drain(environment(*others), deployments[::-1], "old", **more), "the order does not matter"
    return found


@pytest.mark.parametrize(
    ("others", "to", "wanted"),
    [
        ((Pool("x"), Pool("y")), "", "xyxy"),
        ((Pool("x", capacity=Amounts(3)), Pool("y", capacity=Amounts(2))), "", "xyxy"),
        ((Pool("x", capacity=Amounts(1)), Pool("y")), "", "yyyy"),
        ((Pool("x"), Pool("y")), "y", "yyyy"),
    ],
)
def test_statements_go_to_where_most_room_is_left(others: tuple[Pool, ...], to: str, wanted: str) -> None:
    found = drained(rows("abcd"), *others, to=to)
    assert "".join(found.moves[each] for each in sorted(found.moves)) == wanted and not found.refusals


def test_what_runs_in_a_pool_takes_its_room_and_a_cordoned_one_has_none() -> None:
    x, y = Pool("x", capacity=Amounts(3)), Pool("y", capacity=Amounts(2))
    found = drained([*rows("ab"), *rows("pq", x)], x, y)
    assert dict(found.moves) == {"a": "y", "b": "y"}
    assert [each.kind for each in drained(rows("a"), x, cordoned={"x"}).refusals] == [DrainRefusal.NO_OTHER]


def test_every_reason_is_given_at_once() -> None:
    older = deployment_row("a", version=2, pool=OLD, active=False)
    stopping = deployment_row("s", pool=OLD, state="stopping", wanted="stopped")
    found = drained([*rows("abc"), older, stopping], Pool("x", capacity=Amounts(1)))
    assert [str(each) for each in found.refusals] == [
        "b, c do not fit: with b, x would hold 2 of at most 1 statement",
        "a__v2 keeps running there beside the serving version, and a plan moves only that",
        "s__v1 is being stopped there, which is not confirmed",
    ]


def test_nothing_but_room_keeps_statements_in_a_lost_pool() -> None:
    older = deployment_row("a", version=2, pool=OLD, active=False)
    stopping = deployment_row("s", pool=OLD, state="unknown", wanted="stopped")
    found = drained([*rows("a", state="unknown"), older, stopping], Pool("x"), lost=True)
    assert (dict(found.moves), found.refusals) == ({"a": "x"}, ())
    full = drained(rows("ab", state="unknown"), Pool("x", capacity=Amounts(1)), lost=True)
    assert [each.kind for each in full.refusals] == [DrainRefusal.NO_ROOM]


def test_what_is_stopped_or_has_failed_stays_and_is_named() -> None:
    stopped = rows("s", state="stopped", wanted="stopped")
    found = drained([*rows("a"), *stopped, *rows("f", state="failed"), *rows("e", external=True)], Pool("x"))
    assert (dict(found.moves), found.rests) == ({"a": "x"}, ("f", "s"))
    resumed = rows("r", state="stopped", wanted="running")
    assert dict(drained(resumed, Pool("x")).moves) == {"r": "x"}, "its agent starts it by itself"
