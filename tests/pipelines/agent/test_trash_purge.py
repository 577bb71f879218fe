"""Purging: only files of a version itself, and only after enough real time, whatever the wall clock shows."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import small_project
from ledger_rows import deployment_row

from core.model.errors import LedgerUnavailable, TryAgain
from core.model.names import TableName
from core.plan.request import PlanRequest
from pipelines.agent.checked_clock import forgetting_time, record_deadline, unmoved_now
from pipelines.agent.context import AgentContext, Uptime
from pipelines.agent.housekeeping import purge_trash, stop_soaked
from pipelines.storage.checkpoint_logs import OWNER_FILE
from state.retention import FORGETS_S
from state.row_types import EventRow
from tests.pipelines.agent.runs.test_run_driver import deploy

DAY_S = 86400.0
ROUND_S = 300.0


@dataclass
class Clocks:
    """The wall clock, which can be set, and the machine's uptime, which cannot."""

    agent: AgentContext
    wall: float = 1_800_000_000.0
    up: float = 50_000.0
    boot: str = "boot 1"

    def __post_init__(self) -> None:
        self.agent.clock = lambda: self.wall
        self.agent.uptime = lambda: Uptime(self.boot, self.up)

    def wait(self, seconds: float) -> None:
        """Let time pass, with a round of housekeeping after five minutes, and twice at the end."""
        for step in (ROUND_S, seconds - 2 * ROUND_S, ROUND_S):
            self.wall += step
            self.up += step
            purge_trash(self.agent)


@pytest.fixture
def clocks(agent: AgentContext) -> Clocks:
    made = Clocks(agent)
    purge_trash(agent)
    return made


def set_aside(agent: AgentContext, table: str, *, drop_after: float, trash: str) -> Path:
    """Record a deleted version whose table folder is in the trash; return the folder."""
    agent.ledger.put_deployment(deployment_row(table, active=False))
    root = f"{agent.layout.data}/trash/{trash}"
    folder = Path(root, "tables", f"{table}__v1")
    folder.mkdir(parents=True)
    (folder / "part").write_text("rows")
    (folder / OWNER_FILE).write_text(json.dumps({"ledger": "ledger"}))
    agent.ledger.tombstone(TableName(table), 1, drop_after=drop_after, trash=root)
    return folder


def clock_events(agent: AgentContext) -> list[str]:
    return [event.summary for event in agent.ledger.events() if event.kind == "clock"]


def test_a_linked_trash_folder_and_its_target_are_kept(agent: AgentContext, clocks: Clocks, tmp_path: Path) -> None:
    elsewhere = tmp_path / "disk" / "bin"
    elsewhere.mkdir(parents=True)
    Path(agent.layout.data).mkdir()
    Path(agent.layout.data, "trash").symlink_to(elsewhere)
    set_aside(agent, "a", drop_after=clocks.wall + DAY_S, trash="a__v1")
    clocks.wait(2 * DAY_S)
    assert list(elsewhere.iterdir()) == []


def test_files_are_deleted_after_their_deadline_and_not_before(agent: AgentContext, clocks: Clocks) -> None:
    kept = set_aside(agent, "a", drop_after=clocks.wall + 7 * DAY_S, trash="a__v1")
    clocks.wait(7 * DAY_S - 1)
    assert kept.exists()
    clocks.wait(3 * ROUND_S)
    assert not kept.exists() and not clock_events(agent)
    row = agent.ledger.deployment(TableName("a"), 1)
    assert row is not None and row.trash == ""


def test_purging_one_version_leaves_the_files_of_others_that_one_run_set_aside(
    agent: AgentContext, clocks: Clocks
) -> None:
    """Earlier agents recorded it in this form: one folder for all versions of a run."""
    due = set_aside(agent, "a", drop_after=clocks.wall + DAY_S, trash="run-7")
    kept = set_aside(agent, "b", drop_after=clocks.wall + 9 * DAY_S, trash="run-7")
    clocks.wait(2 * DAY_S)
    assert not due.exists() and (kept / "part").exists()
    clocks.wait(8 * DAY_S)
    assert not kept.exists()


def test_a_run_that_deletes_several_tables_gives_each_a_folder_of_its_own(agent: AgentContext, pool: Any) -> None:
    deploy(agent, pool, small_project.texts())
    assert deploy(agent, pool, small_project.texts(), PlanRequest(verb="delete", everything=True)) == "done"
    gone = [d for d in agent.ledger.deployments(include_deleted=True) if d.trash]
    assert len(gone) > 1 and len({d.trash for d in gone}) == len(gone)
    aside: dict[str, str] = agent.files.aside  # type: ignore[attr-defined]  # A double's.
    for into in aside:
        assert sum(into.startswith(f"{d.trash}/") for d in gone) == 1, into


def test_a_table_that_cannot_be_moved_keeps_its_checkpoint_and_starts_again(
    agent: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    deploy(agent, pool, small_project.texts())
    folders: dict[str, Any] = agent.files.folders  # type: ignore[attr-defined]  # A double's.
    before, move = dict(folders), agent.files.set_aside

    def set_aside(folder: str, into: str) -> None:
        if "/trash/" in into and "/tables/" in into:
            raise TryAgain(f"{folder} cannot be reached")
        move(folder, into)
        if folder not in folders and "/trash/" in folder:
            folders[into] = before[into]

    monkeypatch.setattr(agent.files, "set_aside", set_aside)
    assert deploy(agent, pool, small_project.texts(), PlanRequest(verb="delete", everything=True)) == "failed"
    assert folders == before


def test_no_deadline_is_given_before_the_clock_could_be_checked(
    agent: AgentContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise LedgerUnavailable("the disk is full")

    monkeypatch.setattr(agent.ledger, "put_clock_check", full)
    given: list[float] = []
    for deadline in (partial(record_deadline, agent, DAY_S, given.append), partial(unmoved_now, agent)):
        with pytest.raises(LedgerUnavailable):
            deadline()
    assert given == []


def test_a_clock_that_jumps_forward_purges_nothing_until_as_much_time_has_passed(
    agent: AgentContext, clocks: Clocks
) -> None:
    kept = set_aside(agent, "a", drop_after=clocks.wall + 7 * DAY_S, trash="a__v1")
    clocks.wall += 3 * DAY_S
    clocks.wait(5 * DAY_S)
    assert kept.exists()
    (said,) = clock_events(agent)
    assert said == "the clock jumped forward by 3d; deleted files and replaced versions are kept as if it had not"


@pytest.mark.parametrize("jump_d", [30, 3650])
def test_a_jump_holds_purging_for_no_longer_than_files_are_kept(
    jump_d: float, agent: AgentContext, clocks: Clocks
) -> None:
    kept = set_aside(agent, "a", drop_after=clocks.wall + 7 * DAY_S, trash="a__v1")
    clocks.wall += jump_d * DAY_S
    clocks.wait(7 * DAY_S - ROUND_S)
    assert kept.exists()
    clocks.wait(4 * ROUND_S)
    assert not kept.exists()


def test_a_clock_that_is_set_back_and_forth_purges_nothing_early(agent: AgentContext, clocks: Clocks) -> None:
    kept = set_aside(agent, "a", drop_after=clocks.wall + 7 * DAY_S, trash="a__v1")
    for jump_d in (-20, 20, 400, -400):
        clocks.wall += jump_d * DAY_S
        clocks.wait(DAY_S)
        assert kept.exists()


def test_time_while_no_agent_ran_counts_as_long_as_the_machine_was_up(agent: AgentContext, clocks: Clocks) -> None:
    gone = set_aside(agent, "a", drop_after=clocks.wall + 7 * DAY_S, trash="a__v1")
    clocks.wall, clocks.up = clocks.wall + 8 * DAY_S, clocks.up + 8 * DAY_S
    purge_trash(agent)
    assert not gone.exists() and not clock_events(agent)


def test_a_machine_that_was_off_counts_from_its_boot(agent: AgentContext, clocks: Clocks) -> None:
    kept = set_aside(agent, "a", drop_after=clocks.wall + 7 * DAY_S, trash="a__v1")
    clocks.wall, clocks.up, clocks.boot = clocks.wall + 8 * DAY_S, 60.0, "boot 2"
    purge_trash(agent)
    assert kept.exists() and len(clock_events(agent)) == 1
    clocks.wait(8 * DAY_S)
    assert not kept.exists()


def test_files_that_cannot_be_removed_are_tried_again(
    agent: AgentContext, clocks: Clocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = set_aside(agent, "a", drop_after=clocks.wall + DAY_S, trash="a__v1")
    with monkeypatch.context() as broken:
        broken.setattr(agent.files, "remove", lambda folder: True)
        clocks.wait(2 * DAY_S)
    row = agent.ledger.deployment(TableName("a"), 1)
    assert kept.exists() and row is not None and row.trash
    clocks.wait(DAY_S)
    assert not kept.exists()


def test_files_outside_the_trash_are_left_alone(agent: AgentContext, clocks: Clocks) -> None:
    outside = set_aside(agent, "a", drop_after=clocks.wall + DAY_S, trash="../tables")
    clocks.wait(2 * DAY_S)
    assert outside.exists()


def test_tables_restored_by_an_interrupted_undelete_return_to_the_trash(agent: AgentContext, clocks: Clocks) -> None:
    left = set_aside(agent, "a", drop_after=clocks.wall + DAY_S, trash="a__v1")
    row = agent.ledger.deployment(TableName("a"), 1)
    assert row is not None
    folders: dict[str, Any] = agent.files.folders  # type: ignore[attr-defined]  # A double's.
    folders[row.folder] = {"table": "a"}
    clocks.wait(2 * DAY_S)
    assert row.folder not in folders and not left.exists()
    gone = agent.ledger.deployment(TableName("a"), 1)
    assert gone is not None and gone.trash == ""


def test_the_checkpoint_from_before_a_seam_is_purged_after_its_deadline_even_of_a_serving_version(
    clocks: Clocks,
) -> None:
    agent = clocks.agent
    agent.ledger.put_deployment(deployment_row("b", active=True))
    trash = Path(agent.layout.data, "trash", "b__v1")
    for days in (1, 9):
        former = trash / "before_seam" / f"{clocks.wall + days * DAY_S:.0f}" / "b__v1"
        former.mkdir(parents=True)
        (former / "metadata").write_text("{}")
        (former / OWNER_FILE).write_text(json.dumps({"ledger": "ledger"}))
    (trash / "before_seam" / "of an earlier release").mkdir()
    clocks.wait(2 * DAY_S)
    left = sorted(found.name for found in (trash / "before_seam").iterdir())
    assert left == [f"{1_800_000_000 + 9 * DAY_S:.0f}", "of an earlier release"]
    (trash / "before_seam" / "of an earlier release").rmdir()
    clocks.wait(8 * DAY_S)
    assert not trash.exists()


YEAR_D = 365.0
JUMPS: dict[str, tuple[float, ...]] = {
    "1970": (-56 * YEAR_D,),
    "1970 once": (-56 * YEAR_D, 56 * YEAR_D),
    "ten years ahead": (10 * YEAR_D,),
    "ten years ahead once": (10 * YEAR_D, -10 * YEAR_D),
    "back and forth": (30.0, -400.0, 3650.0, -20.0, 0.5),
    "minutes": (0.01, -0.02, 0.005),
}
"""Sequences of clock jumps, in days."""

every_jump = pytest.mark.parametrize("jumps", JUMPS.values(), ids=JUMPS)


def set_clock(clocks: Clocks, jumps: tuple[float, ...]) -> None:
    for jump_d in jumps:
        clocks.wall += jump_d * DAY_S
        clocks.wait(3 * ROUND_S)


def lasts(clocks: Clocks, days: float, is_over: Callable[[], bool], *, since: float = 50_000.0) -> None:
    """Assert that something is over after `days` of uptime since `since`, and not before."""
    clocks.wait(since + days * DAY_S - clocks.up - ROUND_S)
    assert not is_over()
    clocks.wait(3 * ROUND_S)
    assert is_over()


@every_jump
def test_a_table_deleted_before_the_clock_was_set_is_kept_exactly_for_its_time(
    jumps: tuple[float, ...], agent: AgentContext, clocks: Clocks
) -> None:
    kept = set_aside(agent, "a", drop_after=clocks.wall + 7 * DAY_S, trash="a__v1")
    set_clock(clocks, jumps)
    lasts(clocks, 7, lambda: not kept.exists())


@every_jump
def test_a_table_deleted_while_the_clock_is_wrong_is_kept_exactly_for_its_time(
    jumps: tuple[float, ...], agent: AgentContext, clocks: Clocks
) -> None:
    """The table is deleted after the first jump and before any check; the clock is corrected later."""
    clocks.wall += jumps[0] * DAY_S
    kept: list[Path] = []
    record_deadline(agent, 7 * DAY_S, lambda at: kept.append(set_aside(agent, "a", drop_after=at, trash="a__v1")))
    set_clock(clocks, jumps[1:])
    lasts(clocks, 7, lambda: not kept[0].exists())


@every_jump
def test_a_soak_ends_after_its_time_however_the_clock_is_set(
    jumps: tuple[float, ...], agent: AgentContext, clocks: Clocks
) -> None:
    agent.ledger.put_deployment(deployment_row("a", active=False, stops_at=clocks.wall + 7 * DAY_S))
    set_clock(clocks, jumps)

    def is_over() -> bool:
        stop_soaked(agent)
        found = agent.ledger.deployment(TableName("a"), 1)
        return found is not None and found.wanted == "stopped"

    lasts(clocks, 7, is_over)


@every_jump
def test_a_checkpoint_from_before_a_seam_is_kept_for_its_time_however_the_clock_is_set(
    jumps: tuple[float, ...], agent: AgentContext, clocks: Clocks
) -> None:
    clocks.wall += jumps[0] * DAY_S
    former = Path(agent.layout.data, "trash", "b__v1", "before_seam", f"{unmoved_now(agent) + 7 * DAY_S:.0f}", "b__v1")
    former.mkdir(parents=True)
    (former / OWNER_FILE).write_text(json.dumps({"ledger": "ledger"}))
    set_clock(clocks, jumps[1:])
    lasts(clocks, 7, lambda: not former.exists())


@every_jump
def test_a_row_is_not_forgotten_before_its_time_however_the_clock_is_set(
    jumps: tuple[float, ...], agent: AgentContext, clocks: Clocks
) -> None:
    """If the clock was set back and stays so, earlier entries are kept for that much longer."""

    def is_kept() -> bool:
        agent.ledger.forget_old(forgetting_time(agent.ledger.clock_check(), agent.clock(), FORGETS_S))
        return any(event.kind == "old" for event in agent.ledger.events())

    agent.ledger.add_event(EventRow(0, clocks.wall, "a", 1, "old", "before the clock was set"))
    for jump_d in jumps:
        clocks.wall += jump_d * DAY_S
        clocks.wait(3 * ROUND_S)
        assert is_kept()
    clocks.wait(20 * DAY_S)
    assert is_kept()
    clocks.wait(120 * DAY_S)
    assert is_kept() == (sum(jumps) < -100)


def test_a_row_dated_1970_by_a_wrong_clock_is_not_deleted_once_the_clock_is_right(
    agent: AgentContext, clocks: Clocks
) -> None:
    clocks.wall -= 56 * YEAR_D * DAY_S
    clocks.wait(3 * ROUND_S)
    agent.ledger.add_event(EventRow(0, clocks.wall, "a", 1, "old", "in 1970"))
    clocks.wall += 56 * YEAR_D * DAY_S
    clocks.wait(20 * DAY_S)
    agent.ledger.forget_old(forgetting_time(agent.ledger.clock_check(), agent.clock(), FORGETS_S))
    assert any(event.kind == "old" for event in agent.ledger.events())


def test_a_machine_that_is_off_every_night_forgets_in_days_of_the_calendar(agent: AgentContext, clocks: Clocks) -> None:
    for night in range(40):
        clocks.wall, clocks.up, clocks.boot = clocks.wall + DAY_S / 2, 60.0, f"boot {night}"
        clocks.wait(DAY_S / 2)
    assert forgetting_time(agent.ledger.clock_check(), clocks.wall, FORGETS_S) == clocks.wall


def test_a_full_disk_does_not_prevent_a_purge(
    agent: AgentContext, clocks: Clocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ledger accepts no writes at all. Files are deleted, and the ledger records the purge once it can."""
    gone = set_aside(agent, "a", drop_after=clocks.wall + DAY_S, trash="a__v1")
    later = set_aside(agent, "b", drop_after=clocks.wall + 9 * DAY_S, trash="b__v1")

    def full(*_: Any, **__: Any) -> None:
        raise LedgerUnavailable("the disk is full")

    with monkeypatch.context() as patch:
        for name in ("put_clock_check", "purged", "add_event"):
            patch.setattr(agent.ledger, name, full)
        for jump_d in (0, 0, 300):
            clocks.wall, clocks.up = clocks.wall + (1 + jump_d) * DAY_S, clocks.up + DAY_S
            purge_trash(agent)
        assert not gone.exists() and later.exists()
    purge_trash(agent)
    row = agent.ledger.deployment(TableName("a"), 1)
    assert row is not None and row.trash == "" and later.exists()


def test_foreign_files_in_the_trash_of_a_version_are_kept(agent: AgentContext, clocks: Clocks) -> None:
    gone = set_aside(agent, "a", drop_after=clocks.wall + DAY_S, trash="a__v1")
    theirs = [gone.parent / "notes.txt", gone.parents[1] / "tables" / "mine" / "rows.csv"]
    for file in theirs:
        file.parent.mkdir(exist_ok=True)
        file.write_text("mine")
    clocks.wait(2 * DAY_S)
    assert not gone.exists() and all(file.exists() for file in theirs)
    row = agent.ledger.deployment(TableName("a"), 1)
    assert row is not None and row.trash == ""
