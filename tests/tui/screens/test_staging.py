"""Staging: impossible requests are refused at once, useless ones are reported, and many at once need confirmation."""

from dataclasses import replace

import pytest

from core.model.names import TableName
from tests.terminal.in_memory_backend import FakeBackend
from tests.terminal.pizzeria_values import NOW
from tests.tui.console_harness import Console, in_console
from tui.presentation.screen_content.changes import DELETED, ChangeRow, summary
from tui.screens.backend import ProjectView


async def types(console: Console, line: str) -> None:
    await console.press("colon")
    await console.type(line)
    # Typing takes a second per letter, and nothing is staged while data is that old.
    console.clocks["now"] = NOW
    await console.press("enter")


def staged(console: Console) -> list[object]:
    return [call for call in console.backend.calls if call[0] == "stage"]


def test_an_unknown_name_is_refused_with_the_nearest_even_if_files_are_unreadable() -> None:
    async def scenario(console: Console) -> None:
        await types(console, "deploy oven_laod")
        await console.until(lambda: "there is no table oven_laod" in console.status(), "the refusal")
        assert "oven_load" in console.status()
        console.backend.project = lambda: ProjectView(missing="dml.a.sql: unexpected )")  # type: ignore[method-assign]
        await types(console, "deploy vw_")
        await console.until(lambda: "vw_ is not deployed, and the files cannot be read" in console.status(), "it")
        assert staged(console) == []

    in_console(scenario, size=(160, 40))


@pytest.mark.parametrize("act", ["stop", "start", "restart", "delete"])
def test_an_action_on_an_unknown_name_is_refused_with_the_nearest_before_it_asks(act: str) -> None:
    async def scenario(console: Console) -> None:
        await types(console, f"{act} oven_laod")
        await console.until(lambda: "oven_laod: not deployed here" in console.status(), "the refusal")
        assert "did you mean oven_load?" in console.status() and not console.dialog()

    in_console(scenario, size=(160, 40))


def test_staging_an_unchanged_table_says_so() -> None:
    async def scenario(console: Console) -> None:
        await types(console, "deploy crm_orders oven_load")
        await console.until(lambda: "deploy staged" in console.status(), "the answer")
        assert "(crm_orders: unchanged, nothing to do)" in console.status()

    in_console(scenario, size=(160, 40))


def test_more_than_five_tables_are_named_and_asked_about() -> None:
    async def scenario(console: Console) -> None:
        names = sorted(console.screen.state.view.statements)[:6]
        await types(console, f"deploy {' '.join(names)}")
        await console.until(lambda: "STAGE deploy of 6 tables" in console.dialog(), "the question")
        assert all(name in console.dialog() for name in names) and staged(console) == []
        console.pass_time(1.0)
        await console.type("yes")
        console.pass_time(1.0)
        await console.press("enter")
        await console.until(lambda: bool(staged(console)), "the stage")

    in_console(scenario, size=(160, 40))


def test_a_deleted_name_completes() -> None:
    backend = FakeBackend()
    backend.current = replace(backend.current, deleted=(TableName("vw_gone"),))

    async def scenario(console: Console) -> None:
        await console.press("colon")
        await console.type("deploy vw_g")
        assert "vw_gone" in console.screen.typed.completions()[0]

    in_console(scenario, backend=backend)


def test_files_that_cannot_be_read_are_not_called_equal_and_deleted_tables_are_counted_apart() -> None:
    rows = (ChangeRow("a", "new", "start"), ChangeRow("b", DELETED, "keep"))
    assert summary(rows, "ana") == "1 difference, 1 deleted   0 staged by you"
    assert summary((), "ana", compared=False) == "not compared   0 staged by you"
