"""The history of a table as one timeline, made only from ledger rows, without repetitions."""

from dataclasses import replace

import pytest

from core.changes.kinds import ChangeKind
from core.model.actions import Action, StepKind
from core.model.events import EventCause
from core.model.evidence import Edit, EditKind
from core.model.names import TableName
from core.plan.model import Step
from core.run.records import StepRow
from state.row_types import AuditRow, CommandRow, EventRow
from state.table_records import TableRecords
from tests.support.ledger_rows import plan_of, run_row, state_event
from tui.presentation.reports.table_history import entry_words, history_lines, table_history
from tui.presentation.screen_content.audit_log_events import event_tone
from tui.presentation.styling.styled_text import Tone

A = TableName("a")
EVIDENCE = (Edit(EditKind.COLUMN_REMOVED, columns=("tip",)), Edit(EditKind.FILTER, "x"))
PLAN = plan_of(
    A, action=Action.REBUILD, change=ChangeKind.COLUMNS_CHANGED, evidence=EVIDENCE, from_version=1, version=2,
)  # fmt: skip


def step(n: int, do: StepKind, **fields: object) -> StepRow:
    return StepRow(n, str(do), "a", 2, "done", started_at=100.0 + n, ended_at=110.0 + n, **fields)  # type: ignore[arg-type]


def kinds(records: TableRecords) -> list[tuple[float, str]]:
    return [(entry.at, entry.kind) for entry in table_history(records, {PLAN.hash: PLAN})]


def test_a_deploy_is_listed_with_plan_actor_columns_and_the_time_it_began_to_serve() -> None:
    run = run_row(PLAN.hash, ended_at=200.0, state="done", steps=(step(1, StepKind.CREATE), step(2, StepKind.SWAP)))
    deploy, schema, serves = table_history(TableRecords(A, runs=(run,)), {PLAN.hash: PLAN})
    assert (deploy.at, schema.at, serves.at) == (101.0, 101.0, 112.0)
    assert entry_words(deploy) == f"rebuild v1→v2: columns no longer fit, done in 11s (plan {PLAN.hash[:4]}, by ana)"
    assert (schema.kind, schema.summary) == ("schema", "column tip was removed")
    assert serves.summary == "v2 began to serve"


def test_a_version_that_serves_without_a_comparison_is_reported() -> None:
    note = "skipped by an operator; before that: comparing"
    check = replace(step(1, StepKind.VALIDATE), state="skipped", note=note)
    run = run_row(PLAN.hash, ended_at=200.0, state="done", steps=(check, step(2, StepKind.SWAP)))
    *_, serves = table_history(TableRecords(A, runs=(run,)), {PLAN.hash: PLAN})
    assert (serves.kind, serves.detail) == ("serves", note)


def test_a_failed_step_gives_its_reason_and_a_forgotten_plan_is_reported() -> None:
    broken = StepRow(3, "start", "a", 2, "failed", note="disk full", started_at=5.0, ended_at=6.0)
    run = run_row("gone", state="failed", ended_at=7.0, steps=(broken,))
    (entry,) = table_history(TableRecords(A, runs=(run,)), {})
    assert (entry.bad, entry.detail) == (True, "disk full")
    assert entry.summary == "by a plan that is no longer kept, failed"


def test_a_swap_of_several_pointers_is_listed_in_the_history_of_each_table() -> None:
    pointers = Step(1, StepKind.SWAP, TableName("b"), 2, (), "", tables=(TableName("b"), A))
    plan = plan_of(A, steps=(pointers,), action=Action.REBUILD)
    swap = StepRow(1, "swap", "b", 2, "done", started_at=1.0, ended_at=2.0)
    run = run_row(plan.hash, state="done", ended_at=2.0, steps=(swap,))
    found = table_history(TableRecords(A, runs=(run,)), {plan.hash: plan})
    assert [entry.kind for entry in found] == ["deploy", "serves"]


def test_after_a_rollback_the_previous_version_serves() -> None:
    swap = Step(1, StepKind.SWAP, A, 1, (), "", tables=(A,))
    plan = plan_of(A, steps=(swap,), action=Action.ROLLBACK, from_version=2, version=1)
    stop = StepRow(2, "stop", "a", 2, "done", started_at=3.0, ended_at=4.0)
    steps = (StepRow(1, "swap", "a", 1, "done", started_at=1.0, ended_at=2.0), stop)
    found = table_history(
        TableRecords(A, runs=(run_row(plan.hash, state="done", ended_at=4.0, steps=steps),)), {plan.hash: plan}
    )
    assert [(entry.kind, entry.version) for entry in found] == [("deploy", 1), ("serves", 1)]
    assert found[1].summary == "v1 began to serve"


def test_an_edit_in_place_does_not_begin_to_serve() -> None:
    swap = Step(1, StepKind.SWAP, A, 1, (), "", tables=(A,))
    plan = plan_of(A, steps=(swap,), action=Action.RESTART, version=1)
    steps = (StepRow(1, "swap", "a", 1, "done", started_at=1.0, ended_at=2.0),)
    row = run_row(plan.hash, state="done", ended_at=2.0, steps=steps)
    found = table_history(TableRecords(A, runs=(row,)), {plan.hash: plan})
    assert "serves" not in [entry.kind for entry in found]


def test_an_action_is_listed_once_although_command_audit_and_event_record_it() -> None:
    command = CommandRow(1, 50.0, "bob", "stop", "a b", "headgate stop a b", "done", took_ms=1000)
    audit = AuditRow(1, 50.1, "bob", "stop", "a b", outcome="done")
    event = state_event(50.0, ("a", 1), ("running", "stopped"), cause=EventCause.STOP, by="bob")
    (entry,) = table_history(TableRecords(A, events=(event,), commands=(command,), audits=(audit,)), {})
    assert (entry.at, entry.kind, entry.summary, entry.actor) == (49.0, "stop", "done, with 1 other statement", "bob")


def test_an_action_whose_command_was_forgotten_is_listed_from_the_audit() -> None:
    audits = (AuditRow(2, 9000.0, "bob", "stop", "a", outcome="done"), AuditRow(1, 50.0, "bob", "stop", "a", "", "yes"))
    command = CommandRow(1, 9000.1, "bob", "stop", "a", "headgate stop a", "done")
    assert kinds(TableRecords(A, commands=(command,), audits=audits)) == [(50.0, "stop"), (9000.1, "stop")]


def test_a_repeated_failure_is_shown_with_its_first_and_last_time() -> None:
    event = EventRow(1, 900.0, "a", 2, "exception", "DIVIDE_BY_ZERO", "by zero", "f", 3, 100.0)
    found = table_history(TableRecords(A, events=(event,)), {})
    assert [(entry.at, entry.summary) for entry in found] == [
        (100.0, "DIVIDE_BY_ZERO, the first of 3 times"), (900.0, "DIVIDE_BY_ZERO, 3 times so far"),
    ]  # fmt: skip


def test_states_are_listed_if_they_are_faults_or_have_a_reason() -> None:
    version = ("a", 1)
    events = (
        state_event(0, version, ("starting", "running")),
        state_event(1, version, ("running", "failed")),
        state_event(2, version, ("failed", "starting"), detail="restarted from its checkpoint"),
        state_event(3, version, ("running", "stopped"), detail="stopped as wanted", cause=EventCause.WANTED),
        state_event(4, version, ("running", "stopped"), cause=EventCause.RUN, by="7f3a-1"),
        EventRow(5, 5.0, "", 1, "pool", "the pool is down"),
        EventRow(6, 6.0, "", 1, "run", "run 7f3a-1 done"),
        EventRow(7, 7.0, "a", 1, "missed", "4m behind, beyond the objective of 1m"),
        EventRow(8, 8.0, "a", 1, "met", "within the objective of 1m again, after 9m"),
    )
    found = table_history(TableRecords(A, events=events), {})
    assert [entry.at for entry in found] == [1.0, 2.0, 5.0, 7.0, 8.0]
    assert [entry.bad for entry in found] == [True, False, False, True, False]


@pytest.mark.parametrize("words", ["running → failed", "it did not go on", "stopped by bob"])
def test_the_sentence_of_an_event_decides_nothing(words: str) -> None:
    by_act = state_event(1.0, ("a", 1), ("running", "stopped"), cause=EventCause.STOP, by="bob")
    failed = state_event(2.0, ("a", 1), ("running", "failed"))
    quiet = state_event(3.0, ("a", 1), ("starting", "running"))
    events = tuple(replace(event, summary=words) for event in (by_act, failed, quiet))
    assert [(entry.at, entry.bad) for entry in table_history(TableRecords(A, events=events), {})] == [(2.0, True)]
    upstream = table_history(TableRecords(A, upstream=events), {})
    assert [(entry.at, entry.bad) for entry in upstream] == [(1.0, False), (2.0, True)]
    assert [event_tone(event) for event in events] == [Tone.PLAIN, Tone.BAD, Tone.PLAIN]


def test_the_newest_entries_are_kept_and_lines_are_oldest_first() -> None:
    events = tuple(EventRow(n, float(n), "", 0, "pool", f"no {n}", "why\nmore") for n in range(5))
    entries = table_history(TableRecords(A, events=events), {}, 2)
    assert [words.split()[-1] for words in history_lines(entries, 10.0)] == ["3", "why", "4", "why"]


def test_the_answer_to_an_action_is_a_sentence() -> None:
    answer = "a started in 267 ms, first batch pending"
    command = CommandRow(1, 50.0, "bob", "start", "a", "headgate start a", "accepted", detail=answer, took_ms=270)
    (entry,) = table_history(TableRecords(A, commands=(command,)), {})
    assert entry.summary == "accepted: a started in 267 ms, first batch pending"


def test_a_stop_of_an_input_is_listed_in_a_tables_history() -> None:
    events = (
        state_event(50.0, ("parent", 1), ("running", "stopped"), cause=EventCause.STOP, by="bob"),
        state_event(60.0, ("parent", 1), ("starting", "running")),
        state_event(70.0, ("root", 2), ("running", "failed"), detail="by zero"),
        EventRow(4, 80.0, "root", 2, "missed", "behind for 2 min"),
    )
    stopped, failed = table_history(TableRecords(A, upstream=events), {})
    assert (stopped.kind, entry_words(stopped), stopped.bad) == (
        "upstream",
        "parent: running → stopped, stopped by bob",
        False,
    )
    assert (entry_words(failed), failed.detail, failed.bad) == ("root: running → failed", "by zero", True)


def test_a_command_on_a_table_is_not_a_command_on_a_run_with_that_prefix() -> None:
    stop = CommandRow(1, 5.0, "ana", "stop", "a", "headgate stop a", "done", "", 5.0, 0)
    found = table_history(TableRecords(A, runs=(run_row(id="a3f0-1"),), commands=(stop,)), {})
    assert [entry.run for entry in found if entry.kind == "stop"] == [""]
