"""Plans are used once, and one run at a time holds a table."""

import threading
from dataclasses import replace

import pytest
from ledger_rows import create_run, run_row

from core.model.errors import Refused
from core.model.names import TableName
from core.observed.planner_input import Seconds
from core.run.records import RunRow, StepRow
from state.ledger import Ledger
from state.row_types import PlanRow
from state.runs import RunIdTaken

PLAN = PlanRow(hash="abcd1234", body="{}", author="ana", created_at=1.0, expires_at=100.0, status="open")


def run_on(run_id: str, *tables: str, at: float = 10.0) -> RunRow:
    steps = tuple(
        StepRow(n=n, do="start", table=table, version=1, state="pending") for n, table in enumerate(tables, 1)
    )
    return run_row(PLAN.hash, id=run_id, started_at=at, steps=steps)


def test_taking_a_plan_marks_it_and_writes_its_run(ledger: Ledger) -> None:
    ledger.put_plan(PLAN)
    run = run_on("r1", "a", "b")
    ledger.apply_plan(PLAN.hash, run, now=10.0)
    assert ledger.plan(PLAN.hash) == replace(PLAN, status="applied", run_id="r1")
    assert ledger.open_runs() == (run,)


def test_predictions_are_written_with_the_run_and_never_changed(ledger: Ledger) -> None:
    ledger.put_plan(PLAN)
    run = run_on("r1", "a", "b")
    first = replace(run.steps[0], predicted_low_s=2.0, predicted_high_s=6.0)
    run = replace(run, steps=(first, run.steps[1]), predicted_low_s=4.0, predicted_high_s=12.0)
    ledger.apply_plan(PLAN.hash, run, now=10.0)
    for state, ended_at in (("running", None), ("done", 13.0)):
        ledger.put_step("r1", StepRow(1, "start", "a", 1, state, tries=1, started_at=10.0, ended_at=ended_at))
    found = ledger.run("r1")
    assert found is not None and (found.predicted_low_s, found.predicted_high_s) == (4.0, 12.0)
    assert (found.steps[0].state, found.steps[0].predicted_low_s, found.steps[0].predicted_high_s) == ("done", 2.0, 6.0)
    assert found.steps[1].predicted_low_s is None
    assert ledger.step_durations() == {"start": Seconds(1.0, 5.5)}
    ledger.put_step("r1", StepRow(1, "start", "a", 1, "done", tries=2, started_at=10.0, ended_at=99.0))
    assert ledger.step_durations() == {}


@pytest.mark.parametrize(
    "plan, at, says",
    [
        (replace(PLAN, status="applied", run_id="r0"), 10.0, "already applied by run r0"),
        (PLAN, 100.0, "has expired"),
        (replace(PLAN, status="expired"), 10.0, "has expired"),
        (replace(PLAN, status="refused"), 10.0, "is refused"),
        (replace(PLAN, hash="other"), 10.0, "is unknown"),
    ],
)
def test_a_closed_plan_is_refused_and_leaves_no_run(ledger: Ledger, plan: PlanRow, at: float, says: str) -> None:
    ledger.put_plan(plan)
    with pytest.raises(Refused, match=says):
        ledger.apply_plan(PLAN.hash, run_on("r1", "a"), now=at)
    assert ledger.runs() == ()


def test_only_one_of_many_threads_gets_the_plan(ledger: Ledger) -> None:
    ledger.put_plan(PLAN)
    outcomes: list[str] = []

    def take(number: int) -> None:
        try:
            ledger.apply_plan(PLAN.hash, run_on(f"r{number}", f"t{number}"), now=10.0)
            outcomes.append("taken")
        except Refused:
            outcomes.append("refused")

    threads = [threading.Thread(target=take, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["refused"] * 7 + ["taken"]
    assert len(ledger.runs()) == 1


def test_applied_plan_stays_applied(ledger: Ledger) -> None:
    ledger.put_plan(PLAN)
    ledger.apply_plan(PLAN.hash, run_on("r1", "a"), now=10.0)
    ledger.put_plan(PLAN)
    found = ledger.plan(PLAN.hash)
    assert found and (found.status, found.run_id) == ("applied", "r1")


def test_open_run_holds_its_tables_and_a_plan_refused_for_it_stays_open(ledger: Ledger) -> None:
    ledger.put_plan(PLAN)
    create_run(ledger, run_on("r0", "a"), [TableName("b")])
    with pytest.raises(Refused, match="b is being changed by run r0 of ana"):
        ledger.apply_plan(PLAN.hash, run_on("r1", "b", "c"), now=10.0)
    assert ledger.plan(PLAN.hash) == PLAN


def test_ended_run_frees_its_tables_and_takes_them_again_only_while_they_are_free(ledger: Ledger) -> None:
    create_run(ledger, run_on("r0", "a"))
    ledger.put_run_state("r0", "failed", ended_at=20.0)
    create_run(ledger, run_on("r1", "a"))
    with pytest.raises(Refused, match="run r1"):
        ledger.put_run_state("r0", "running")
    ledger.put_run_state("r1", "done", ended_at=30.0)
    ledger.put_run_state("r0", "running")
    with pytest.raises(Refused, match="run r0"):
        create_run(ledger, run_on("r2", "a"))


def test_plan_and_run_are_read_by_their_whole_id_alone(ledger: Ledger) -> None:
    ledger.put_plan(PLAN)
    run = run_on("7f3a-1", "a")
    create_run(ledger, run)
    assert [ledger.plan(one) for one in (PLAN.hash, "abcd", "")] == [PLAN, None, None]
    assert [ledger.run(one) for one in ("7f3a-1", "7f3a", "")] == [run, None, None]


def test_ids_are_matched_literally_by_prefix_and_a_complete_one_matches_alone(ledger: Ledger) -> None:
    for at, name in enumerate(("r%1", "r%11", "r%2")):
        create_run(ledger, run_on(name, name, at=at))
    assert ledger.run_ids("r%") == ("r%2", "r%11", "r%1")
    assert [ledger.run_ids(one) for one in ("r%1", "r%2", "_", "%")] == [("r%1",), ("r%2",), (), ()]


def test_a_run_never_overwrites_another_one_with_its_id(ledger: Ledger) -> None:
    ledger.put_plan(PLAN)
    first = run_on("7f3a-1", "a")
    create_run(ledger, first)
    with pytest.raises(RunIdTaken):
        ledger.apply_plan(PLAN.hash, run_on("7f3a-1", "b"), now=10.0)
    assert (ledger.run("7f3a-1"), ledger.plan(PLAN.hash)) == (first, PLAN)


def test_a_failed_run_is_listed_until_somebody_acknowledges_it_or_it_is_tried_again(ledger: Ledger) -> None:
    for name in ("r1", "r2"):
        create_run(ledger, run_on(name, name))
        ledger.put_run_state(name, "failed", ended_at=20.0)
    assert [run.id for run in ledger.failed_runs()] == ["r1", "r2"]
    ledger.acknowledge_run("r1", "bob")
    ledger.acknowledge_run("r1", "eve")
    assert [run.id for run in ledger.failed_runs()] == ["r2"]
    seen = ledger.run("r1")
    assert seen is not None and seen.acknowledged_by == "bob"
    ledger.put_run_state("r1", "running")
    ledger.put_run_state("r1", "failed", ended_at=30.0)
    assert [run.id for run in ledger.failed_runs()] == ["r1", "r2"], "it has failed anew"


def test_acts_on_tables_are_counted_and_the_last_is_named(ledger: Ledger) -> None:
    ledger.put_plan(PLAN)
    ledger.apply_plan(PLAN.hash, run_on("r1", "a", "b"), now=10.0)
    assert ledger.table_serials() == {"a": 1, "b": 1}
    assert ledger.table_acts()[TableName("a")].what == "run r1 of ana"
