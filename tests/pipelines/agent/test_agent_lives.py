"""Lives of the real agent in virtual time: some that are drawn, and those that once broke a rule."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from life_script import Script, draw
from lives import Lives, Report

KEPT = sorted((Path(__file__).parents[2] / "fixtures/lives").glob("*.life"))

STILL_BROKEN = frozenset(
    {
        "an unexpected exception",
        "a run that has ended acts",
        "a paused run acts",
        "a restart that was refused has stopped what ran",
        "a pointer leads elsewhere than the ledger says",
        "a version starts after its stop was answered",
        "a pointer moves to a version that was stopped",
        "a start that was answered is undone",
        "an old version stops behind one that is not proved",
        "a cancel stops what somebody reads",
        "a version is deployed and its files are not there",
        "a query runs another text or checkpoint than the ledger has",
        "a start has another text or checkpoint than the ledger",
        "a world without faults does not settle",
    }
)
"""Rules that the agent is known to break."""


@pytest.fixture(scope="module")
def lives() -> Iterator[Lives]:
    found = Lives()
    yield found
    found.close()


def test_the_same_script_gives_the_same_life(lives: Lives) -> None:
    first, again = lives.live(draw(9)), lives.live(draw(9))
    assert first.trace == again.trace and len(first.trace) > 20


def test_a_script_is_written_and_read_as_it_is() -> None:
    assert all(Script.from_json(draw(seed).as_json()) == draw(seed) for seed in range(200))


def test_drawn_lives_keep_every_rule(lives: Lives) -> None:
    report = Report()
    for seed in range(1, 31):
        script = draw(seed)
        report.take(script, lives.live(script))
    broken = {rule: scripts[0].seed for rule, scripts in report.failed.items() if rule not in STILL_BROKEN}
    assert not broken, f"rules and the seed of each, for tests/drills/agent_lives.py 1 SEED --show: {broken}"


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_a_life_that_once_broke_a_rule_keeps_them_all(lives: Lives, path: Path) -> None:
    end = lives.live(Script.from_json(path.read_text()))
    assert not end.violations, "\n".join([*map(str, end.violations), *end.trace[-60:]])
