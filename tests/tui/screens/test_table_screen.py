"""Rows under the cursor: the selection stays, a vanished row is never acted on, and late data does not interfere."""

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from threading import Event

import pytest

from core.model.errors import HeadgateError
from core.model.problems import Problem, Where
from core.run.records import RunRow
from state.row_types import AuditRow
from tests.terminal.in_memory_backend import FakeBackend
from tests.terminal.pizzeria_values import NOW
from tests.tui.console_harness import Console, in_console
from tui.presentation.screen_content.changes import ChangeRow
from tui.screens.backend import ProjectView


async def filtered(console: Console, text: str) -> None:
    """Filter the tree."""
    await console.press("/")
    await console.type(text)
    await console.press("enter")


def test_a_row_that_leaves_the_filter_under_an_open_dialog_stays_where_it_is() -> None:
    async def scenario(console: Console) -> None:
        await filtered(console, "lag>1k")
        assert console.screen.table.choose("oven_load")
        await console.press("T")
        before = list(console.screen.table.ids)
        for lag in (0, 1, 2):
            console.backend.change("oven_load", lag_rows=lag)
            console.backend.change("orders_paid", lag_rows=lag)
            await console.show_ledger()
            assert list(console.screen.table.ids) == before
        assert "oven_load" in console.text()
        await console.press("escape")
        console.pass_time(1.0)
        await console.show_ledger()
        assert "oven_load" not in console.screen.table.ids

    in_console(scenario)


def test_a_ghost_stays_as_long_as_a_dialog_is_open() -> None:
    async def scenario(console: Console) -> None:
        console.screen.table.choose("menu_sales")
        console.backend.drop("payments")
        await console.show_ledger()
        await console.press("T")
        before = list(console.screen.table.ids)
        assert "payments" in before
        console.pass_time(60.0)
        await console.show_ledger()
        assert list(console.screen.table.ids) == before

    in_console(scenario)


def test_a_second_removed_version_also_leaves_a_ghost_row() -> None:
    backend = FakeBackend()
    row = next(one for one in backend.current.statements if one.table == "till")
    beside = row._replace(version=2, active=False)
    alone = backend.current
    backend.current = replace(alone, statements=(*alone.statements, beside))

    async def scenario(console: Console) -> None:
        assert console.screen.table.choose("till@v2")
        console.backend.current = alone
        console.pass_time(1.0)
        await console.show_ledger()
        assert "till@v2" in console.screen.table.ids
        await console.press("D")
        assert "was deleted" in console.status()
        assert console.backend.calls == []

    in_console(scenario, backend=backend)


@pytest.mark.parametrize("size", [(80, 24), (200, 60)])
def test_a_row_that_vanished_behind_another_screen_leaves_no_ghost(size: tuple[int, int]) -> None:
    backend = FakeBackend()
    row = next(one for one in backend.current.statements if one.table == "till")
    alone = backend.current
    backend.current = replace(alone, statements=(*alone.statements, row._replace(version=2, active=False)))

    async def scenario(console: Console) -> None:
        assert console.screen.table.choose("till@v2")
        assert "v2 coming" in console.text()
        console.app.tab.open_screen("run", run_id="9f2c")
        await console.until(lambda: "RUN 9f2c" in console.text(), "the run")
        console.backend.current = alone
        await console.ledger_arrives()
        await console.press("q")
        assert console.screen.table.cursor_id == "till"
        assert "till@v2" not in console.screen.table.ids and "v2 coming" not in console.text()

    in_console(scenario, backend=backend, size=size)


def test_the_cursor_on_a_removed_version_moves_to_the_row_of_its_own_table() -> None:
    """The version's row is followed by a row of another table, which takes its position."""
    backend = FakeBackend()
    alone = backend.current
    others = tuple(one._replace(version=one.version + 7, active=False) for one in alone.statements if not one.external)
    backend.current = replace(alone, statements=(*alone.statements, *others))

    async def scenario(console: Console) -> None:
        ids = list(console.screen.table.ids)
        chosen = next(one for one, after in pairwise(ids) if "@v" in one and "@v" not in after)
        table = chosen.partition("@v")[0]
        assert console.screen.table.choose(chosen)
        console.backend.current = alone
        console.pass_time(1.0)
        await console.show_ledger()
        console.pass_time(60.0)
        await console.show_ledger()
        assert chosen not in console.screen.table.ids
        assert console.screen.table.cursor_id == table

    in_console(scenario, backend=backend)


def test_an_undeployed_table_is_no_longer_marked() -> None:
    async def scenario(console: Console) -> None:
        for table in ("till", "menu_sales"):
            assert console.screen.table.choose(table)
            await console.press("space")
        console.backend.drop("till")
        await console.ledger_arrives()
        assert console.app.state.marks == {"menu_sales"}

    in_console(scenario)


@pytest.mark.parametrize("key", ["T", "slash"])
def test_a_plan_that_arrives_late_does_not_open_over_a_dialog_or_an_input_line(key: str) -> None:
    planned = Event()

    class Slow(FakeBackend):
        def submit(self, actor: str) -> str:
            assert planned.wait(10.0)
            return super().submit(actor)

    async def scenario(console: Console) -> None:
        await console.press("p")
        await console.until(lambda: "rebuild + 1" in console.text(), "the changes")
        await console.press("enter")
        assert "planning what is staged" in console.status()
        await console.press("q")
        assert console.screen.table.choose("till")
        await console.press(key)
        planned.set()
        await console.until(lambda: "planning" not in (console.app.state.message or ("",))[0], "the plan")
        assert console.screen.screen_name == "home"
        assert console.app.state.message is not None and ":review 7f3a7f3a7f3a" in console.app.state.message.text

    in_console(scenario, backend=Slow())


def test_a_terminal_too_small_to_show_a_question_takes_no_answer_to_it() -> None:
    async def scenario(console: Console) -> None:
        assert console.screen.table.choose("till")
        await console.press("T")
        await console.pilot.resize_terminal(60, 20)
        await console.until(lambda: "needs 80x24" in console.text(), "the sentence")
        await console.type("yes")
        await console.press("enter")
        assert console.backend.calls == []
        await console.pilot.resize_terminal(80, 24)
        await console.until(lambda: "type yes and Enter" in console.text(), "the question again")

    in_console(scenario)


def test_a_frozen_screen_takes_nothing_until_it_is_let_go() -> None:
    class Failing(FakeBackend):
        words = ""

        def detail(self, table: str):
            if self.words:
                raise HeadgateError(self.words)
            return super().detail(table)

    async def scenario(console: Console) -> None:
        console.app.tab.open_screen("detail", table="till")
        await console.until(lambda: "VERDICT" in console.text(), "the detail")
        await console.press(".")
        console.backend.words = "the ledger is gone"
        console.app.tab.read_now()
        await console.until(lambda: console.app.tab._fetched is not None, "what was read")
        assert "the ledger is gone" not in console.text()
        await console.press(".")
        await console.until(lambda: "the ledger is gone" in console.text(), "what was read meanwhile")

    in_console(scenario, backend=Failing())


def test_the_events_of_all_tables_and_of_a_branch_are_one_key_away() -> None:
    async def scenario(console: Console) -> None:
        await console.press(":")
        await console.type("events")
        await console.press("enter")
        await console.until(lambda: "the pool is up" in console.text(), "all events")
        for words in ("crm_orders v1", "running → stopped, stopped by alice", "running → failed", "CAST_INVALID_INPUT"):
            assert words in console.text()
        console.screen.table.choose("3")
        await console.press("enter")
        assert console.screen.screen_name == "detail"
        assert console.screen.path_and_counts()[0][-1].startswith("orders_paid")
        await console.press("q", "q")
        assert console.screen.table.choose("product:crm")
        await console.press("v")
        await console.until(lambda: "stopped by alice" in console.text(), "the branch's events")
        assert "orders_paid" not in console.text()

    in_console(scenario)


def test_a_wide_terminal_shows_events_and_commands_below_the_tree() -> None:
    async def scenario(console: Console) -> None:
        await console.until(lambda: "EVENTS AND COMMANDS" in console.text(), "the pane")
        assert "orders_paid v1: running → failed" in console.text()
        assert "stop crm_orders: done by alice" in console.text()

    in_console(scenario, size=(200, 60))


def test_staged_actions_are_logged_as_they_would_be_typed() -> None:
    backend = FakeBackend()
    stop = backend.current.commands[0]
    staged = replace(stop, id=3, op="stage", subject="till", line=":deploy till", at=NOW)
    backend.current = replace(backend.current, commands=(staged, stop))

    async def scenario(console: Console) -> None:
        await console.press("m")
        await console.until(lambda: ":deploy till" in console.text(), "the log")
        assert "`headgate plan deploy till` plans the same directly" in " ".join(console.text().split())

    in_console(scenario, backend=backend)


def test_on_a_wide_terminal_the_text_is_beside_the_rows() -> None:
    async def scenario(console: Console) -> None:
        wanted = {
            "review": ({"plan_hash": "7f3a"}, "^order_items", "AND vat IS NOT NULL"),
            "run": ({"run_id": "9f2c"}, "1 create", "lag 81k → 12k, 18 s left"),
            "changes": ({}, "menu_sales", "30 seconds"),
        }
        for name, (arguments, row, text) in wanted.items():
            console.app.tab.open_screen(name, **arguments)
            await console.until(lambda text=text: text in console.text(), f"{name}: {text}")
            table, pane = console.screen.table.region, console.screen.pane.region
            assert table.y == pane.y
            assert pane.x > table.x + table.width
            assert any(row in line[: table.width] for line in console.text().splitlines())
            console.app.tab.go_back()
            await console.pilot.pause()

    in_console(scenario, size=(200, 60))


def test_files_that_cannot_be_read_are_not_said_to_be_what_is_deployed() -> None:
    class Unreadable(FakeBackend):
        def project(self) -> ProjectView:
            return ProjectView(missing="the project has 1 problem")

    async def scenario(console: Console) -> None:
        await console.press("p")
        await console.until(lambda: "the project has 1 problem" in console.text(), "the changes")
        assert "the files match what is deployed" not in console.text()
        assert "not compared" in console.text()

    in_console(scenario, backend=Unreadable())


def test_problems_of_some_files_are_listed_below_the_tables_that_differ() -> None:
    class Partly(FakeBackend):
        def project(self) -> ProjectView:
            self.problems_in_files = 1
            mine, stray = (Problem("no SELECT", "write one", Where(path, 1)) for path in ("dml.menu.sql", "dml.x.sql"))
            broken = ChangeRow("menu", "1 problem in its files", "refused", problems=(mine,))
            return ProjectView((broken,), (mine, stray))

    async def scenario(console: Console) -> None:
        await console.press("p")
        await console.until(lambda: "1 problem in its files" in console.text(), "the changes")
        listed = console.lines(console.screen.pane)
        assert (listed.count("dml.menu.sql:1: no SELECT"), listed.count("dml.x.sql:1: no SELECT")) == (1, 1)
        assert listed.count("write one") == 2
        await console.until(lambda: "1 problem in files" in console.lines(console.screen.banner), "the banner")
        await console.press("escape")
        assert "oven_load" in console.text(), "live statements are listed whatever the files say"

    in_console(scenario, backend=Partly(), size=(120, 40))


def test_a_problem_keeps_its_file_and_line_however_long_the_path() -> None:
    path = f"pipelines/facts/{'a_product_with_a_long_name/' * 3}sql-scripts/dml.oven_load.sql"

    class Invalid(FakeBackend):
        def project(self) -> ProjectView:
            problem = Problem("a column is misspelt", "correct it", Where(path, 17, 3))
            return ProjectView(problems=(problem,) * 25, missing="the project has 25 problems")

    async def scenario(console: Console) -> None:
        await console.press("p")
        await console.until(lambda: "the project has 25 problems" in console.text(), "the problems")
        assert f"{path}:17:3:acolumnismisspelt" in re.sub(r"\s", "", console.text())
        assert " 5 more problems: headgate plan lists all" in console.lines(console.screen.pane)

    in_console(scenario, backend=Invalid())


def test_files_that_match_are_not_also_called_nothing() -> None:
    class Equal(FakeBackend):
        def project(self) -> ProjectView:
            return ProjectView()

    async def scenario(console: Console) -> None:
        console.backend.current = replace(console.backend.current, staged=())
        await console.ledger_arrives()
        await console.press("p")
        await console.until(lambda: "the files match what is deployed" in console.text(), "the changes")
        assert "nothing here yet" not in console.text()

    in_console(scenario, backend=Equal())


@pytest.mark.parametrize("size", [(80, 24), (200, 60)])
def test_changes_are_not_counted_before_the_project_is_read(size: tuple[int, int]) -> None:
    read = Event()

    class Slow(FakeBackend):
        def project(self) -> ProjectView:
            read.wait(10)
            return super().project()

    async def scenario(console: Console) -> None:
        await console.press("p")
        await console.until(lambda: "reading the project" in console.text(), "the screen")
        told = console.text()
        read.set()
        assert "difference" not in told and "nothing here yet" not in told
        await console.until(lambda: "difference" in console.text(), "the counts")

    in_console(scenario, backend=Slow(), size=size)


@pytest.mark.parametrize("list_of", ["runs", "audit"])
def test_no_list_is_called_empty_before_it_is_read_or_while_a_filter_hides_its_rows(list_of: str) -> None:
    read = Event()

    class Slow(FakeBackend):
        def runs(self) -> Sequence[RunRow]:
            read.wait(10)
            return super().runs()

        def audits(self) -> Sequence[AuditRow]:
            read.wait(10)
            return super().audits()

    async def scenario(console: Console) -> None:
        await console.press(":")
        await console.type(list_of)
        await console.press("enter")
        await console.until(lambda: "reading" in console.text(), "the screen")
        told = console.text()
        read.set()
        assert "nothing here yet" not in told and "0 of 0" not in told
        await console.until(lambda: re.search(r" [1-9]\d* of ", console.text()), "the rows")
        await filtered(console, "qqq")
        await console.until(lambda: "nothing matches /qqq" in console.text(), "the filter")

    in_console(scenario, backend=Slow())
