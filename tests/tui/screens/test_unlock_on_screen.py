"""A protected environment in the console: read-only in the frame, unlocked for a time, and stopped at any time."""

from dataclasses import replace

import pytest

from tests.terminal.in_memory_backend import FakeBackend
from tests.tui.console_harness import Console, in_console


def locked() -> FakeBackend:
    backend = FakeBackend(protected=True)
    backend.current = replace(backend.current, unlocks=())
    return backend


def banner(console: Console) -> str:
    return console.lines(console.screen.banner)


@pytest.mark.parametrize("key", ["D", "X", "B", "R"])
def test_what_changes_it_is_refused_with_the_command_that_unlocks_it(key: str) -> None:
    backend = locked()

    async def scenario(console: Console) -> None:
        assert "pizzeria  PROD protected    read-only" in banner(console)
        await console.press("j", "j", "j", key)
        assert "prod is read-only: `:unlock 30m TICKET` unlocks it" in console.status()
        assert backend.calls == []

    in_console(scenario, backend=backend, protected=True)


def test_a_stop_needs_no_unlock() -> None:
    backend = locked()

    async def scenario(console: Console) -> None:
        await console.press("j", "j", "j", "T")
        name = console.screen.question.dialog
        assert name is not None and "pizzeria PROD protected" in console.dialog()
        await console.type(name.question.expected)
        await console.press("enter")
        await console.until(lambda: bool(backend.calls), "the stop")
        assert backend.calls[0][0] == "stop"

    in_console(scenario, backend=backend, protected=True)


def test_an_unlock_is_typed_shown_with_its_time_left_and_ended() -> None:
    backend = locked()

    async def scenario(console: Console) -> None:
        await console.press(":")
        await console.type("unlock 30m OPS-2")
        await console.press("enter")
        await console.until(lambda: "is unlocked for alice for 30m, until" in console.status(), "the answer")
        assert console.status().endswith(": OPS-2") and backend.calls == [("unlock", "30m", "OPS-2")]
        await console.show_ledger()
        assert "unlocked 29m" in banner(console)
        console.pass_time(1750)
        await console.show_ledger()
        assert "unlocked <1m" in banner(console)
        await console.press(":")
        await console.type("lock")
        await console.press("enter")
        await console.until(lambda: "pizzeria PROD protected is locked for you again" in console.status(), "the answer")
        await console.show_ledger()
        assert "read-only" in banner(console)

    in_console(scenario, backend=backend, protected=True)


def test_an_open_environment_says_that_there_is_nothing_to_unlock() -> None:
    async def scenario(console: Console) -> None:
        await console.press(":")
        await console.type("unlock 30m OPS-2")
        await console.press("enter")
        await console.until(lambda: "pizzeria dev is not protected: nothing to unlock" in console.status(), "it")

    in_console(scenario)


def test_a_policy_that_is_read_only_is_in_the_frame_of_every_environment() -> None:
    backend = FakeBackend()
    backend.current = replace(backend.current, read_only=True)

    async def scenario(console: Console) -> None:
        assert "pizzeria  dev    read-only by policy" in banner(console)
        await console.press("j", "j", "j", "D")
        assert "the policy makes the environment read-only" in console.status()

    in_console(scenario, backend=backend)


def test_an_unlock_without_time_or_ticket_says_what_is_missing() -> None:
    backend = locked()

    async def scenario(console: Console) -> None:
        for typed, words in (
            ("unlock", "unlock: say how long, and why: :unlock 30m TICKET"),
            ("unlock 2h", "unlock: say why: :unlock 2h TICKET"),
        ):
            await console.press(":")
            await console.type(typed)
            await console.press("enter")
            await console.until(lambda words=words: words in console.status(), "the answer")
        assert backend.calls == []

    in_console(scenario, backend=backend, protected=True)
