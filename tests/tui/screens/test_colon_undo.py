"""`:undo`, `:rollback` and `:undelete` review a plan; without an argument `:undo` uses the plan on screen."""

import pytest

from core.model.errors import Refused
from tests.terminal.in_memory_backend import FakeBackend
from tests.tui.console_harness import Console, in_console


async def typed(console: Console, text: str) -> None:
    """Run a `:` command at once, because typing it letter by letter would take until the data is stale."""
    console.app.tab.command(text)
    await console.pilot.pause()
    console.screen.redraw()
    await console.pilot.pause()


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("screen", "arguments", "text", "undone"),
    [
        ("audit", {}, "undo 7f3a", "7f3a"),
        ("audit", {}, "undo", ""),
        ("review", {"plan_hash": "7f3a" * 16}, "undo", "7f3a" * 16),
        ("run", {"run_id": "9f2c-1"}, "undo", "9f2c"),
        ("run", {"run_id": "9f2c-1"}, "undo 01c2", "01c2"),
        ("audit", {}, "rollback 9f2c-1", "9f2c-1"),
        ("audit", {}, "rollback a b", "a b"),
        ("audit", {}, "undelete a", "a"),
        ("audit", {}, "retire a", "a"),
        ("run", {"run_id": "9f2c-1"}, "retire", "9f2c"),
        ("audit", {}, "optimize a b", "a b"),
        ("audit", {}, "vacuum a", "a"),
        ("audit", {}, "vacuum a --retain 720", "a for 720"),
        ("audit", {}, "vacuum --retain 720 a b", "a b for 720"),
    ],
)
def test_undo_opens_the_review_of_a_plan(screen: str, arguments: dict[str, object], text: str, undone: str) -> None:
    async def scenario(console: Console) -> None:
        console.app.tab.open_screen(screen, **arguments)
        await console.pilot.pause()
        before = len(console.app.screen_stack)
        await typed(console, text)
        await console.until(lambda: len(console.app.screen_stack) > before, "another screen")
        assert console.screen.screen_name == "review"
        ((act, word),) = console.backend.calls
        assert act == text.split()[0] and str(word).startswith(undone)

    in_console(scenario)


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("plan oven_load", "oven_load"),
        ("plan a_new_table", "a_new_table"),
        ("plan face", ""),
        ("plan face b", "face b"),
    ],
)
def test_plan_takes_tables_or_a_hash(text: str, asked: str) -> None:
    async def scenario(console: Console) -> None:
        before = len(console.app.screen_stack)
        await typed(console, text)
        await console.until(lambda: len(console.app.screen_stack) > before, "the review")
        assert console.screen.screen_name == "review"
        assert console.backend.calls == ([("deploy", asked)] if asked else [])

    in_console(scenario)


def test_an_undelete_needs_names() -> None:
    async def scenario(console: Console) -> None:
        await typed(console, "undelete")
        assert "undelete: name tables: :undelete TABLE" in console.status() and not console.backend.calls

    in_console(scenario)


def test_a_vacuum_that_retains_needs_hours() -> None:
    async def scenario(console: Console) -> None:
        await typed(console, "vacuum a --retain")
        said = "vacuum: --retain needs hours: :vacuum TABLE --retain 168"
        assert said in console.status() and not console.backend.calls

    in_console(scenario)


def test_a_retirement_needs_names_where_no_run_is_shown() -> None:
    async def scenario(console: Console) -> None:
        console.app.tab.open_screen("audit")
        await console.pilot.pause()
        await typed(console, "retire")
        assert "retire: name tables: :retire TABLE" in console.status() and not console.backend.calls

    in_console(scenario)


@pytest.mark.parametrize(("screen", "text"), [("audit", "close 9f2c BI team"), ("run", "close BI team")])
def test_a_ticket_is_closed_by_a_command(screen: str, text: str) -> None:
    async def scenario(console: Console) -> None:
        console.app.tab.open_screen(screen, **({"run_id": "9f2c"} if screen == "run" else {}))
        await console.pilot.pause()
        await typed(console, text)
        await console.until(lambda: bool(console.backend.calls), "the close")
        ((act, run, reader),) = console.backend.calls
        assert (act, reader) == ("close", "BI team") and str(run).startswith("9f2c")
        await console.until(lambda: "the ticket of BI team is closed" in console.status(), "the answer")

    in_console(scenario)


def test_a_ticket_without_a_reader_is_not_closed() -> None:
    async def scenario(console: Console) -> None:
        await typed(console, "close 9f2c")
        assert "close: name run and reader: :close RUN READER" in console.status() and not console.backend.calls

    in_console(scenario)


def test_release_opens_the_run_of_a_release() -> None:
    async def scenario(console: Console) -> None:
        await typed(console, "release 9f2c")
        await console.until(lambda: console.screen.screen_name == "run", "the run")

    in_console(scenario)


def test_a_plan_that_cannot_be_undone_gives_the_reason() -> None:
    class Nothing(FakeBackend):
        def undo(self, word: str) -> str:
            raise Refused("plan 7f3a was not executed, so there is nothing to undo", remedy="leave it to expire")

    async def scenario(console: Console) -> None:
        await typed(console, "undo 7f3a")
        await console.until(lambda: "was not executed" in console.status(), "the reason")
        assert console.screen.screen_name == "home"

    in_console(scenario, backend=Nothing())


def test_a_console_that_may_not_act_plans_no_undo() -> None:
    async def scenario(console: Console) -> None:
        await typed(console, "undo")
        assert "undo: looking only" in console.status()
        assert not console.backend.calls

    in_console(scenario, read_only="looking only")
