"""Full disks: which disk is full, how much space it has, and what continues automatically once there is space."""

from typing import Any

import pytest
from agent_scenarios import put_made
from ledger_rows import deployment_row

from core.model.names import TableName
from core.model.states import State
from core.ports.spark import ReportedQuery
from pipelines.agent.reconciler import BeforeRound, Reconciler
from pipelines.agent.statements import transient_failures
from pipelines.agent.statements.transient_failures import DISK_FULL, disk_error, has_space, with_disk
from pipelines.spark_connect.error_translation import NO_SPACE
from state.emergency_journal import EmergencyJournal

WRITING = ("TASK_WRITE_FAILED", "Task failed while writing rows to file:/t.")


def free(monkeypatch: pytest.MonkeyPatch, bytes: int | None, total: int = 10**12) -> None:
    monkeypatch.setattr(transient_failures, "disk_space", lambda folder: (bytes, None if bytes is None else total))


@pytest.mark.parametrize(
    ("found", "room", "name", "words"),
    [((NO_SPACE, "No space left on device"), 4096, DISK_FULL, "the disk under /f is full: 4.1 kB free there; free space"
      " there, then it is restarted automatically, 4 times in 10 minutes at most, or by headgate restart t"),
     (WRITING, 4096, DISK_FULL, "a write failed, and there are only 4.1 kB free under /f; free space there, then it"),
     ((NO_SPACE, "No space left on device"), 10**11, NO_SPACE, "a disk that the pool writes to was full: 100 GB are "
      "free now under /f, so look at where the pool keeps temporary files as well; then headgate restart t"),
     (WRITING, 10**11, *WRITING), (WRITING, None, *WRITING),
     (("DIVIDE_BY_ZERO", "Division by zero."), 0, "DIVIDE_BY_ZERO", "Division by zero.")],
)  # fmt: skip
def test_an_error_over_a_full_disk_names_the_disk_and_its_free_space(
    found: tuple[str, str], room: int | None, name: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    free(monkeypatch, room)
    said = with_disk(deployment_row("t", folder="/f", checkpoint="/g"), *found)
    assert said[0] == name and said[1].startswith(words)


def test_a_small_disk_with_room_is_not_called_full(monkeypatch: pytest.MonkeyPatch) -> None:
    free(monkeypatch, 30_000_000, 40_000_000)
    assert with_disk(deployment_row("t"), *WRITING) == WRITING
    assert with_disk(deployment_row("t"), NO_SPACE, "No space left on device")[0] == NO_SPACE


def test_remedies_of_a_failed_step_name_its_run_and_versions_that_do_not_serve_by_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    free(monkeypatch, 0)
    built = deployment_row("t", version=2, folder="/f", checkpoint="/g", active=False)
    assert with_disk(built, NO_SPACE, "")[1].endswith("free space there, then headgate restart t@v2")
    full = disk_error(built, NO_SPACE, "headgate runs retry 7f")
    assert full is not None and full[1].endswith("then headgate runs retry 7f")


def test_there_is_space_again_on_a_small_disk_as_on_a_large_one(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = deployment_row("t", error_class=DISK_FULL)
    for room, total, enough in ((10**8, 10**12, False), (2 * 10**8, 10**12, True), (11, 50, True), (9, 50, False)):
        free(monkeypatch, room, total)
        assert has_space(failed) is enough
        assert not has_space(deployment_row("t", error_class="DIVIDE_BY_ZERO"))


def test_a_start_that_has_to_wait_leaves_what_it_failed_with_and_is_tried_again(
    agent: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = deployment_row("t", state="failed", error_class=DISK_FULL, error="the disk under /f is full")
    put_made(agent, row)
    free(monkeypatch, 10**11)
    reconciler = Reconciler(agent, EmergencyJournal(tmp_path / "emergency"))
    reconciler.catalog._unregistered[TableName("t"), 1] = "its log is gone"
    reconciler.catalog._register_at = agent.monotonic() + 60
    for state in (State.FAILED, State.STARTING):
        reconciler.round(BeforeRound.of(agent), (), ())
        after = agent.ledger.deployment(TableName("t"), 1)
        assert after.state == state and (after.error_class == DISK_FULL) is (state == State.FAILED)
        reconciler.catalog._unregistered.clear()


def test_a_statement_that_ended_on_a_full_disk_is_restarted_a_few_times_once_there_is_space(
    agent: Any, pool: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = deployment_row("t", state="running", query_id="q", run_id="r1")
    put_made(agent, row)
    reconciler = Reconciler(agent, EmergencyJournal(tmp_path / "emergency"))

    def after(ended: bool, room: int) -> str:
        free(monkeypatch, room)
        run = agent.ledger.deployment(TableName("t"), 1).run_id
        over = (ReportedQuery("t@v1", "q", run, False, error_class=NO_SPACE, error="No space left"),) if ended else ()
        if ended:
            pool.running.clear()
        reconciler.round(BeforeRound.of(agent), agent.pools.default.connection().queries.active(), over)
        return str(agent.ledger.deployment(TableName("t"), 1).state)

    for starts in range(4):
        assert after(True, 0) == State.FAILED and after(False, 10**8) == State.FAILED
        assert len(pool.starts) == starts
        assert after(False, 10**10) == State.STARTING and len(pool.starts) == starts + 1
    told = [event.detail for event in agent.ledger.events_of(TableName("t"), "state")]
    assert told.count("there is space on its disk again: started again from its checkpoint") == 4
    assert after(True, 0) == State.FAILED and after(False, 10**10) == State.FAILED
    assert len(pool.starts) == 4
    agent.ledger.update_deployment(TableName("t"), 1, wanted="stopped", state="stopped")
    assert after(False, 10**10) == State.STOPPED
