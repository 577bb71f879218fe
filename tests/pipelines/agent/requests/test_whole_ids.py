"""The agent accepts only whole run ids, and ids are unique."""

from typing import Any

import pytest
from ledger_rows import create_run, run_row
from submission_desk import BOB, NOW, Desk

from core.model.errors import UsageError
from state.runs import draw_run_id


@pytest.mark.parametrize("act", ["pause", "resume", "cancel", "retry", "ack", "swap"])
@pytest.mark.parametrize("id", ["7f3a", "7f3a-", "", None])
def test_the_start_of_an_id_and_no_id_name_no_run(id: str | None, act: str, desk: Desk) -> None:
    for number in "12":
        create_run(desk.agent.ledger, run_row(id=f"7f3a-{number}", state="failed", ended_at=NOW))
    told: list[Any] = []
    desk.runs.submit_command = lambda *word: told.append(word)  # type: ignore[attr-defined]  # Of a run lane.
    with pytest.raises(UsageError, match="there is no run"):
        desk.commands.handle(BOB, {"op": "run", "args": {"id": id, "act": act}, "confirm": "7f3a"})
    assert told == []


def test_a_plan_whose_run_id_is_taken_draws_another_one(desk: Desk) -> None:
    made = desk.plan()
    desk.hand_over(made)
    taken = run_row(id=f"{made.hash[:4]}-00000", state="done", ended_at=NOW)
    create_run(desk.agent.ledger, taken)
    drawn = iter([taken.id, taken.id, f"{made.hash[:4]}-00001"])
    desk.agent.run_id = lambda plan_hash: next(drawn)
    assert desk.apply(made) == f"{made.hash[:4]}-00001"
    assert desk.agent.ledger.run(taken.id) == taken


def test_ids_of_one_plan_at_one_moment_differ() -> None:
    ids = {draw_run_id("7f3a" * 16) for _ in range(50)}
    assert len(ids) == 50 and all(len(id) == 10 and id.startswith("7f3a-") for id in ids)
