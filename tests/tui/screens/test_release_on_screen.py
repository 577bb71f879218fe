"""Releases on screen: B stages a held one, W confirms it, O plans the rollback, and the banner names it."""

from dataclasses import replace
from typing import Any

import pytest

from core.model.names import TableName
from core.observed.versions import Measurement
from core.run.records import MigrationTicket
from core.run.release import Release, ReleasePair, ReleaseSide, ReleaseState
from state.ledger_snapshot import without_agent
from tests.terminal.in_memory_backend import FakeBackend
from tests.terminal.pizzeria_values import NOW
from tests.tui.console_harness import Console, in_console
from tui.presentation.styling.value_formatting import clock
from tui.screens.backend import RunView
from tui.screens.colon_commands import run_command

RUN = "9f2c" * 4


def release_of(state: str, **known: Any) -> Release:
    idle = Measurement(TableName("order_items"), 1, NOW, lag_rows=0, trend="idle")
    old = ReleaseSide(1, "running", runs=True, stops_at=None, figures=idle)
    new = replace(old, version=2, figures=replace(idle, lag_rows=4, trend="steady"))
    pairs = tuple(
        ReleasePair(TableName(name), old, new, 1, "done", "", "done", "equal in 6 checks", "")
        for name in ("order_items", "oven_load")
    )
    every: dict[str, Any] = dict(
        run=RUN, plan="7f3a" * 16, actor="alice", state=ReleaseState(state), since=NOW - 60, pairs=pairs, left=None,
        serves=False, note="", blocked="nothing has been swapped", old_until=None,
    )  # fmt: skip
    return Release(**(every | known))


class ReleasingBackend(FakeBackend):
    """A pizzeria with one release."""

    def __init__(self, release: Release, **known: Any) -> None:
        super().__init__(**known)
        self.release = release
        self.current = replace(self.current, releases=(release,))

    def run(self, run_id: str) -> RunView | None:
        found = super().run(run_id)
        return replace(found, release=self.release) if found else None


async def opened(console: Console) -> None:
    console.app.tab.open_screen("run", run_id=RUN)
    await console.until(lambda: "* serves" in console.text(), "the pairs")


@pytest.mark.parametrize("size", [(80, 24), (120, 36), (200, 60)])
def test_a_run_that_replaces_versions_shows_its_pairs_and_its_steps(size: tuple[int, int]) -> None:
    async def scenario(console: Console) -> None:
        await opened(console)
        said = console.text()
        assert "Held since" in said
        assert sum("v1*" in row and "v2" in row for row in said.splitlines()) == 2
        assert "catch up" in said and "W swap" in said

    in_console(scenario, size=size, backend=ReleasingBackend(release_of("held")))


def test_without_an_agent_run_and_release_are_halted_on_screen() -> None:
    backend = ReleasingBackend(release_of("hydrating"))

    async def scenario(console: Console) -> None:
        await opened(console)
        assert "hydrating since" in console.text() and "running" in console.text()
        backend.current = without_agent(backend.current)
        await console.ledger_arrives()
        said = console.text().partition("RUN")[2]
        assert "halted since" in said and "nothing continues until" in said
        assert not any("running" in row for row in said.splitlines() if "catch up" in row or "start" in row)
        console.app.tab.open_screen("runs")
        await console.until(lambda: "LASTED" in console.text() and "1 of 1" in console.text(), "the list")
        (row,) = (row for row in console.text().splitlines()[2:] if RUN[:10] in row)
        assert "halted" in row and f"run {RUN[:10]} halted" in console.text().splitlines()[0]

    in_console(scenario, size=(120, 36), backend=backend)


def test_a_cancel_and_a_stop_name_the_stopped_versions_and_the_waiting_runs() -> None:
    backend = ReleasingBackend(release_of("held"))
    found = backend.run(RUN)
    assert found is not None
    table = next(
        step.table for step in found.run.steps if step.table in {one.table for one in backend.current.statements}
    )
    lines = backend.current.statements
    rests = tuple(one._replace(wanted="stopped", state="stopped") if one.table == table else one for one in lines)
    backend.current = replace(backend.current, statements=rests, open_runs=(found.run,))

    async def scenario(console: Console) -> None:
        await opened(console)
        await console.press("C")
        said = " ".join(row.strip("│ ") for row in console.dialog().splitlines())
        assert f"{table} v1 serves and is stopped: headgate start {table} starts it." in said, said
        await console.press("escape")
        run_command(console.screen, f"stop {table}")  # type: ignore[arg-type]  # The screen of a run.
        await console.until(lambda: "STOP" in console.dialog(), "the question")
        said = " ".join(row.strip("│ ") for row in console.dialog().splitlines())
        assert f"run {found.run.id} needs {table}: it will fail; then headgate runs retry" in said, said

    in_console(scenario, backend=backend)


def test_a_version_is_stopped_by_its_name() -> None:
    backend = ReleasingBackend(release_of("held"))
    one = next(line for line in backend.current.statements if line.table == "order_items")
    new = one._replace(version=2, active=False)
    backend.current = replace(backend.current, statements=(*backend.current.statements, new))

    async def scenario(console: Console) -> None:
        run_command(console.screen, "stop order_items@v7")  # type: ignore[arg-type]  # The home screen.
        await console.until(lambda: "order_items@v7: not deployed here" in console.status(), "the refusal")
        run_command(console.screen, "stop order_items@v2")  # type: ignore[arg-type]  # The home screen.
        await console.until(lambda: "STOP order_items@v2" in console.dialog(), "the question")
        await console.type("yes")
        await console.press("enter")
        await console.until(lambda: bool(console.backend.calls), "the stop")
        assert console.backend.calls == [("stop", ("order_items@v2",), "yes")]

    in_console(scenario, backend=backend)


def test_enter_alone_keeps_it_held() -> None:
    async def scenario(console: Console) -> None:
        await opened(console)
        await console.press("W", "enter")
        assert console.screen.question.dialog is None and console.backend.calls == []

    in_console(scenario, backend=ReleasingBackend(release_of("held")))


def test_a_swap_is_confirmed_with_its_text() -> None:
    async def scenario(console: Console) -> None:
        await opened(console)
        await console.press("W")
        assert f"SWAP run {RUN[:10]} in pizzeria PROD protected" in console.dialog()
        assert "order_items v1 to v2" in console.dialog() and "headgate release swap" in console.dialog()
        await console.type("prod 9f2c")
        await console.press("enter")
        await console.until(lambda: bool(console.backend.calls), "the word")
        assert console.backend.calls == [("swap", RUN, "prod 9f2c")]

    in_console(scenario, protected=True, backend=ReleasingBackend(release_of("held"), protected=True))


@pytest.mark.parametrize(
    ("state", "key", "why"),
    [("hydrating", "W", "the run is not held before its swap"), ("held", "O", "nothing has been swapped")],
)
def test_impossible_actions_give_the_reason(state: str, key: str, why: str) -> None:
    async def scenario(console: Console) -> None:
        await opened(console)
        await console.press(key)
        assert why in console.status() and console.backend.calls == []

    in_console(scenario, backend=ReleasingBackend(release_of(state)))


@pytest.mark.parametrize("how", ["O", "rollback"])
def test_the_rollback_is_planned_and_reviewed(how: str) -> None:
    async def scenario(console: Console) -> None:
        await opened(console)
        if how == "O":
            await console.press("O")
        else:
            run_command(console.screen, how)  # type: ignore[arg-type]  # The screen of a run.
        await console.until(lambda: console.screen.screen_name == "review", "the review")
        assert console.backend.calls == [("rollback", RUN)]

    found = release_of("observing", serves=True, blocked="", old_until=NOW + 600)
    in_console(scenario, backend=ReleasingBackend(found))


@pytest.mark.parametrize(
    ("release", "said"),
    [
        (release_of("held"), f"run {RUN[:10]} held"),
        (
            release_of("observing", blocked="", old_until=NOW + 600),
            f"run {RUN[:10]} observing until {clock(NOW + 600)}",
        ),
    ],
)
def test_the_banner_names_what_is_open(release: Release, said: str) -> None:
    async def scenario(console: Console) -> None:
        assert said in console.text().splitlines()[0]

    in_console(scenario, size=(100, 24), backend=ReleasingBackend(release))


@pytest.mark.parametrize(
    ("serving", "beside", "pair", "said"),
    [
        (1, 2, (1, 2), "v2 coming"),
        (2, 1, (2, 1), "v1 coming back"),
        (1, 2, (2, 1), "v2 kept"),
        (2, 1, (1, 2), "v1 kept"),
        (2, 1, None, "v1 kept"),
    ],
)
def test_the_tree_says_why_a_version_runs_beside_the_serving_one(
    serving: int, beside: int, pair: tuple[int, int] | None, said: str
) -> None:
    release = release_of("hydrating")
    known = release.pairs[0]
    sides = [] if pair is None else [(replace(known.old, version=pair[0]), replace(known.new, version=pair[1]))]
    pairs = [replace(known, old=old, new=new) for old, new in sides]
    backend = ReleasingBackend(replace(release, pairs=tuple(pairs)))
    backend.change("order_items", version=serving)
    row = next(one for one in backend.current.statements if one.table == "order_items")
    beside_it = row._replace(version=beside, active=False)
    backend.current = replace(backend.current, statements=(*backend.current.statements, beside_it))

    async def scenario(console: Console) -> None:
        assert f" {said} " in console.text()

    in_console(scenario, backend=backend)


def test_b_stages_a_deploy_that_is_held() -> None:
    async def scenario(console: Console) -> None:
        assert console.screen.table.choose("oven_load")  # type: ignore[attr-defined]  # The tree has a table.
        await console.pilot.pause()
        await console.press("B")
        await console.until(lambda: bool(console.backend.calls), "the stage")
        assert console.backend.calls == [("stage", ("oven_load",), "hold")]

    in_console(scenario)


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("order_items", "order_items is deployed as declared, so there is no new version to hold"),
        ("landed_orders", "landed_orders is external"),
    ],
)
def test_b_stages_nothing_where_no_version_would_be_held(table: str, said: str) -> None:
    async def scenario(console: Console) -> None:
        assert console.screen.table.choose(table)  # type: ignore[attr-defined]  # The tree has a table.
        await console.pilot.pause()
        await console.press("B")
        await console.until(lambda: said in console.status(), "the refusal")
        assert console.backend.calls == []

    in_console(scenario, size=(160, 40))


@pytest.mark.parametrize(("deadline", "said"), [(NOW - 60, True), (NOW + 60, False)])
def test_the_first_line_of_every_screen_names_an_overdue_ticket(deadline: float, said: bool) -> None:
    ticket = MigrationTicket(RUN, TableName("till"), "BI", "", "", False, "till__v1", "till__v2", 4, 1.0, deadline)
    backend = FakeBackend()
    backend.current = replace(backend.current, tickets=(ticket,))

    async def scenario(console: Console) -> None:
        assert ("ticket of BI overdue" in console.text().splitlines()[0]) is said

    in_console(scenario, size=(100, 24), backend=backend)
