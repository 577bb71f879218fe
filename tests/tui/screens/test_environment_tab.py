"""Several environments in one console: each keeps its own screens, and nothing reaches any but its own."""

import threading
from collections.abc import Sequence
from dataclasses import replace

import pytest

from core.model.act_outcomes import ActOutcome
from core.model.errors import LedgerUnavailable
from state.ledger_snapshot import LedgerSnapshot, StatementDetails
from tests.terminal.in_memory_backend import FakeBackend, never_started
from tests.terminal.pizzeria_values import NOW, sample_run
from tests.tui.console_harness import Console, in_console
from tui.presentation.interaction.input_line import complete_command
from tui.screens.environment_tab import OpenedEnvironment


def prod(**more: int) -> FakeBackend:
    """A protected environment that this user has unlocked."""
    found = FakeBackend(protected=True)
    for table, lag in more.items():
        found.change(table, lag_rows=lag)
    return found


async def go(console: Console, words: str) -> None:
    """Enter a `:` command."""
    console.pass_time(0.5)
    console.app.tab.command(words)
    await console.pilot.pause()
    console.screen.redraw()


def said(console: Console) -> str:
    """Return the status line, wherever it is wrapped."""
    return " ".join(console.status().split())


async def open_prod(console: Console) -> None:
    await go(console, "env prod")
    await console.until(lambda: console.app.tab.name == "prod", "the environment")
    await console.until(lambda: bool(console.screen.table.ids), "its rows")


def first_line(console: Console) -> str:
    return " ".join(console.lines(console.screen.banner).split())


def test_each_environment_keeps_its_cursor_filter_and_marks() -> None:
    async def scenario(console: Console) -> None:
        console.screen.table.choose("till")
        await console.press("space", "/")
        await console.press("t", "i", "l", "enter")
        await open_prod(console)
        assert console.app.state.marks == set() and console.screen.typed.filter_text == ""
        console.screen.table.choose("order_items")
        await console.press("d")
        await console.press("n")
        assert console.app.tab.name == "dev"
        assert console.app.state.marks == {"till"} and console.screen.typed.filter_text == "til"
        await console.press("N")
        assert (console.app.tab.name, console.screen.screen_name) == ("prod", "detail")
        assert "order_items" in console.text()

    in_console(scenario, beside={"prod": prod()})


def test_an_act_reaches_the_environment_of_its_dialog_alone() -> None:
    there = prod()

    async def scenario(console: Console) -> None:
        console.screen.table.choose("till")
        await open_prod(console)
        console.screen.table.choose("order_items")
        await console.press("T")
        assert "in pizzeria PROD protected" in console.dialog() and "--env prod" in console.dialog()
        await console.type("order_items")
        await console.press("enter")
        await console.until(lambda: bool(there.calls), "the stop")
        assert there.calls == [("stop", ("order_items",), "order_items")] and console.backend.calls == []

    in_console(scenario, beside={"prod": there})


def test_the_first_line_counts_the_faults_of_every_open_environment() -> None:
    there, gone = prod(), never_started("stage")

    async def scenario(console: Console) -> None:
        await console.until(lambda: len(console.app.tabs) == 3 and None not in console.app.tabs.values(), "the others")
        await console.until(lambda: "PROD protected ! 2" in first_line(console), "its faults")
        assert "[ dev ! 2 ] PROD protected ! 2 stage ? pool local live" in first_line(console)
        facts = there.current.facts
        assert facts is not None
        there.current = replace(there.current, facts=replace(facts, agent_pid=None))
        console.app.tabs["prod"].read_now()
        await console.until(lambda: "PROD protected ? stage ?" in first_line(console), "no agent")

    in_console(scenario, beside={"prod": there, "stage": gone}, also=("prod", "stage"), size=(120, 30))


def test_an_environment_whose_ledger_does_not_answer_holds_up_no_other() -> None:
    answers = threading.Event()

    class Dead(FakeBackend):
        def snapshot(self, previous: LedgerSnapshot | None) -> LedgerSnapshot:
            answers.wait()
            return super().snapshot(previous)

    async def scenario(console: Console) -> None:
        await console.until(lambda: console.app.tabs.get("prod") is not None, "the environment")
        console.backend.change("till", lag_rows=4711)
        console.pass_time(1.0)
        await console.until(lambda: "4.7k" in console.text(), "the newer lag")
        assert "PROD protected ?" in first_line(console)
        await console.press("n")
        assert "reading the ledger" in console.text()
        await console.press("n")
        assert console.app.tab.name == "dev" and "4.7k" in console.text()
        answers.set()

    in_console(scenario, beside={"prod": Dead(protected=True)}, also=("prod",))


def test_an_environment_that_cannot_be_opened_is_reported_and_holds_up_no_other() -> None:
    answers = threading.Event()

    async def scenario(console: Console) -> None:
        def opened(name: str) -> OpenedEnvironment:
            answers.wait()
            raise LedgerUnavailable("the ledger is on another disk", remedy="mount it")

        console.app._open = opened
        await go(console, "env prod")
        await console.until(lambda: "PROD" not in first_line(console) and "prod ?" in first_line(console), "the wait")
        await go(console, "env prod")
        await console.until(lambda: "still being opened" in said(console), "the answer")
        answers.set()
        await console.until(lambda: "prod cannot be opened: the ledger is on another disk" in said(console), "why")
        assert list(console.app.tabs) == ["dev"] and "prod" not in first_line(console)

    in_console(scenario)


def test_an_environment_that_was_never_started_is_shown_as_such() -> None:
    async def scenario(console: Console) -> None:
        await go(console, "env stage")
        await console.until(lambda: "never been started" in console.text(), "the reason")
        assert "start it: headgate up --env stage" in console.text()
        assert "NO LEDGER" in first_line(console)
        await console.press("n")
        assert "order_items" in console.text()

    in_console(scenario, beside={"stage": never_started("stage")})


def test_an_answer_for_a_hidden_environment_is_shown_and_names_it() -> None:
    answers = threading.Event()

    class Slow(FakeBackend):
        def act(self, act: str, tables: Sequence[str], *, confirm: str) -> tuple[ActOutcome, ...]:
            answers.wait()
            return super().act(act, tables, confirm=confirm)

    async def scenario(console: Console) -> None:
        await open_prod(console)
        await console.press("n")
        console.screen.table.choose("till")
        await console.press("T")
        await console.type("yes")
        await console.press("enter", "n")
        assert console.app.tab.name == "prod"
        answers.set()
        await console.until(lambda: "dev stop: till stopped" in said(console), "the answer")

    in_console(scenario, backend=Slow(), beside={"prod": prod()})


def test_a_run_that_fails_in_a_hidden_environment_is_reported_and_names_it() -> None:
    there = prod()

    async def scenario(console: Console) -> None:
        await open_prod(console)
        await console.press("n")
        failed = replace(sample_run(NOW), id="7f3a-01c2f", state="failed")
        there.current = replace(there.current, failed_runs=(failed,))
        console.app.tabs["prod"].read_now()
        await console.until(lambda: "PROD protected run 7f3a-01c2f failed" in said(console), "the failure")
        assert console.app.tab.name == "dev"

    in_console(scenario, beside={"prod": there})


def test_a_key_that_acts_is_refused_just_after_another_environment_has_appeared() -> None:
    there = prod()

    async def scenario(console: Console) -> None:
        await open_prod(console)
        there.current = replace(there.current, facts=replace(there.current.facts, agent_seen_at=NOW + 9.0))
        console.app.tab.read_now()
        await console.press("n", "n")
        console.screen.table.choose("order_items")
        for key in "DT":
            await console.pilot.press(key)
            assert "PROD protected has only just appeared" in said(console)
            assert console.screen.question.dialog is None
        await console.press("D")
        await console.until(lambda: bool(there.calls), "the stage")
        assert there.calls == [("stage", ("order_items",), "deploy")] and console.backend.calls == []

    in_console(scenario, beside={"prod": there})


def test_an_environment_that_opens_late_does_not_replace_what_the_user_has_begun() -> None:
    answers = threading.Event()

    async def scenario(console: Console) -> None:
        at_once = console.app._open
        assert at_once is not None

        def opened(name: str) -> OpenedEnvironment:
            answers.wait()
            return at_once(name)

        console.app._open = opened
        await go(console, "env prod")
        console.screen.table.choose("till")
        await console.press("T")
        answers.set()
        await console.until(lambda: console.app.tabs["prod"] is not None, "the environment")
        assert console.app.tab.name == "dev" and "in pizzeria dev" in console.dialog()
        assert "PROD protected is open: n shows it" in said(console)
        await console.press("n")
        assert console.app.tab.name == "dev", "a dialog takes every key"

    in_console(scenario, beside={"prod": prod()})


def test_lines_typed_in_one_environment_are_not_recalled_in_another_and_the_prompt_names_it() -> None:
    async def scenario(console: Console) -> None:
        await console.press(":", "q", "x", "enter")
        await open_prod(console)
        await console.press(":")
        assert "PROD protected :" in said(console)
        await console.press("up")
        assert console.screen.typed.entry.text == ""

    in_console(scenario, beside={"prod": prod()})


def test_only_the_environment_on_the_screen_is_read_for_its_screen() -> None:
    class Counting(FakeBackend):
        snapshots = details = 0

        def snapshot(self, previous: LedgerSnapshot | None) -> LedgerSnapshot:
            self.snapshots += 1
            return super().snapshot(previous)

        def detail(self, table: str) -> StatementDetails:
            self.details += 1
            return super().detail(table)

    there = Counting(protected=True)

    async def scenario(console: Console) -> None:
        await open_prod(console)
        await go(console, "show till")
        await console.until(lambda: there.details > 1, "the detail, twice")
        await console.press("n")
        await console.until(lambda: console.app.tab.name == "dev", "the other environment")
        # A read that had begun may still end.
        hidden, begun = there.details, console.backend.snapshots
        await console.until(lambda: console.backend.snapshots >= begun + 3, "three reads of what is shown")
        assert there.details <= hidden + 1

    in_console(scenario, backend=Counting(), beside={"prod": there})


def test_an_environment_is_closed_in_the_console_and_can_be_opened_again() -> None:
    there = prod()

    async def scenario(console: Console) -> None:
        await go(console, "env --close")
        assert "dev is the only one open" in said(console)
        await open_prod(console)
        await go(console, "env --close")
        assert console.app.tab.name == "dev" and list(console.app.tabs) == ["dev"]
        assert "PROD protected is closed in this console; nothing was stopped" in said(console)
        await console.press("n")
        assert "no other environment is open" in said(console)
        await open_prod(console)
        assert there.calls == []

    in_console(scenario, beside={"prod": there})


@pytest.mark.parametrize(("typed", "answer"), [
    ("env", "env: dev (open), prod, stage (never started)"),
    ("env dev", "env: this is dev"),
    ("env statge", "env: there is no environment statge; there are: dev (open), prod, stage (never started)"),
])  # fmt: skip
def test_env_lists_what_is_declared_and_what_is_open(typed: str, answer: str) -> None:
    async def scenario(console: Console) -> None:
        await go(console, typed)
        await console.until(lambda: answer in said(console), "the answer")

    in_console(scenario, beside={"prod": prod()})


def test_env_completes_the_names_of_environments() -> None:
    async def scenario(console: Console) -> None:
        await console.press(":")
        await console.until(lambda: "stage" in console.app.environment_names(), "the names")
        await console.type("env st")
        await console.press("tab")
        assert console.screen.typed.entry.text == "env stage"

    in_console(scenario, beside={"prod": prod()})


def test_diff_and_schema_open_a_screen_with_the_command_that_does_the_same() -> None:
    copied: list[str] = []

    async def scenario(console: Console) -> None:
        console.app.copy_to_clipboard = copied.append  # type: ignore[method-assign]  # a double
        await go(console, "diff dev order_items")
        await console.until(lambda: "1 table differs" in console.text(), "the comparison")
        assert "diff > dev and prod > order_items" in console.text()
        await console.press("Y", "q")
        console.screen.table.choose("order_items")
        await go(console, "schema")
        await console.until(lambda: "compatibility: backward" in console.text(), "the schemas")
        await console.press("Y")
        assert copied == [
            "headgate diff order_items --env dev --env prod",
            "headgate schema order_items --env prod",
        ]
        console.backend.lost = "the ledger is gone"
        await console.press("r")
        await console.until(lambda: "the ledger is gone; headgate doctor" in console.text(), "why there is none")

    in_console(scenario, protected=True)


def test_a_drain_is_planned_for_the_pool_that_is_named_and_opens_its_review() -> None:
    async def scenario(console: Console) -> None:
        for words in ("drain", "drain small large", "drain small --to"):
            await go(console, words)
            assert "drain: name a pool" in said(console)
        await go(console, "drain small --to large")
        await console.until(lambda: "PLAN 7f3a" in console.text(), "the review")
        await console.press("q")
        await go(console, "drain small")
        await console.until(lambda: "PLAN 7f3a" in console.text(), "the review")
        assert console.backend.calls == [("drain", "small", "large"), ("drain", "small", "")]

    in_console(scenario)


def test_a_promotion_is_planned_for_the_environment_on_the_screen_and_opens_its_review() -> None:
    async def scenario(console: Console) -> None:
        for words in ("promote", "promote till", "promote --from dev", "promote till --all --from dev"):
            await go(console, words)
            assert "promote: name tables, or all, and where they run" in said(console)
        await go(console, "promote till oven_load --from dev")
        await console.until(lambda: "PLAN 7f3a" in console.text(), "the review")
        await console.press("q")
        await go(console, "promote --all --from dev")
        await console.until(lambda: "PLAN 7f3a" in console.text(), "the review")
        assert console.backend.calls == [("promote", ("till", "oven_load"), "dev"), ("promote", (), "dev")]

    in_console(scenario, protected=True)


@pytest.mark.parametrize(("typed", "completed"), [
    ("diff st", "diff stage"), ("diff stage til", "diff stage till"), ("schema til", "schema till"),
    ("promote till --from pr", "promote till --from prod"), ("env --close st", "env --close stage"),
])  # fmt: skip
def test_environments_and_tables_complete_where_each_is_named(typed: str, completed: str) -> None:
    assert complete_command(typed, "home", ("till",), environments=("prod", "stage")) == (completed,)
