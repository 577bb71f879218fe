"""The agent's opinions: asked once, again for another engine, bounded, and never in the way."""

import json

import pytest

from core.errors import EngineRefused, TryAgain
from core.names import TableName
from core.opinions import Answer, Opinion, Question, Side
from pipelines.agent.opinions import Opinions
from pipelines.agent.world import World
from tests.pipelines.agent.conftest import ScriptedPool

ONE, TWO = (Question(Side(f"SELECT {n} FROM STREAM a", ((TableName("a"), "CREATE TABLE a (i INT)"),))) for n in (1, 2))
SAID = Answer("4.2.0", Opinion())


def test_same_question_is_put_to_spark_once(world: World, pool: ScriptedPool) -> None:
    pool.answers = {ONE.key: SAID}
    for _ in range(2):
        assert Opinions(world).ask([ONE, ONE], 5.0) == ((SAID, SAID), "")
    assert pool.asked == [ONE]
    assert json.loads(world.ledger.opinions()[ONE.key]) == json.loads(json.dumps(SAID.as_json()))


def test_another_engine_is_asked_again(world: World, pool: ScriptedPool) -> None:
    pool.answers = {ONE.key: SAID}
    Opinions(world).ask([ONE], 5.0)
    newer = Answer("4.3.0", Opinion())
    pool.engine, pool.answers = "4.3.0", {ONE.key: newer}
    assert Opinions(world).ask([ONE], 5.0) == ((newer,), "")
    assert len(world.ledger.opinions()) == 1


def test_pool_that_is_away_leaves_what_is_known(world: World, pool: ScriptedPool) -> None:
    pool.answers = {ONE.key: SAID}
    Opinions(world).ask([ONE], 5.0)
    pool.reachable = False
    assert Opinions(world).ask([ONE, TWO], 5.0) == ((SAID, None), "the pool is silent")


def test_table_that_cannot_be_made_leaves_one_question_unanswered(world: World, pool: ScriptedPool) -> None:
    pool.answers = {ONE.key: EngineRefused("no source nowhere"), TWO.key: SAID}
    assert Opinions(world).ask([ONE, TWO], 5.0) == ((None, SAID), "no source nowhere")
    assert set(world.ledger.opinions()) == {TWO.key}


def test_slow_answer_ends_the_asking(world: World, pool: ScriptedPool) -> None:
    pool.answers = {ONE.key: TryAgain("Spark is slow"), TWO.key: SAID}
    assert Opinions(world).ask([ONE, TWO], 5.0) == ((None, None), "Spark is slow")
    assert pool.asked == [ONE]


def test_asking_without_time_asks_nothing(world: World, pool: ScriptedPool) -> None:
    answers, why = Opinions(world).ask([ONE], 0.0)
    assert answers == (None,) and "did not get to all" in why
    assert pool.asked == []


@pytest.mark.parametrize("said", [SAID, TryAgain("slow")])
def test_what_was_made_is_dropped_each_time(world: World, pool: ScriptedPool, said: Answer | TryAgain) -> None:
    pool.answers = {ONE.key: said}
    Opinions(world).ask([ONE], 5.0)
    assert pool.cleared == 1
