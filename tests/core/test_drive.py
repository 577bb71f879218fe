"""A run driven as values: order, failure passed down, an operator's words, and what a new agent finds."""

import itertools

import pytest

from core.drive import Abort, Control, Done, Failed, Kept, Opened, Perform, Poll, advance, recover
from core.names import TableName
from core.plan import Do, Step
from core.run import (
    FINISHED,
    RUN_NEXT,
    STEP_NEXT,
    IllegalTransition,
    Progress,
    Run,
    RunState,
    StepState,
)


def step(n: int, do: Do, table: str, *after: int) -> Step:
    return Step(n, do, TableName(table), 2, after, why="", undo="")


def rebuild() -> Run:
    """Two chains that are swapped together: a is read by b; c stands alone."""
    steps = (
        step(1, Do.CREATE, "a"),
        step(2, Do.START, "a", 1),
        step(3, Do.CATCH_UP, "a", 2),
        step(4, Do.CREATE, "b", 1),
        step(5, Do.START, "b", 2, 4),
        step(6, Do.CATCH_UP, "b", 5),
        step(7, Do.SWAP, "b", 3, 6),
        step(8, Do.STOP, "b", 7),
        step(9, Do.CREATE, "c"),
    )
    return Run("r", RunState.RUNNING, tuple(Progress(s) for s in steps))


def drive(run: Run, answers: dict[int, object], *first: object) -> tuple[Run, list[int]]:
    """Answer every intent with what `answers` says of its step (Done unless said), and note what was performed."""
    performed: list[int] = []
    evidence: list[object] = list(first)
    for _ in range(100):
        run, intents = advance(run, evidence)  # type: ignore[arg-type]  # Answers are evidence.
        evidence = []
        for intent in intents:
            match intent:
                case Perform(s):
                    performed.append(s.n)
                    opened = Opened(s.n) if s.do is Do.CATCH_UP else Done(s.n)
                    evidence.append(answers.get(s.n, opened))
                case Poll(s):
                    evidence.append(Done(s.n))
        if not intents:
            break
    return run, performed


def states(run: Run) -> dict[int, str]:
    return {p.step.n: p.state.value for p in run.steps}


def test_every_step_is_performed_after_those_it_needs() -> None:
    run, performed = drive(rebuild(), {})
    assert run.state is RunState.DONE
    assert set(states(run).values()) == {"done"}
    for progress in run.steps:
        assert all(performed.index(n) < performed.index(progress.step.n) for n in progress.step.after)


def test_a_failure_blocks_everything_below_it_and_nothing_else() -> None:
    run, _ = drive(rebuild(), {5: Failed(5, "Spark refused it")})
    assert states(run) == {
        1: "done", 2: "done", 3: "done", 4: "done", 5: "failed", 6: "blocked", 7: "blocked", 8: "blocked", 9: "done",
    }  # fmt: skip
    assert run.state is RunState.FAILED
    assert run.step(6).note == "needs step 5, which is failed"


def test_a_failed_run_goes_on_where_it_failed_once_it_is_retried() -> None:
    failed, _ = drive(rebuild(), {5: Failed(5, "Spark refused it")})
    run, performed = drive(failed, {}, Control("retry"))
    assert (run.state, performed) == (RunState.DONE, [5, 6, 7, 8])


def test_a_kept_step_lets_the_next_go_on() -> None:
    run, _ = drive(rebuild(), {8: Kept(8, "crm reads it")})
    assert (states(run)[8], run.state) == ("kept", RunState.DONE)


def test_a_paused_run_begins_nothing_but_looks_at_its_gates() -> None:
    run, _ = advance(rebuild(), [])
    run, _ = advance(run, [Done(1)])
    run, _ = advance(run, [Done(2)])
    paused, intents = advance(run, [Opened(3), Control("pause")])
    assert (paused.state, intents) == (RunState.PAUSED, (Poll(run.step(3).step),))
    resumed, intents = advance(paused, [Control("resume")])
    assert resumed.state is RunState.RUNNING
    assert [i.step.n for i in intents if isinstance(i, Perform)] == [4]


def test_cancel_before_the_swap_stops_what_stands_beside_the_serving_versions() -> None:
    run, _ = drive(rebuild(), {6: Failed(6, "did not catch up")})
    run, intents = advance(run, [Control("cancel")])
    assert intents == (Abort((("a", 2), ("b", 2))),)
    assert run.state is RunState.CANCELLED
    assert states(run)[7] == "cancelled"


def test_cancel_after_the_swap_stops_nothing() -> None:
    run, _ = drive(rebuild(), {8: Failed(8, "pool gone")})
    run, intents = advance(run, [Control("cancel")])
    assert (run.state, intents) == (RunState.CANCELLED, ())


def test_a_new_agent_begins_again_what_was_begun_without_evidence() -> None:
    run, intents = advance(rebuild(), [])
    assert [i.step.n for i in intents if isinstance(i, Perform)] == [1]
    again, intents = advance(recover(run), [])
    assert [i.step.n for i in intents if isinstance(i, Perform)] == [1]
    assert again.step(1).tries == 2


@pytest.mark.parametrize(("before", "after"), list(itertools.product(StepState, StepState)))
def test_steps_move_by_the_table_and_no_other_way(before: StepState, after: StepState) -> None:
    progress = Progress(step(1, Do.START, "a"), before)
    if after in STEP_NEXT[before]:
        assert progress.become(after).state is after
    else:
        with pytest.raises(IllegalTransition):
            progress.become(after)


def test_every_state_has_its_row_and_ends_are_finished() -> None:
    assert set(STEP_NEXT) == set(StepState)
    assert set(RUN_NEXT) == set(RunState)
    assert {state for state, following in STEP_NEXT.items() if not following} <= FINISHED
