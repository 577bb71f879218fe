"""Lives of the real agent in virtual time: some random ones, those that once broke a rule, and their coverage."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from life_script import FAULTS, Script, draw
from lives import Lives, Report, live_many

from core.model.actions import StepKind

ROOT = Path(__file__).parents[3]
KEPT = sorted((ROOT / "tests/fixtures/lives").glob("*.life"))
SEEDS = (
    4, 6, 15, 58, 59, 66, 82, 115, 122, 123, 147, 212, 231, 242, 293, 329, 560, 702, 1041, 1319, 1831, 1894, 2837
)  # fmt: skip
"""Seeds chosen so that at least two lives pass every required point, and at least one life is affected by each fault.
"""
DRILLED = range(300, 340)

NOT_DRAWN = {
    StepKind.REGISTER: "the world has its external table before a life begins",
    StepKind.REWRITE: "no statement of a life writes by a key",
    StepKind.RECORD: "no text of a life differs in comments alone",
    StepKind.SOAK: "the environment of a life lets nothing run on",
    StepKind.OPTIMIZE: "no table of a life is on Delta",
    StepKind.VACUUM: "no table of a life is on Delta",
}
POINTS_NOT_DRAWN = ("rewrite ", "move ", "fork clone", "slot ", "copy ", "comparison ", ". begins", ". done")
"""Prefixes of points that no drawn life passes: undrawn steps, slots, copies, comparisons; `.` is a placeholder."""

REQUESTS = {
    "run": ("start", "stop", "point", "unpoint", "create", "forget", "alter", "list"),
    "socket": ("start", "stop", "list"),
    "reconcile": ("start", "stop", "list"),
    "pool": ("attach", "create", "point"),
}
"""The kinds of requests of each thread to the server that lives must send, let take effect, and answer."""


@pytest.fixture(scope="module")
def lives() -> Iterator[Lives]:
    found = Lives()
    yield found
    found.close()


@pytest.fixture(scope="module")
def report(lives: Lives) -> Report:
    """Play all seeds once."""
    return live_many(lives, SEEDS)


def test_the_same_script_gives_the_same_life(lives: Lives) -> None:
    first, again = lives.live(draw(9)), lives.live(draw(9))
    assert first.trace == again.trace and len(first.trace) > 20


def test_a_script_is_written_and_read_unchanged() -> None:
    assert all(Script.from_json(draw(seed).as_json()) == draw(seed) for seed in range(200))


def test_some_drawn_lives_keep_every_rule(lives: Lives) -> None:
    found = live_many(lives, SEEDS[::5])
    assert not {rule: scripts[0].seed for rule, scripts in found.failed.items()}


@pytest.mark.drill
def test_drawn_lives_keep_every_rule(report: Report) -> None:
    broken = {rule: scripts[0].seed for rule, scripts in report.failed.items()}
    assert not broken, f"each rule with its seed, for tests/drills/agent_lives.py 1 SEED --show: {broken}"


@pytest.mark.drill
@pytest.mark.long
def test_many_drawn_lives_keep_every_rule(lives: Lives) -> None:
    found = live_many(lives, DRILLED)
    assert not {rule: scripts[0].seed for rule, scripts in found.failed.items()}


@pytest.mark.drill
def test_lives_pass_every_edge_of_a_step(report: Report) -> None:
    """The edges are the intent, effect and evidence of each kind of step."""
    edges = ("before # {} running", "after # {} running", "effect # {}", "evidence # {}", "before # {} done",
        "after # {} done")  # fmt: skip
    missed = {edge.format(do) for do in StepKind if do not in NOT_DRAWN for edge in edges} - report.passed.keys()
    assert not missed


@pytest.mark.drill
def test_lives_pass_every_edge_of_a_request(report: Report) -> None:
    """The edges are the requests of each thread (sent, taking effect, answered) and its ledger writes."""
    pairs = ((lane, kind) for lane, kinds in REQUESTS.items() for kind in kinds)
    edges = {f"{lane} {does} {kind}" for lane, kind in pairs for does in ("sends", "effects", "hears")}
    edges |= {f"{lane} wrote" for lane in ("run", "socket", "reconcile")}
    assert not edges - report.passed.keys()


@pytest.mark.drill
def test_lives_pass_every_fault_point_of_the_agent(report: Report) -> None:
    points = fault_points()
    assert len(points) > 10
    missed = [point for point in points if not any(re.fullmatch(point, label) for label in report.passed)]
    assert not missed


@pytest.mark.drill
def test_every_kind_of_fault_occurs_and_affects_something(report: Report) -> None:
    """A drawn fault that never affects a request, call or thread tests nothing."""
    assert not {kind for kind in FAULTS if not report.came[kind] or not report.met[kind]}


def fault_points() -> list[str]:
    """Return the labels of all fault points in the agent's sources, as patterns."""
    found = set()
    for path in sorted((ROOT / "pipelines/agent").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            is_point = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
            if is_point and node.func.attr == "pass_by" and isinstance(node.args[0], ast.Constant | ast.JoinedStr):
                found.add(_pattern(node.args[0]))
    return sorted(point for point in found if not point.replace(".+", ".").startswith(POINTS_NOT_DRAWN))


def _pattern(label: ast.expr) -> str:
    if isinstance(label, ast.JoinedStr):
        return "".join(map(_pattern, label.values))
    return re.escape(str(label.value)).replace(r"\ ", " ") if isinstance(label, ast.Constant) else ".+"


@pytest.mark.sampled
@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_a_life_that_once_broke_a_rule_keeps_them_all(lives: Lives, path: Path) -> None:
    end = lives.live(Script.from_json(path.read_text()))
    assert not end.violations, "\n".join([*map(str, end.violations), *end.trace[-60:]])
