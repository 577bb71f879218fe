"""A failed run is announced on every console, and stays in its header until somebody has seen it."""

from dataclasses import replace

import pytest

from core.run.records import RunRow, StepRow
from tests.terminal.in_memory_backend import FakeBackend
from tests.terminal.pizzeria_values import NOW
from tests.tui.console_harness import Console, in_console

STEP = StepRow(n=1, do="start", table="orders", version=1, state="failed", note="CAST_INVALID_INPUT: 'x'")
FAILED = RunRow("a49d-00001", "h", "bob", "failed", NOW - 9, NOW, (STEP,))


async def fails(console: Console) -> None:
    console.backend.current = replace(console.backend.current, version=9, failed_runs=(FAILED,))
    await console.until(lambda: "run a49d-00001 failed" in console.text(), "the head names it")


def test_a_failing_run_is_announced_in_the_message_line_and_in_the_header() -> None:
    async def scenario(console: Console) -> None:
        assert "failed" not in console.text().splitlines()[0]
        await fails(console)
        assert "run a49d-00001 failed: start orders: CAST_INVALID_INPUT: 'x'" in console.status()
        assert "run a49d-00001 failed" in console.text().splitlines()[0]

    in_console(scenario, size=(160, 40))


def test_a_run_that_failed_before_the_console_started_is_only_in_the_header() -> None:
    backend = FakeBackend()
    backend.current = replace(backend.current, failed_runs=(FAILED, replace(FAILED, id="7f3a-00001")))

    async def scenario(console: Console) -> None:
        assert "run a49d-00001 failed and 1 more" in console.text().splitlines()[0]
        assert "CAST_INVALID_INPUT" not in console.status()

    in_console(scenario, size=(160, 40), backend=backend)


@pytest.mark.parametrize("typed", ["ack", "ack a49d", "run a49d-00001"])
def test_a_failed_run_is_acknowledged_by_command_or_by_opening_it(typed: str) -> None:
    backend = FakeBackend()

    async def scenario(console: Console) -> None:
        await fails(console)
        opened = backend.run("")
        assert opened is not None
        backend.run = lambda run_id: replace(opened, run=replace(opened.run, id=FAILED.id))  # type: ignore[method-assign]
        await console.press("colon")
        await console.type(typed)
        await console.press("enter")
        await console.until(lambda: ("ack", FAILED.id, "") in backend.calls, "the acknowledgement")

    in_console(scenario, size=(160, 40), backend=backend)
