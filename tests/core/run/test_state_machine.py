"""A run driven by values: order, propagation of failures, operators' commands, and what a new agent finds."""

import itertools
from dataclasses import replace

import pytest

from core.model.actions import StepKind
from core.model.names import TableName
from core.plan.model import Step
from core.run.model import (
    FINISHED,
    RUN_TRANSITIONS,
    STEP_TRANSITIONS,
    IllegalTransition,
    OperatorControl,
    Run,
    RunState,
    StepProgress,
    StepState,
)
from core.run.state_machine import (
    AbortVersions,
    GateOpened,
    PerformStep,
    PollGate,
    StepDone,
    StepFailed,
    StepKept,
    advance_run,
    recover_run,
    why_not_skipped,
)


def step(n: int, do: StepKind, table: str, *after: int) -> Step:
    return Step(n, do, TableName(table), 2, after, why="")


def rebuild() -> Run:
    """Return a run with two chains that are swapped together: a is read by b; c stands alone."""
    steps = (
        step(1, StepKind.CREATE, "a"),
        step(2, StepKind.START, "a", 1),
        step(3, StepKind.CATCH_UP, "a", 2),
        step(4, StepKind.CREATE, "b", 1),
        step(5, StepKind.START, "b", 2, 4),
        step(6, StepKind.CATCH_UP, "b", 5),
        replace(step(7, StepKind.SWAP, "b", 3, 6), tables=(TableName("a"), TableName("b"))),
        step(8, StepKind.STOP, "b", 7),
        step(9, StepKind.CREATE, "c"),
    )
    return Run("r", RunState.RUNNING, tuple(StepProgress(s) for s in steps))


def drive(run: Run, answers: dict[int, object], *first: object) -> tuple[Run, list[int]]:
    """Answer every intent (with StepDone unless `answers` differs), and return the run with the steps performed."""
    performed: list[int] = []
    evidence: list[object] = list(first)
    for _ in range(100):
        run, intents = advance_run(run, evidence)  # type: ignore[arg-type]  # Answers are evidence.
        evidence = []
        for intent in intents:
            match intent:
                case PerformStep(s):
                    performed.append(s.n)
                    opened = GateOpened(s.n) if s.do is StepKind.CATCH_UP else StepDone(s.n)
                    evidence.append(answers.get(s.n, opened))
                case PollGate(s):
                    evidence.append(StepDone(s.n))
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
    run, _ = drive(rebuild(), {5: StepFailed(5, "Spark refused it")})
    assert states(run) == {
        1: "done", 2: "done", 3: "done", 4: "done", 5: "failed", 6: "blocked", 7: "blocked", 8: "blocked", 9: "done",
    }  # fmt: skip
    assert run.state is RunState.FAILED
    assert run.step(6).note == "depends on step 5, which is failed"


def test_a_retried_run_continues_where_it_failed() -> None:
    failed, _ = drive(rebuild(), {5: StepFailed(5, "Spark refused it")})
    run, performed = drive(failed, {}, OperatorControl("retry"))
    assert (run.state, performed) == (RunState.DONE, [5, 6, 7, 8])


def test_a_retried_step_of_a_paused_run_begins_once_the_run_is_resumed() -> None:
    run, _ = advance_run(rebuild(), [])
    run, _ = advance_run(run, [StepFailed(1, "Spark refused it"), OperatorControl("pause")])
    paused, intents = advance_run(run, [OperatorControl("retry")])
    assert (paused.state, paused.step(1).state, intents) == (RunState.PAUSED, StepState.WAITS, ())
    _, intents = advance_run(paused, [OperatorControl("resume")])
    assert intents == (PerformStep(paused.step(1).step),)


def test_a_kept_step_lets_the_next_one_begin() -> None:
    run, _ = drive(rebuild(), {8: StepKept(8, "crm reads it")})
    assert (states(run)[8], run.state) == ("kept", RunState.DONE)


def test_a_paused_run_begins_no_step_but_polls_its_gates() -> None:
    run, _ = advance_run(rebuild(), [])
    run, _ = advance_run(run, [StepDone(1)])
    run, _ = advance_run(run, [StepDone(2)])
    paused, intents = advance_run(run, [GateOpened(3), OperatorControl("pause")])
    assert (paused.state, intents) == (RunState.PAUSED, (PollGate(run.step(3).step),))
    resumed, intents = advance_run(paused, [OperatorControl("resume")])
    assert resumed.state is RunState.RUNNING
    assert [i.step.n for i in intents if isinstance(i, PerformStep)] == [4]


def test_cancel_before_the_swap_stops_the_versions_beside_the_serving_ones() -> None:
    run, _ = drive(rebuild(), {6: StepFailed(6, "did not catch up")})
    run, intents = advance_run(run, [OperatorControl("cancel")])
    assert intents == (AbortVersions((("a", 2), ("b", 2))),)
    assert run.state is RunState.CANCELLED
    assert states(run)[7] == "cancelled"


def test_cancel_stops_starts_of_a_killed_agent_that_the_next_one_has_not_resumed() -> None:
    run = rebuild()
    for n, state in ((1, StepState.DONE), (2, StepState.GATE), (4, StepState.DONE), (5, StepState.GATE)):
        run = run.put(replace(run.step(n), state=state, tries=1))
    paused = recover_run(run.become(RunState.PAUSED))
    _, intents = advance_run(paused, [OperatorControl("cancel")])
    assert intents == (AbortVersions((("a", 2), ("b", 2))),)


def test_cancel_gives_up_what_was_made_and_never_started() -> None:
    run = rebuild()
    for n, state in ((1, StepState.DONE), (2, StepState.DONE), (4, StepState.DONE)):
        run = run.put(replace(run.step(n), state=state, tries=1))
    _, intents = advance_run(run, [OperatorControl("cancel")])
    assert intents == (AbortVersions((("a", 2), ("b", 2))),)


def test_a_new_agent_finds_a_hold_unchanged_and_accepts_its_confirmation_at_once() -> None:
    word, swap = step(1, StepKind.HOLD, "a"), step(2, StepKind.SWAP, "a", 1)
    held = Run("r", RunState.RUNNING, (StepProgress(word, StepState.GATE, 1), StepProgress(swap)))
    _, intents = advance_run(recover_run(held), [OperatorControl("swap", by="bob")])
    assert intents == (PerformStep(swap),)


def test_cancel_after_the_swap_stops_nothing() -> None:
    run, _ = drive(rebuild(), {8: StepFailed(8, "pool gone")})
    run, intents = advance_run(run, [OperatorControl("cancel")])
    assert (run.state, intents) == (RunState.CANCELLED, ())


def test_a_new_agent_repeats_steps_without_evidence() -> None:
    run, intents = advance_run(rebuild(), [])
    assert [i.step.n for i in intents if isinstance(i, PerformStep)] == [1]
    again, intents = advance_run(recover_run(run), [])
    assert [i.step.n for i in intents if isinstance(i, PerformStep)] == [1]
    assert again.step(1).tries == 2


@pytest.mark.parametrize(("before", "after"), list(itertools.product(StepState, StepState)))
def test_steps_move_by_the_table_and_no_other_way(before: StepState, after: StepState) -> None:
    progress = StepProgress(step(1, StepKind.START, "a"), before)
    if after in STEP_TRANSITIONS[before]:
        assert progress.become(after).state is after
    else:
        with pytest.raises(IllegalTransition):
            progress.become(after)


def test_every_state_has_its_row_and_ends_are_finished() -> None:
    assert set(STEP_TRANSITIONS) == set(StepState)
    assert set(RUN_TRANSITIONS) == set(RunState)
    assert {state for state, following in STEP_TRANSITIONS.items() if not following} <= FINISHED


def pending_start() -> Run:
    """Return a run whose start awaits its first batch; later steps read, point to or replace the started version."""
    steps = (
        step(1, StepKind.START, "a"),
        step(2, StepKind.START, "b", 1),
        step(3, StepKind.SWAP, "a", 1),
        step(4, StepKind.STOP, "a", 1),
    )
    return Run("r", RunState.RUNNING, tuple(StepProgress(s) for s in steps))


def test_a_reader_starts_on_what_has_started_and_a_stop_waits_for_the_proof() -> None:
    run, performed = pending_start(), []
    evidence: list[object] = []
    for _ in range(6):
        run, intents = advance_run(run, evidence)  # type: ignore[arg-type]  # Answers are evidence.
        evidence = []
        for intent in intents:
            if isinstance(intent, PerformStep):
                performed.append(intent.step.n)
                n = intent.step.n
                evidence.append(GateOpened(n) if intent.step.do is StepKind.START else StepDone(n))
    assert (performed, run.state) == ([1, 2, 3], RunState.RUNNING)
    assert states(run) == {1: "gate", 2: "gate", 3: "done", 4: "waits"}
    run, intents = advance_run(run, [StepDone(1), StepDone(2)])
    assert [one.step.n for one in intents if isinstance(one, PerformStep)] == [4]


def test_a_start_that_fails_in_its_first_batch_fails_the_run_and_no_stop_follows_it() -> None:
    run, _ = advance_run(pending_start(), [])
    run, _ = advance_run(run, [GateOpened(1)])
    run, _ = advance_run(run, [GateOpened(2), StepFailed(1, "CAST_INVALID_INPUT")])
    assert states(run) == {1: "failed", 2: "gate", 3: "blocked", 4: "blocked"}
    run, _ = advance_run(run, [StepDone(2)])
    assert run.state is RunState.FAILED


def test_waiting_for_a_first_batch_can_be_skipped_and_starting_cannot() -> None:
    for do in (StepKind.START, StepKind.RESUME, StepKind.RESTART):
        waiting = Run("r", RunState.RUNNING, (StepProgress(step(1, do, "a"), StepState.GATE, 1),))
        assert why_not_skipped(waiting, 1) is None
        failed = waiting.put(replace(waiting.step(1), state=StepState.FAILED))
        assert why_not_skipped(failed, 1) == f"later steps rely on a {do} step"


def test_the_proof_that_the_end_of_an_old_version_waits_for_cannot_be_skipped() -> None:
    run, _ = advance_run(pending_start(), [])
    run, _ = advance_run(run, [GateOpened(1)])
    run, _ = advance_run(run, [GateOpened(2), OperatorControl("skip", 1), OperatorControl("skip", 2)])
    assert states(run) == {1: "gate", 2: "skipped", 3: "running", 4: "waits"}
    assert why_not_skipped(run, 1) == "step 4, stop a, must wait for its first batch"


def test_a_gate_that_is_skipped_proves_no_start() -> None:
    steps = (step(1, StepKind.START, "a"), step(2, StepKind.CATCH_UP, "a", 1), step(3, StepKind.SWAP, "a", 2))
    run, _ = advance_run(Run("r", RunState.RUNNING, tuple(map(StepProgress, steps))), [])
    run, intents = advance_run(run, [GateOpened(1), OperatorControl("skip", 2)])
    assert intents == (PollGate(steps[0]),)
    _, intents = advance_run(run, [StepDone(1)])
    assert intents == (PerformStep(steps[2]),)
