"""Spark analysis through a real agent: confirmed, cached, disagreed with, and unavailable without harm."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from tiny_project import DML, Tiny, tiny_that_runs, until

pytestmark = [pytest.mark.spark, pytest.mark.drill]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tiny]:
    with tiny_that_runs(tmp_path_factory.mktemp("headgate"), landed=5) as found:
        yield found


def answered(tiny: Tiny, *words: str) -> dict[str, Any]:
    """Plan until Spark has answered for every new or changed statement; a busy machine needs several attempts."""
    plans: list[dict[str, Any]] = []

    def is_answered() -> bool:
        plans.append(tiny.plan(*words))
        return "not confirmed by Spark" not in tiny.done("review", plans[-1]["hash"][:12])

    until(is_answered, 180, "Spark has answered")
    return plans[-1]


def node(plan: dict[str, Any], table: str) -> dict[str, Any]:
    return next(node for node in plan["nodes"] if node["table"] == table)


def test_new_statements_are_confirmed_before_their_tables_exist(tiny: Tiny) -> None:
    plan = answered(tiny, "--all")
    assert {n["table"]: n["confirmed_by_spark"] for n in plan["nodes"]} == {
        "landed": None,
        "kept": True,
        "marked": True,
    }
    assert tiny.apply(plan).returncode == 0


def test_same_meaning_is_confirmed_by_spark(tiny: Tiny) -> None:
    tiny.write(marked="INSERT INTO marked\nselect k.id, upper(k.kind) as kind -- aloud\nfrom stream kept as k;")
    marked = node(answered(tiny, "marked"), "marked")
    assert (marked["row"], marked["confirmed_by_spark"]) == ("1", True)
    assert "confirmed" in [seen["kind"] for seen in marked["evidence"]]


def test_a_disagreement_with_spark_is_shown_and_makes_the_verdict_unknown(tiny: Tiny) -> None:
    tiny.write(marked="INSERT INTO marked SELECT id, upper(kind, kind) AS kind FROM STREAM kept;")
    plan = answered(tiny, "marked")
    marked = node(plan, "marked")
    assert (marked["row"], marked["action"], marked["classified"]) == ("6a", "rebuild", False)
    assert marked["confirmed_by_spark"] is False
    assert marked["evidence"][0]["sentence"].startswith(
        "Spark disagrees: it rejects the statement at line 1 of its file (WRONG_NUM_ARGS.WITHOUT_SUGGESTION): "
    )
    shown = " ".join(tiny.done("plan", "marked").split())
    assert "Spark disagrees" in shown and "so it is treated as the most severe change: marked" in shown


def test_without_an_agent_only_cached_answers_are_confirmed(tiny: Tiny) -> None:
    tiny.done("down", "--keep-pool")
    try:
        assert node(tiny.plan("marked"), "marked")["confirmed_by_spark"] is False
        tiny.write(marked=DML["marked"].replace("upper", "lower"))
        found = tiny.run("plan", "marked", "--json")
        marked = node(json.loads(found.stdout), "marked")
        assert (found.returncode, marked["classified"], marked["confirmed_by_spark"]) == (0, True, None)
        assert "SPARK       not confirmed by Spark: marked" in tiny.done("plan", "marked")
    finally:
        tiny.done("up")
