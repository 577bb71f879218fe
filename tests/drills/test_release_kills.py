"""A release over four statements on real Spark: killed in a step of each kind beside other actors, or failing."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from live_project import until
from release_lives import Life, Others, lived, one_point_per_kind
from release_project import DML, RELEASE, RELEASED, Released, released, releases_of, rows_of

pytestmark = [pytest.mark.spark, pytest.mark.drill]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Released]:
    with released(tmp_path_factory.mktemp("released")) as found:
        yield found


def seed() -> int:
    """Return a number that differs between revisions; 0 if the sources are not in git."""
    found = subprocess.run(["git", "rev-parse", "HEAD"], cwd=Path(__file__).parent, capture_output=True, text=True)
    return int(found.stdout.strip() or "0", 16)


@pytest.mark.long
def test_a_release_survives_a_killed_agent_in_a_step_of_every_kind(world: Released) -> None:
    world.edit()
    plan = world.plan(*RELEASE)
    points = one_point_per_kind(plan, seed())
    kinds = {step["do"] for step in plan["steps"]}
    assert {"validate", "hold", "swap"} <= kinds and len(points) == len(kinds) + 1, "one inside of the swap"
    others = Others(world)
    others.start()
    try:
        found = lived(world, Life("release", tuple(points)))
    finally:
        others.end()
    print(f"{len(found.died_at)} kills within {found.seconds:.0f} s, {others.acts} acts of operators meanwhile")
    assert (found.state, found.wrong, found.not_met) == ("done", [], [])
    assert all(rows.good for rows in found.rows.values())


def fails_and_is_cancelled(world: Released, words: str) -> str:
    """Apply a release that must fail: the serving versions are untouched, and after a cancel nothing else is wanted.

    Returns the note of the failed step.
    """
    until(lambda: world.all_run(*RELEASED), 60, "what serves runs")
    before = world.serving()
    applied = world.apply(world.plan(*RELEASE))
    assert applied.returncode == 1, applied.stdout + applied.stderr
    run_id, state = world.newest_run()
    (note,) = world.ledger("SELECT note FROM step WHERE run_id = ? AND state = 'failed'", run_id)[0]
    assert state == "failed" and words in str(note), note
    assert world.serving() == before, "not even restarted, and nothing is recorded as deployed"
    world.land(10)
    until(
        lambda: all(rows.good for rows in rows_of(world, *RELEASED).values()),
        60,
        "every row is in what serves",
        every_s=1.0,
    )
    cancelled = world.cancel(run_id)
    assert cancelled.returncode == 0, cancelled.stderr
    assert releases_of(world)[run_id] == "aborted"
    wanted = (
        "SELECT \"table\", version FROM deployment WHERE active = 0 AND wanted = 'running' AND \"table\" <> 'broken'"
    )
    until(lambda: not world.ledger(wanted), 60, "nothing is wanted beside what serves")
    assert world.serving() == before and world.all_run(*RELEASED)
    return str(note)


def test_a_failing_new_version_leaves_the_serving_version_unchanged(world: Released) -> None:
    world.write(base=DML["base"].replace("concat(kind, '0')", "if(id = 31, raise_error('as asked'), kind)"))
    print(fails_and_is_cancelled(world, "as asked"))
