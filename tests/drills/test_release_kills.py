"""A release over four statements on real Spark, the agent killed once in each step, others at work beside it."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from release_project import RELEASE, Others, Released, killed_at, one_point_per_step, released

pytestmark = [pytest.mark.spark, pytest.mark.drill]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Released]:
    with released(tmp_path_factory.mktemp("released")) as found:
        yield found


def seed() -> int:
    """Return a number that another revision has otherwise; 0 where the sources are not in git."""
    found = subprocess.run(["git", "rev-parse", "HEAD"], cwd=Path(__file__).parent, capture_output=True, text=True)
    return int(found.stdout.strip() or "0", 16)


def test_a_release_that_loses_its_agent_in_every_step_ends_with_every_row_once(world: Released) -> None:
    world.edit()
    plan = world.plan(*RELEASE)
    points = one_point_per_step(plan, seed())
    assert len(points) == len(plan["steps"]) + 1, "one inside of the swap"
    others = Others(world)
    others.start()
    try:
        found = killed_at(world, RELEASE, points)
    finally:
        others.end()
    print(f"{len(found.died_at)} kills within {found.seconds:.0f} s, {others.acts} acts of operators meanwhile")
    assert (found.state, found.wrong, found.not_met) == ("done", [], [])
    assert all(rows.good for rows in found.rows.values())
