"""Purging: each version's own files, when as much time has really passed, whatever the wall clock says."""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import small_project
from ledger_rows import deployment_row

from core.model.errors import TryAgain
from core.model.names import TableName
from core.plan.request import PlanRequest
from pipelines.agent.checked_clock import Uptime
from pipelines.agent.context import AgentContext
from pipelines.agent.trash_purge import purge_trash
from tests.pipelines.agent.runs.test_run_lane import deploy

DAY_S = 86400.0
ROUND_S = 300.0


@dataclass
class Clocks:
    """The wall clock, which can be set, and the machine's uptime, which cannot."""

    world: AgentContext
    wall: float = 1_800_000_000.0
    up: float = 50_000.0
    boot: str = "boot 1"

    def __post_init__(self) -> None:
        self.world.clock = lambda: self.wall
        self.world.uptime = lambda: Uptime(self.boot, self.up)

    def wait(self, seconds: float) -> None:
        """Let time pass, with a round of housekeeping every five minutes at first and at the end."""
        for step in (ROUND_S, seconds - 2 * ROUND_S, ROUND_S):
            self.wall += step
            self.up += step
            purge_trash(self.world)


@pytest.fixture
def clocks(world: AgentContext) -> Clocks:
    made = Clocks(world)
    purge_trash(world)
    return made


def set_aside(world: AgentContext, table: str, *, drop_after: float, trash: str) -> Path:
    """Record a deleted version whose table folder lies in the trash; returns the folder."""
    world.ledger.put_deployment(deployment_row(table, active=False))
    root = f"{world.layout.data}/trash/{trash}"
    folder = Path(root, "tables", f"{table}__v1")
    folder.mkdir(parents=True)
    (folder / "part").write_text("rows")
    world.ledger.tombstone(TableName(table), 1, drop_after=drop_after, trash=root)
    return folder


def clock_events(world: AgentContext) -> list[str]:
    return [event.summary for event in world.ledger.events() if event.kind == "clock"]


def test_files_go_after_their_deadline_and_not_before(world: AgentContext, clocks: Clocks) -> None:
    kept = set_aside(world, "a", drop_after=clocks.wall + 7 * DAY_S, trash="a__v1")
    clocks.wait(7 * DAY_S - 1)
    assert kept.exists()
    clocks.wait(3 * ROUND_S)
    assert not kept.exists() and not clock_events(world)
    row = world.ledger.deployment(TableName("a"), 1)
    assert row is not None and row.trash == ""


def test_purging_one_version_leaves_the_files_of_others_that_one_run_set_aside(
    world: AgentContext, clocks: Clocks
) -> None:
    """As an agent before has recorded them: one folder for all versions of a run."""
    due = set_aside(world, "a", drop_after=clocks.wall + DAY_S, trash="run-7")
    kept = set_aside(world, "b", drop_after=clocks.wall + 9 * DAY_S, trash="run-7")
    clocks.wait(2 * DAY_S)
    assert not due.exists() and (kept / "part").exists()
    clocks.wait(8 * DAY_S)
    assert not kept.exists()


def test_a_run_that_deletes_several_tables_gives_each_a_folder_of_its_own(world: AgentContext, pool: Any) -> None:
    deploy(world, pool, small_project.texts())
    assert deploy(world, pool, small_project.texts(), PlanRequest(verb="delete", everything=True)) == "done"
    gone = [d for d in world.ledger.deployments(include_deleted=True) if d.trash]
    assert len(gone) > 1 and len({d.trash for d in gone}) == len(gone)
    aside: dict[str, str] = world.files.aside  # type: ignore[attr-defined]  # A double's.
    for into in aside:
        assert sum(into.startswith(f"{d.trash}/") for d in gone) == 1, into


def test_a_table_that_cannot_be_moved_keeps_its_checkpoint_and_starts_again(
    world: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    deploy(world, pool, small_project.texts())
    folders: dict[str, Any] = world.files.folders  # type: ignore[attr-defined]  # A double's.
    before, move = dict(folders), world.files.set_aside

    def set_aside(folder: str, into: str) -> None:
        if "/trash/" in into and "/tables/" in into:
            raise TryAgain(f"{folder} cannot be reached")
        move(folder, into)
        if folder not in folders and "/trash/" in folder:
            folders[into] = before[into]

    monkeypatch.setattr(world.files, "set_aside", set_aside)
    assert deploy(world, pool, small_project.texts(), PlanRequest(verb="delete", everything=True)) == "failed"
    assert folders == before


def test_a_clock_that_jumps_forward_purges_nothing_until_as_much_time_has_passed(
    world: AgentContext, clocks: Clocks
) -> None:
    kept = set_aside(world, "a", drop_after=clocks.wall + 7 * DAY_S, trash="a__v1")
    clocks.wall += 3 * DAY_S
    clocks.wait(5 * DAY_S)
    assert kept.exists()
    (said,) = clock_events(world)
    assert said == "the clock jumped forward by 3d; deleted files and replaced versions are kept as if it had not"


@pytest.mark.parametrize("jump_d", [30, 3650])
def test_a_jump_holds_purging_for_no_longer_than_files_are_kept(
    jump_d: float, world: AgentContext, clocks: Clocks
) -> None:
    kept = set_aside(world, "a", drop_after=clocks.wall + 7 * DAY_S, trash="a__v1")
    clocks.wall += jump_d * DAY_S
    clocks.wait(7 * DAY_S - ROUND_S)
    assert kept.exists()
    clocks.wait(4 * ROUND_S)
    assert not kept.exists()


def test_a_clock_that_is_set_back_and_forth_purges_nothing_early(world: AgentContext, clocks: Clocks) -> None:
    kept = set_aside(world, "a", drop_after=clocks.wall + 7 * DAY_S, trash="a__v1")
    for jump_d in (-20, 20, 400, -400):
        clocks.wall += jump_d * DAY_S
        clocks.wait(DAY_S)
        assert kept.exists()


def test_time_while_no_agent_ran_counts_as_long_as_the_machine_was_up(world: AgentContext, clocks: Clocks) -> None:
    gone = set_aside(world, "a", drop_after=clocks.wall + 7 * DAY_S, trash="a__v1")
    clocks.wall, clocks.up = clocks.wall + 8 * DAY_S, clocks.up + 8 * DAY_S
    purge_trash(world)
    assert not gone.exists() and not clock_events(world)


def test_a_machine_that_was_off_counts_from_its_boot(world: AgentContext, clocks: Clocks) -> None:
    kept = set_aside(world, "a", drop_after=clocks.wall + 7 * DAY_S, trash="a__v1")
    clocks.wall, clocks.up, clocks.boot = clocks.wall + 8 * DAY_S, 60.0, "boot 2"
    purge_trash(world)
    assert kept.exists() and len(clock_events(world)) == 1
    clocks.wait(8 * DAY_S)
    assert not kept.exists()


def test_files_that_cannot_be_removed_are_tried_again(
    world: AgentContext, clocks: Clocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = set_aside(world, "a", drop_after=clocks.wall + DAY_S, trash="a__v1")
    with monkeypatch.context() as broken:
        broken.setattr(shutil, "rmtree", lambda *_, **__: None)
        clocks.wait(2 * DAY_S)
    row = world.ledger.deployment(TableName("a"), 1)
    assert kept.exists() and row is not None and row.trash
    clocks.wait(DAY_S)
    assert not kept.exists()


def test_what_is_outside_the_trash_is_left_alone(world: AgentContext, clocks: Clocks) -> None:
    outside = set_aside(world, "a", drop_after=clocks.wall + DAY_S, trash="../tables")
    clocks.wait(2 * DAY_S)
    assert outside.exists()


def test_what_a_half_done_undelete_has_taken_out_goes_with_the_rest(world: AgentContext, clocks: Clocks) -> None:
    left = set_aside(world, "a", drop_after=clocks.wall + DAY_S, trash="a__v1")
    row = world.ledger.deployment(TableName("a"), 1)
    assert row is not None
    folders: dict[str, Any] = world.files.folders  # type: ignore[attr-defined]  # A double's.
    folders[row.folder] = {"table": "a"}
    clocks.wait(2 * DAY_S)
    assert row.folder not in folders and not left.exists()
    gone = world.ledger.deployment(TableName("a"), 1)
    assert gone is not None and gone.trash == ""


def test_a_checkpoint_from_before_a_seam_is_purged_after_its_time_also_of_a_version_that_serves(clocks: Clocks) -> None:
    world = clocks.world
    world.ledger.put_deployment(deployment_row("b", active=True))
    trash = Path(world.layout.data, "trash", "b__v1")
    for days in (1, 9):
        former = trash / "before_seam" / f"{clocks.wall + days * DAY_S:.0f}" / "b__v1"
        former.mkdir(parents=True)
        (former / "metadata").write_text("{}")
    (trash / "before_seam" / "of an earlier release").mkdir()
    clocks.wait(2 * DAY_S)
    left = sorted(found.name for found in (trash / "before_seam").iterdir())
    assert left == [f"{1_800_000_000 + 9 * DAY_S:.0f}", "of an earlier release"]
    (trash / "before_seam" / "of an earlier release").rmdir()
    clocks.wait(8 * DAY_S)
    assert not trash.exists()
