"""The command `release`: what it lists and shows, and the confirmation it sends."""

import json
from dataclasses import replace
from typing import Any

import pytest
from command_line import written
from ledger_rows import deployment_row, external_row, plan_row, run_row

from core.model.errors import Refused
from core.model.names import TableName as T
from core.observed.versions import Binding
from core.plan.model import Plan
from core.plan.request import PlanRequest
from core.planner.planner import make_plan
from core.run.records import MigrationTicket, StepRow
from state.planner_input_from_registry import observe
from tui.command_line import exit_codes
from tui.project_folder.project_folder_reader import ProjectReader


@pytest.fixture
def held(ledger: Any, place: Any) -> str:
    """A run that rebuilds a, whose new version has caught up and waits for confirmation; returns its id."""
    reads = {"a": (Binding(T("landed"), 0, True),), "b": (Binding(T("a"), 1, True),)}
    rows = {name: deployment_row(name, bindings=bound) for name, bound in reads.items()}
    for row in (external_row("landed"), *rows.values()):
        ledger.put_deployment(row)
    project = ProjectReader(place, {}).read().project
    request = PlanRequest(tables=(T("a"),), rebuild=True, hold=True, children="all")
    made: Plan = make_plan(project, "dev", observe(ledger.deployments()), request)
    assert not made.refusals
    ledger.put_plan(plan_row(made))
    for name, row in rows.items():
        bound = reads["a"] if name == "a" else (Binding(T("a"), 2, True),)
        ledger.put_deployment(replace(row, version=2, active=False, bindings=bound))
    at = [step.do for step in made.steps].index("hold")  # type: ignore[arg-type]  # A word of the list.
    states = ["done"] * at + ["gate"] + ["waits"] * (len(made.steps) - at - 1)
    steps = tuple(
        StepRow(s.n, s.do, s.table, s.version, state, started_at=5.0 if state == "gate" else None)
        for s, state in zip(made.steps, states, strict=True)
    )
    run = run_row(made.hash, id="7f3a-1", steps=steps)
    ledger.apply_plan(made.hash, run, now=2.0)
    return run.id


def said(line: list[str], capsys: pytest.CaptureFixture[str], code: int = 0) -> tuple[str, str]:
    assert exit_codes.run_command_line(line) == code
    found = capsys.readouterr()
    return found.out, found.err


def test_a_held_release_is_listed_and_shown_with_the_command_that_it_waits_for(
    held: str, agent: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    out, _ = said(["release"], capsys)
    assert out.splitlines()[0].startswith(f"{held}  held since ") and "no rollback: nothing has been swapped" in out
    assert said(["release", "list"], capsys)[0] == out
    out, _ = said(["release", "show", held], capsys)
    assert f"headgate release swap {held} moves the pointers." in out
    found = written(["release", "show", held], capsys)
    assert (found["format"], found["release"]["state"]) == ("headgate.release/1", "held")
    assert [(pair["table"], pair["serves"]) for pair in found["release"]["pairs"]] == [("a", 1), ("b", 1)]
    assert [one["run"] for one in written(["release"], capsys)["releases"]] == [held]


def test_the_steps_of_a_release_and_of_its_plan_are_listed_on_request(
    held: str, ledger: Any, agent: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    out, _ = said(["release", "show", held, "--steps"], capsys)
    steps = out[out.index("#  STEP") :].splitlines()[1:]
    run = ledger.run(held)
    assert len(steps) == len(run.steps) and any("hold" in line and "running" in line for line in steps)
    assert "  STEP" not in said(["release", "show", held], capsys)[0]
    assert [step["n"] for step in written(["release", "show", held], capsys)["steps"]] == [s.n for s in run.steps]
    out, _ = said(["review", run.plan_hash], capsys)
    assert len(out.partition("\nsteps\n")[2].splitlines()) == len(run.steps)


def test_a_release_without_a_comparison_says_so(held: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert said(["release", "diff", held, "a"], capsys) == ("", f"run {held} has compared no rows of a so far\n")
    assert "has no step for zz" in said(["release", "diff", held, "zz"], capsys, 2)[1]


def test_without_an_agent_a_release_that_has_not_swapped_is_halted(
    held: str, ledger: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    out, _ = said(["release"], capsys)
    assert out.startswith(f"{held}  halted since ") and f"No agent is running: headgate up continues run {held}." in out
    found = written(["release", "show", held], capsys)
    states = {step["state"] for step in found["steps"]}
    assert (found["release"]["state"], states) == ("halted", {"done", "halted", "waits"})
    ledger.put_agent(None, None)
    assert [one["state"] for one in written(["health"], capsys)["releases"]] == ["halted"]


def test_health_names_what_is_held(held: str, agent: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert f"run {held}: Held since" in said(["health"], capsys)[0]
    (one,) = written(["health"], capsys)["releases"]
    assert (one["run"], one["state"]) == (held, "held")


def test_a_swap_is_confirmed_with_environment_and_run(
    held: str, agent: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    out, err = said(["release", "swap", held], capsys, 3)
    assert out == "" and "this needs the confirmation 'dev 7f3a'" in err and not agent.heard
    agent.script["run"] = {"run": held, "act": "swap"}
    said(["release", "swap", held, "--confirm", "dev 7f3a", "--detach"], capsys)
    (request,) = agent.heard
    assert (request["op"], request["args"], request["confirm"]) == ("run", {"id": held, "act": "swap"}, "dev 7f3a")
    assert request["line"].startswith(f"headgate release swap {held} --confirm 'dev 7f3a' --project ")


def test_following_a_run_ends_when_it_is_held(held: str, agent: Any, capsys: pytest.CaptureFixture[str]) -> None:
    out, err = said(["runs", held, "--follow"], capsys)
    assert f"run {held} is held" in err and f"headgate release swap {held}" in err and held in out


def test_a_run_that_is_no_release_is_refused_and_an_unknown_run_is_a_usage_error(
    held: str, ledger: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "there is no run 'x'" in said(["release", "show", "x"], capsys, 2)[1]
    _, err = said(["release", "rollback", held], capsys, 3)
    assert "run 7f3a-1 has not swapped in any version" in err and "headgate runs cancel 7f3a-1 ends it" in err
    assert "sway" in said(["release", "sway"], capsys, 2)[1]


def test_open_tickets_are_listed_below_a_release(held: str, ledger: Any, capsys: pytest.CaptureFixture[str]) -> None:
    ledger.activate({T("a"): 2, T("b"): 2}, by=held, at=5.0)
    ledger.open_tickets([MigrationTicket(held, T("a"), "BI", "", "ana", False, "a__v1", "a__v2", 41, 5.0, 9e9)])
    out, _ = said(["release", "show", held], capsys)
    assert "ticket    BI (ana) reads a__v1: move to a__v2, cut at batch 41" in out
    assert json.dumps(written(["release", "show", held], capsys)["release"]["tickets"]).count("BI") == 1


def test_an_overdue_ticket_is_in_the_list_and_in_health_until_it_is_closed(
    held: str, ledger: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger.activate({T("a"): 2, T("b"): 2}, by=held, at=5.0)
    ledger.open_tickets([MigrationTicket(held, T("a"), "BI", "", "ana", False, "a__v1", "a__v2", 41, 5.0, 6.0)])
    for line in (["release"], ["release", "show", held], ["health"]):
        out = said(line, capsys)[0]
        assert "BI (ana) reads a__v1: move to a__v2" in out and "(overdue)" in out, line
    (found,) = written(["health"], capsys)["overdue_tickets"]
    assert (found["run"], found["reader"], found["deadline"]) == (held, "BI", 6.0)
    ledger.close_ticket(held, "BI", by="ana", at=7.0)
    assert "overdue" not in said(["release"], capsys)[0] + said(["health"], capsys)[0]
    assert written(["health"], capsys)["overdue_tickets"] == []


def test_a_ticket_is_closed_through_the_agent(held: str, agent: Any, capsys: pytest.CaptureFixture[str]) -> None:
    agent.script["close_ticket"] = {"run": held, "reader": "BI", "closed": 1}
    assert "the ticket of BI is closed" in said(["release", "close", held, "BI"], capsys)[1]
    (request,) = agent.heard
    assert (request["op"], request["args"]) == ("close_ticket", {"id": held, "reader": "BI"})
    answer = {"project": "shop", "environment": "dev", "run": held, "reader": "BI", "act": "close"}
    assert written(["release", "close", held, "BI"], capsys) == answer


def test_a_retirement_of_a_run_is_a_plan_of_its_tables(
    held: str, ledger: Any, agent: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger.activate({T("a"): 2, T("b"): 2}, by=held, at=5.0)
    out, _ = said(["plan", "retire", held, "--offline"], capsys)
    assert "retire v1" in out and "retire a b" in out
    found = written(["plan", "retire", "b", "--offline"], capsys)
    assert [(step["do"], step["table"], step["version"]) for step in found["steps"]] == [
        ("stop", "b", 1), ("tombstone", "b", 1),
    ]  # fmt: skip
    agent.script["submit_plan"] = {"confirm": "dev x"}
    assert "this needs the confirmation" in said(["release", "retire", held], capsys, 3)[1]


def test_without_any_release_the_command_says_so(ledger: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert said(["release"], capsys) == ("", "no run has replaced a version yet\n")


ACTS = ("show", "diff", "swap", "rollback", "retire", "close")


def refused(line: list[str], capsys: pytest.CaptureFixture[str], code: int) -> str:
    """Run a command for people and for programs; return the sentence and remedy that both show."""
    out, err = said(line, capsys, code)
    assert out == "" and "Traceback" not in err
    words = err[err.index("headgate: ") :].rstrip("\n")
    error = json.loads(said(["--json", *line], capsys, code)[0])["error"]
    assert words == f"headgate: {error['summary']}\n  {error['remedy']}" and "\n" not in error["summary"]
    return words


def with_reader(act: str, run: str, *more: str) -> list[str]:
    return ["release", act, run, *(("BI",) if act == "close" else ()), *more]


@pytest.mark.parametrize("act", ACTS)
def test_a_wrong_name_is_a_bad_command_in_one_sentence(act: str, held: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert ("overlays no other" if act == "diff" else "required: RUN") in refused(["release", act], capsys, 2)
    assert "there is no run 'x'" in refused(with_reader(act, "x"), capsys, 2)
    if act != "diff":
        assert "a is a table: a release is named by its run" in refused(with_reader(act, "a"), capsys, 2)


@pytest.mark.parametrize("act", ACTS)
def test_without_statements_each_action_says_so(act: str, ledger: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert "there is no run '7f3a-1'" in refused(with_reader(act, "7f3a-1"), capsys, 2)


@pytest.mark.parametrize("act", ["list", *ACTS])
def test_before_any_start_each_action_says_so(act: str, place: Any, capsys: pytest.CaptureFixture[str]) -> None:
    line = ["release", act] if act == "list" else with_reader(act, "7f3a-1")
    assert "has never been started on this machine" in refused(line, capsys, 4)


def test_without_an_agent_a_swap_and_a_close_are_refused(held: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "no agent is running" in refused(["release", "swap", held, "--confirm", "dev 7f3a"], capsys, 4)
    assert "no agent is running" in refused(["release", "close", held, "BI"], capsys, 4)


@pytest.mark.parametrize("act", ["rollback", "retire"])
def test_beside_another_run_the_reason_of_the_agent_is_shown(
    act: str, held: str, ledger: Any, agent: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger.activate({T("a"): 2, T("b"): 2}, by=held, at=5.0)
    agent.script["submit_plan"] = Refused("a is being changed by run 9f2c-1", remedy="headgate runs 9f2c-1 --follow")
    assert "a is being changed by run 9f2c-1" in refused(["release", act, held], capsys, 3)


def test_a_ticket_without_a_name_is_a_bad_command(held: str, agent: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert "a ticket is closed by its reader's name" in refused(["release", "close", held, " "], capsys, 2)
    assert not agent.heard


def test_a_run_without_a_comparison_is_not_said_to_compare_later(
    held: str, ledger: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    row = ledger.plan(ledger.run(held).plan_hash)
    ledger.put_plan(replace(row, hash="9f2c", status="open", run_id=""))
    ledger.apply_plan("9f2c", run_row("9f2c", id="9f2c-1"), now=3.0)
    assert said(["release", "diff", "9f2c-1"], capsys)[1] == "run 9f2c-1 compares no rows\n"


def test_a_release_being_rolled_back_offers_no_rollback(
    held: str, ledger: Any, place: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger.activate({T("a"): 2, T("b"): 2}, by=held, at=5.0)
    ledger.put_run_state(held, "done", ended_at=6.0)
    assert f"headgate rollback {held}" in said(["release", "show", held], capsys)[0]
    project = ProjectReader(place, {}).read().project
    back = make_plan(
        project, "dev", observe(ledger.deployments()), PlanRequest(verb="rollback", tables=(T("a"), T("b")))
    )
    assert not back.refusals
    ledger.put_plan(plan_row(back))
    steps = tuple(StepRow(s.n, s.do, s.table, s.version, "waits") for s in back.steps)
    ledger.apply_plan(back.hash, run_row(back.hash, id="9c0d-1", steps=steps), now=7.0)
    out, _ = said(["release", "show", held], capsys)
    assert "no rollback: run 9c0d-1 is rolling it back" in out and "headgate rollback" not in out
    assert "no rollback: it is a rollback itself" in said(["release", "show", "9c0d"], capsys)[0]
