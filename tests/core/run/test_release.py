"""Reports on releases: the state in each situation of a run, the pairs, and the rollback or why it is impossible."""

from dataclasses import replace
from typing import Any

import pytest
from ledger_rows import deployment_row, run_row

from core.model.names import TableName as T
from core.observed.versions import Binding, Deployment, Measurement
from core.plan.model import Plan, PlanNode
from core.run.model import step_word
from core.run.records import MigrationTicket, RunRow, StepRow
from core.run.release import Release, ReleaseState, Seconds, open_tickets, release_of
from tests.support.domain_builders import deployed, plan, project

NOW = 1000.0
SHOP = project(src="", a="src", b="a")
WORLD = {T("src"): deployed(SHOP.tables[T("src")])} | {T(n): deployed(SHOP.tables[T(n)]) for n in "ab"}
HELD = plan(SHOP, WORLD, "a", "b", rebuild=True, hold=True)


def run(made: Plan = HELD, *, before: str = "", state: str = "running", **states: str) -> RunRow:
    """Return a run in which everything before the first `before` is done; `states` overrides by kind of step."""
    steps, open_ = [], False
    for step in made.steps:
        open_ = open_ or step.do == before
        known = states.get(step.do.value, "waits" if open_ else "done")
        at = 500.0 if known in ("gate", "running") else None
        ended = 600.0 if known == "done" else None
        steps.append(
            StepRow(step.n, step.do, step.table, step.version, known, note="said", started_at=at, ended_at=ended)
        )
    over = None if state in ("running", "paused") else 700.0
    return run_row(made.hash, id="7f3a-1", state=state, started_at=100.0, ended_at=over, steps=tuple(steps))


def versions(serves: int = 1, **old: Any) -> list[Deployment]:
    """Return both versions of a and b; `old` overrides fields of the old ones, which keep running."""
    found = []
    for table, parent in (("a", "src"), ("b", "a")):
        for version in (1, 2):
            bound = Binding(T(parent), version if parent == "a" else 0, True)
            by = {"served_by": "7f3a-1", "served_before": 1} if version == 2 else {"served_by": "0-0"}
            row = deployment_row(table, version=version, active=version == serves, bindings=(bound,), **by)
            found.append(replace(row, **old) if version == 1 else row)
    return found


def told(row: RunRow, known: list[Deployment] | None = None, **more: Any) -> Release:
    found = release_of(more.pop("made", HELD), row, versions() if known is None else known, (), now=NOW, **more)
    assert found is not None
    return found


AFTER = {"swap": "done"}


@pytest.mark.parametrize(
    ("row", "serves", "old", "state"),
    [
        (run(before="create"), 1, {}, "preparing"),
        (run(before="create", create="running"), 1, {}, "preparing"),
        (run(before="catch_up", start="gate"), 1, {}, "hydrating"),
        (run(before="catch_up", catch_up="gate"), 1, {}, "hydrating"),
        (run(before="catch_up", catch_up="gate", state="paused"), 1, {}, "hydrating"),
        (run(before="catch_up", catch_up="gate", validate="gate"), 1, {}, "hydrating"),
        (run(before="validate", validate="gate"), 1, {}, "validating"),
        (run(before="hold"), 1, {}, "ready"),
        (run(before="hold", hold="gate"), 1, {}, "held"),
        (run(before="swap", swap="running"), 1, {}, "swapping"),
        (run(before="swap", swap="gate"), 1, {}, "swapping"),
        (run(before="stop", stop="running"), 2, {}, "retiring"),
        (run(state="done"), 2, {"wanted": "stopped", "state": "stopped"}, "done"),
        (run(state="done"), 2, {"stops_at": 2000.0}, "observing"),
        (run(state="done"), 2, {"stops_at": 900.0}, "done"),
        (run(state="done"), 1, {"served_by": "back"}, "rolled back"),
        (run(state="done"), 3, {}, "replaced"),
        (run(before="swap", state="cancelled", swap="cancelled"), 1, {}, "aborted"),
        (run(before="swap", state="failed", swap="failed"), 1, {}, "needs you"),
        (run(before="stop", state="failed", stop="failed"), 2, {}, "needs you"),
        (replace(run(before="swap", state="failed", swap="failed"), continued_by="9-9"), 1, {}, "aborted"),
    ],
)  # fmt: skip
def test_each_standing_of_a_run_has_a_name(row: RunRow, serves: int, old: dict[str, Any], state: str) -> None:
    found = told(row, versions(serves, **old))
    assert found.state == state
    open_ = ("preparing", "hydrating", "validating", "ready", "held", "swapping", "observing", "retiring", "needs you")
    assert found.is_open is (state in open_)


def test_a_release_is_rolled_back_since_what_was_there_before_serves_again() -> None:
    assert told(run(state="done"), versions(1, served_by="back", served_at=900.0)).since == 900.0


def test_a_release_is_never_shown_as_held_before_its_gates_are_open() -> None:
    assert told(run(before="catch_up", catch_up="gate", hold="waits")).state is ReleaseState.HYDRATING


def test_a_run_that_replaces_nothing_is_no_release() -> None:
    first = plan(SHOP, {T("src"): WORLD[T("src")]}, "a")
    assert release_of(first, run(first), (), (), now=NOW) is None


def test_a_pair_shows_both_versions_with_their_figures_and_bottlenecks() -> None:
    slow = {"addBatch": 90, "getBatch": 600, "walCommit": 10}
    new = Measurement(T("a"), 2, NOW, lag_rows=900, trend="draining", eta_s=8.0, in_rows_s=5.0, durations=slow)
    old = Measurement(T("a"), 1, NOW, lag_files=0, trend="idle")
    found = release_of(HELD, run(before="catch_up", catch_up="gate"), versions(), (old, new), now=NOW)
    assert found is not None
    (a, b) = found.pairs
    assert (a.old.version, a.old.figures.lag_files, a.old.figures.trend, a.serves) == (1, 0, "idle", 1)
    assert (a.new.version, a.new.figures.lag_rows, a.new.figures.eta_s, a.new.slowest) == (2, 900, 8.0, "reading")
    assert (a.gate, a.note) == ("gate", "said") and (b.new.figures.trend, b.new.slowest) == ("", "")


def test_the_time_left_excludes_the_wait_for_a_confirmation() -> None:
    row = run(before="hold", hold="gate")
    steps = tuple(
        replace(s, predicted_low_s=0.0 if s.do == "hold" else 2.0, predicted_high_s=0.0 if s.do == "hold" else 3.0)
        for s in row.steps
    )
    assert told(replace(row, steps=steps)).left == Seconds(6.0, 9.0), "a swap and two stops"
    assert told(replace(row, steps=steps, state="done", ended_at=NOW)).left is None


@pytest.mark.parametrize(
    ("serves", "old", "blocked"),
    [
        (2, {}, None),
        (2, {"wanted": "stopped", "state": "stopped"}, None),
        (2, {"drop_after": 9.0, "state": "absent"}, "a v1: it is deleted; b v1: it is deleted"),
        (
            2,
            {"checkpoint_ok": False},
            "a v1: its checkpoint or its table is lost; b v1: its checkpoint or its table is lost",
        ),
        (2, {"state": "failed"}, "a v1: it has failed; b v1: it has failed"),
        (1, {"served_by": "back"}, "the versions that it swapped in no longer serve"),
    ],
)
def test_the_rollback_is_a_command_or_a_reason(serves: int, old: dict[str, Any], blocked: str | None) -> None:
    found = told(run(state="done"), versions(serves, **old))
    assert found.blocked == blocked and found.rollback == ("" if blocked else "headgate rollback 7f3a-1")


def test_a_version_over_a_table_that_nothing_fills_cannot_be_rolled_back_to() -> None:
    known = [
        d if (d.table, d.version) != (T("b"), 1) else replace(d, bindings=(Binding(T("x"), 4, True),))
        for d in versions(2)
    ]
    assert told(run(state="done"), known).blocked == "b v1: it reads x__v4, which no longer receives rows"
    filled = [*known, deployment_row("x", version=4, active=False)]
    assert told(run(state="done"), filled).rollback


def test_a_rollback_takes_seconds_while_all_that_was_replaced_runs() -> None:
    both = versions(2, stops_at=1500.0)
    assert told(run(state="done"), both).old_until == 1500.0
    one = [replace(d, wanted="stopped", state="stopped") if (d.table, d.version) == (T("b"), 1) else d for d in both]
    assert told(run(state="done"), one).old_until is None
    assert told(run(before="swap"), both).old_until is None, "nothing is replaced yet"
    assert told(run(state="done"), versions(2, stops_at=900.0)).old_until is None, "it runs on only while it is read"


def test_a_rollback_is_shown_as_rolling_back_until_it_is_done() -> None:
    forward = replace(HELD, request=replace(HELD.request, verb="rollback"))
    nodes = tuple(replace(node, version=1, from_version=2) for node in HELD.nodes if node.version)
    back = replace(forward, nodes=nodes)
    goes_back = run(before="catch_up", catch_up="gate")
    later = replace(
        goes_back, steps=tuple(replace(step, started_at=step.started_at and 900.0) for step in goes_back.steps)
    )
    for one in (goes_back, later):
        found = told(one, made=back)
        assert (found.state, found.since) == (ReleaseState.ROLLING_BACK, one.started_at), "not since its last gate"
    assert told(run(before="catch_up", catch_up="gate"), made=forward).state is ReleaseState.HYDRATING, "to newer ones"
    assert told(run(before="swap", swap="running"), versions(2), made=back).state is ReleaseState.SWAPPING
    assert told(run(state="done"), versions(2, wanted="stopped"), made=forward).state is ReleaseState.DONE


def begun_swap(row: RunRow) -> RunRow:
    return replace(row, steps=tuple(replace(s, tries=1) if s.do == "swap" else s for s in row.steps))


@pytest.mark.parametrize("verb", ["deploy", "rollback"])
def test_a_swap_resumed_by_a_new_agent_is_shown_as_swapping(verb: str) -> None:
    made = replace(HELD, request=replace(HELD.request, verb=verb))
    found = told(begun_swap(run(before="swap")), made=made)
    assert (found.state, found.note) == (ReleaseState.SWAPPING, "said")
    assert found.blocked == "the swap is not complete"


def test_a_run_that_is_cancelled_after_its_swap_was_recorded_has_swapped() -> None:
    row = begun_swap(run(before="swap", state="cancelled", swap="cancelled", stop="cancelled"))
    found = told(row, versions(2))
    assert (found.state, found.rollback) == (ReleaseState.DONE, "headgate rollback 7f3a-1")
    assert told(row, versions(1)).state is ReleaseState.ABORTED


def test_a_gate_that_has_opened_knows_when() -> None:
    assert told(run(before="catch_up", catch_up="gate")).pairs[0].gate_at is None
    assert told(run(before="swap")).pairs[0].gate_at == 600.0


def ticket(reader: str, **known: Any) -> MigrationTicket:
    every: dict[str, Any] = {"product": "crm", "owner": "", "is_statement": False, "old": "a__v1", "new": "a__v2"}
    row = MigrationTicket("7f3a-1", T("a"), reader, cut_batch=4, cut_at=1.0, deadline=2.0, **(every | known))
    return row


def test_a_ticket_is_open_for_as_long_as_its_reader_reads_what_was_replaced() -> None:
    reader = deployment_row("crm", bindings=(Binding(T("a"), 1, True),))
    both = [ticket("crm", is_statement=True), ticket("BI"), ticket("done", closed_at=3.0)]
    assert [one.reader for one in open_tickets(both, [*versions(2), reader])] == ["crm", "BI"]
    moved = replace(reader, bindings=(Binding(T("a"), 2, True),))
    assert [one.reader for one in open_tickets(both, [*versions(2), moved])] == ["BI"]
    rested = replace(reader, wanted="stopped", state="stopped")
    assert [one.reader for one in open_tickets(both, [*versions(2), rested])] == ["crm", "BI"], "it would go on over it"
    assert open_tickets(both, [*versions(1), reader]) == (), "what it reads serves again"
    assert open_tickets(both, [*versions(2, drop_after=9.0), reader]) == (), "there is nothing left to read"
    assert [one.reader for one in told(run(state="done"), [*versions(2), reader], tickets=both).tickets] == [
        "crm",
        "BI",
    ]


def test_a_rollback_that_has_not_swapped_names_the_command_that_ends_it() -> None:
    back = replace(HELD, request=replace(HELD.request, verb="rollback"), nodes=tuple(map(_turned, HELD.nodes)))
    found = told(run(back, before="catch_up", catch_up="gate"), made=back)
    assert found.state is ReleaseState.ROLLING_BACK and found.rollback == ""
    words = "it is a rollback itself, and no pointer has moved yet; headgate runs cancel 7f3a-1 ends it"
    assert found.blocked == words


def _turned(node: PlanNode) -> PlanNode:
    return replace(node, from_version=node.version, version=node.from_version)


def test_a_release_that_is_being_taken_back_offers_no_second_rollback() -> None:
    swapped = run(state="done", **AFTER)
    assert told(swapped, versions(serves=2)).rollback == "headgate rollback 7f3a-1"
    found = told(swapped, versions(serves=2), rolled_back_by="9c0d-1")
    assert (found.rollback, found.blocked) == ("", "run 9c0d-1 is rolling it back")


def test_a_step_that_waits_for_its_gate_is_shown_as_running() -> None:
    assert [step_word(state) for state in ("gate", "running", "waits", "done")] == [
        "running",
        "running",
        "waits",
        "done",
    ]


def test_a_comparison_that_compared_nothing_is_not_reported_as_a_comparison() -> None:
    row = run(before="hold", hold="gate")
    assert {pair.checks for pair in told(row).pairs} == {"done"}
    why = "rows were not compared: the files of a@v1 are not its rows"
    steps = tuple(replace(s, note=why) if (s.do, s.table) == ("validate", "a") else s for s in row.steps)
    first, second = told(replace(row, steps=steps), uncompared=("a",)).pairs
    assert (first.checks, first.found, second.checks) == ("", why, "done")
