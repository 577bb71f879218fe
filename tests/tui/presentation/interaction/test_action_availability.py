"""Only actions that are possible in the visible state are offered; the others explain why when their key is pressed."""

from dataclasses import replace

import pytest
from ledger_rows import plan_row

from state.row_types import StagedRow
from tests.terminal.in_memory_backend import FakeBackend
from tests.terminal.pizzeria_values import NOW, sample_plan, sample_run
from tests.tui.console_harness import Console, in_console
from tui.command_line.parser import parse_line
from tui.presentation.interaction.action_availability import ActionContext, why_not_possible
from tui.presentation.interaction.input_line import complete_command
from tui.presentation.interaction.keymap import find_action
from tui.presentation.screen_content.plan_review import state_of_plan
from tui.presentation.screen_content.runs import why_author_may_not_override
from tui.presentation.screen_content.screen_frame import KeyHint, hints
from tui.presentation.styling.styled_text import plain
from tui.screens.backend import RunView


class WithRun(FakeBackend):
    """The pizzeria with a run in a certain state."""

    def __init__(self, state: str) -> None:
        super().__init__()
        self.state = state

    def run(self, run_id: str) -> RunView:
        row = sample_run(self.now)
        broken = tuple(replace(step, state="failed") if step.state == "gate" else step for step in row.steps)
        return RunView(replace(row, state=self.state, steps=broken if self.state == "failed" else row.steps))


def pizzeria(*staged: tuple[str, str, str]) -> FakeBackend:
    """Return a pizzeria in which (actor, table, verb) are staged."""
    backend = FakeBackend()
    marks = tuple(StagedRow(actor, "/p", table, verb, NOW) for actor, table, verb in staged)
    backend.current = replace(backend.current, staged=marks)
    return backend


async def at(console: Console, row: str) -> None:
    """Put the cursor on a row."""
    assert console.screen.table.choose(row)
    console.screen.redraw()
    await console.pilot.pause()


def said(console: Console) -> str:
    return " ".join(console.status().split())


@pytest.mark.parametrize("screen", ["home", "changes", "detail"])
def test_a_delete_under_readers_is_refused_at_the_key_with_their_names(screen: str) -> None:
    async def scenario(console: Console) -> None:
        if screen == "detail":
            console.app.tab.open_screen("detail", table="order_items")
            await console.until(lambda: "VERDICT" in console.text(), "the detail")
        elif screen == "changes":
            await console.press("p")
            await console.until(lambda: "order_items" in console.text(), "the changes")
            await at(console, "order_items")
        else:
            await at(console, "order_items")
        await console.press("X")
        assert console.backend.calls == []
        assert "order_items is read by menu_sales, oven_load, pizza_per_10s: stage their delete first" in said(console)

    in_console(scenario, backend=pizzeria(("bob", "order_items", "deploy")))


def test_readers_that_are_deleted_too_or_at_rest_keep_nothing() -> None:
    async def scenario(console: Console) -> None:
        await at(console, "order_items")
        await console.press("X")
        await console.until(lambda: bool(console.backend.calls), "the stage")
        # crm_orders is stopped permanently, so that a table that only crm_orders reads may be deleted.
        await at(console, "clients")
        await console.press("X")
        await console.until(lambda: len(console.backend.calls) == 2, "the second")
        assert console.backend.calls == [
            ("stage", ("order_items",), "delete"),
            ("stage", ("clients",), "delete"),
        ]

    readers = ("menu_sales", "oven_load", "pizza_per_10s")
    in_console(scenario, backend=pizzeria(*(("alice", name, "delete") for name in readers)))


def test_unstage_on_a_branch_takes_what_was_staged_there_and_by_this_person() -> None:
    async def scenario(console: Console) -> None:
        await at(console, "product:kitchen")
        await console.press("U")
        await console.until(lambda: bool(console.backend.calls), "the unstage")
        assert console.backend.calls == [("unstage", ("oven_load", "src_orders"))]
        assert "2 tables off the stage" in said(console)
        await at(console, "product:crm")
        await console.press("U")
        assert "you have not staged it" in said(console)
        assert len(console.backend.calls) == 1

    marks = (
        ("alice", "oven_load", "deploy"),
        ("alice", "src_orders", "delete"),
        ("alice", "till", "deploy"),
        ("bob", "order_items", "deploy"),
        ("bob", "clients", "deploy"),
    )
    in_console(scenario, backend=pizzeria(*marks))


@pytest.mark.parametrize(
    ("state", "possible", "words"),
    [
        ("running", "PC", ""),
        ("paused", "PC", "go on"),
        ("failed", "C", "the run is failed"),
        ("done", "", "the run is done"),
        ("cancelled", "", "the run is cancelled"),
    ],
)
def test_a_run_offers_what_its_state_allows(state: str, possible: str, words: str) -> None:
    async def scenario(console: Console) -> None:
        console.app.tab.open_screen("run", run_id="9f2c")
        await console.until(lambda: "RUN 9f2c" in console.text(), "the run")
        footer = console.lines(console.screen.footer)
        assert words in footer if state == "paused" else ("P pause" in footer) == ("P" in possible)
        for key in "PC":
            assert (f" {key} " in footer) == (key in possible)
            await console.press(key)
            assert (console.screen.question.dialog is not None) == (key in possible)
            if key not in possible:
                assert words in said(console)
            await console.press("escape") if key in possible else None
        offered = complete_command("", "run", (), console.screen.action_context())
        assert {"retry", "skip"} <= set(offered) if state == "failed" else not {"retry", "skip"} & set(offered)
        assert ("pause" in offered, "cancel" in offered) == ("P" in possible, "C" in possible)

    in_console(scenario, backend=WithRun(state))


def test_start_is_offered_where_something_does_not_run() -> None:
    async def scenario(console: Console) -> None:
        console.app.tab.open_screen("detail", table="oven_load")
        await console.until(lambda: "VERDICT" in console.text(), "the detail")
        assert " S start " not in console.lines(console.screen.footer)
        await console.press("S")
        assert console.screen.question.dialog is None
        assert "it is already running; R restarts it" in said(console)
        for table in ("orders_paid", "crm_orders"):
            console.app.tab.open_screen("detail", table=table)
            await console.pilot.pause()
            await console.press("S")
            assert console.screen.question.dialog is not None
            await console.press("escape")

    in_console(scenario)


def test_a_look_is_about_the_row_under_the_cursor_whatever_is_marked() -> None:
    async def scenario(console: Console) -> None:
        await at(console, "till")
        await console.press("space")
        await at(console, "menu_sales")
        await console.press("d")
        assert console.screen.path_and_counts()[0][-1].startswith("menu_sales")
        await console.press("q")
        await at(console, "product:kitchen")
        await console.press("d")
        assert console.screen.screen_name == "home"
        assert "put the cursor on one statement" in said(console)

    in_console(scenario)


@pytest.mark.parametrize("key", ["E", "P"])
def test_a_key_of_another_screen_is_reported_as_without_effect(key: str) -> None:
    async def scenario(console: Console) -> None:
        await console.press(key)
        assert f"{key}: not here" in said(console)
        assert console.backend.calls == []

    in_console(scenario)


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
def test_wide_shows_other_figures(size: tuple[int, int]) -> None:
    async def scenario(console: Console) -> None:
        before = console.text().splitlines()[2]
        await console.press("w")
        after = console.text().splitlines()[2]
        assert before != after
        assert all(title in after for title in ("IN/S", "OUT/S", "BATCH"))

    in_console(scenario, size=size)


def test_an_invalid_filter_is_reported_only_as_long_as_it_is_invalid() -> None:
    async def scenario(console: Console) -> None:
        await console.press("/")
        await console.type("lag>>")
        assert "not a number" in console.lines(console.screen.footer)
        await console.press("enter")
        assert "not a number" in said(console)
        console.pass_time(60.0)
        await console.show_ledger()
        assert "not a number" in said(console)
        await console.press("/", "backspace")
        await console.type("0")
        await console.press("enter")
        assert "not a number" not in console.text()
        await console.press("/")
        await console.type(" lag>>")
        await console.press("escape")
        assert "not a number" not in console.text()

    in_console(scenario)


def test_an_unavailable_action_is_marked_without_colour_and_without_more_space() -> None:
    both = [plain(hints((KeyHint("P", "pause", possible),), 40)) for possible in (True, False)]
    assert both[0].startswith(" P pause ")
    assert both[1].startswith("(P pause)")
    assert both[0].index("?") == both[1].index("?")


@pytest.mark.parametrize("screen", ["changes", "audit", "help", "run"])
def test_an_act_on_named_tables_is_asked_for_on_any_screen(screen: str) -> None:
    async def scenario(console: Console) -> None:
        console.app.tab.open_screen(screen, **({"run_id": "9f2c"} if screen == "run" else {}))
        await console.pilot.pause()
        await console.press(":")
        await console.type("stop till")
        await console.press("enter")
        assert "STOP till in pizzeria dev" in console.dialog()

    in_console(scenario)


def test_marks_are_of_the_screen_that_shows_them() -> None:
    async def scenario(console: Console) -> None:
        await at(console, "till")
        await console.press("space", "tab")
        assert "1 marked" in console.text().splitlines()[1]
        await console.press("q", "p")
        await console.until(lambda: "rebuild + 1" in console.text(), "the changes")
        assert "marked" not in console.text().splitlines()[1]
        assert console.screen.table.choose("menu_sales")
        await console.press("D")
        await console.until(lambda: bool(console.backend.calls), "the stage")
        assert console.backend.calls == [("stage", ("menu_sales",), "deploy")]
        await console.press("space", "/")
        await console.type("oven")
        await console.press("enter")
        assert "1 marked, 1 of them hidden" in console.text().splitlines()[1]
        await console.press("escape", "q")
        assert console.app.state.marks == {"till"}

    in_console(scenario)


@pytest.mark.parametrize(("command", "words"), [("show", "VERDICT"), ("sql", "statement v1"), ("lineage", "READ BY")])
def test_viewing_a_named_statement_keeps_the_one_on_screen(command: str, words: str) -> None:
    async def scenario(console: Console) -> None:
        console.app.tab.open_screen("detail", table="oven_load")
        await console.until(lambda: "VERDICT" in console.text(), "the detail")
        await console.press(":")
        await console.type(f"{command} till")
        await console.press("enter")
        assert console.screen.path_and_counts()[0][-1].startswith("till")
        await console.until(lambda: words in console.text(), "the tab")

    in_console(scenario)


def test_a_continued_run_offers_nothing_and_names_its_continuation() -> None:
    class Continued(WithRun):
        def run(self, run_id: str) -> RunView:
            return RunView(replace(super().run(run_id).run, continued_by="7f3a-01c2f"))

    async def scenario(console: Console) -> None:
        console.app.tab.open_screen("run", run_id="9f2c")
        await console.until(lambda: "continued by run 7f3a-01c2f" in console.text(), "the run")
        await console.press("C")
        assert console.screen.question.dialog is None
        assert "the run is continued by 7f3a-01c2f" in said(console)
        assert not {"retry", "skip"} & set(complete_command("", "run", (), console.screen.action_context()))

    in_console(scenario, backend=Continued("failed"))


@pytest.mark.parametrize(
    ("state", "typed", "command"),
    [
        ("running", "P", "headgate runs pause"),
        ("paused", "P", "headgate runs resume"),
        ("failed", "C", "headgate runs cancel"),
        ("failed", ":skip", "headgate runs skip"),
    ],
)
def test_a_question_about_a_run_names_the_command_that_does_just_that(state: str, typed: str, command: str) -> None:
    async def scenario(console: Console) -> None:
        console.app.tab.open_screen("run", run_id="9f2c")
        await console.until(lambda: "RUN 9f2c" in console.text(), "the run")
        await console.type(typed)
        if typed.startswith(":"):
            await console.press("enter")
        step = " --step 3" if "skip" in typed else ""
        same = " ".join(row.strip("│ ") for row in console.dialog().splitlines())
        assert f"same as: {command} {'9f2c' * 4}{step} --env dev" in same
        parse_line(f"{command} {'9f2c' * 4}{step} --env dev".split()[1:])

    in_console(scenario, backend=WithRun(state))


FROZEN = "frozen until Mon 2026-11-23 08:00 UTC (Fri 16:00 - Mon 08:00)"


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("state", "keys", "asked"),
    [("paused", "P", False), ("failed", ":retry", False), ("failed", ":skip", False), ("running", "P", True),
     ("failed", "C", True), ("paused", "C", True)],
)  # fmt: skip
def test_in_a_freeze_a_run_that_would_move_a_pointer_is_asked_about_only_to_pause_and_cancel_it(
    state: str, keys: str, asked: bool
) -> None:
    class Frozen(WithRun):
        def run(self, run_id: str) -> RunView:
            plan = self.plan("")
            return replace(super().run(run_id), plan=plan and replace(plan, frozen=FROZEN))

    async def scenario(console: Console) -> None:
        console.app.tab.open_screen("run", run_id="9f2c")
        await console.until(lambda: "RUN 9f2c" in console.text(), "the run")
        await console.type(keys)
        if keys.startswith(":"):
            await console.press("enter")
        assert (console.screen.question.dialog is not None) is asked
        assert asked or f"dev is {FROZEN}: the run would move a pointer" in said(console)

    in_console(scenario, backend=Frozen(state))


def test_in_a_freeze_no_plan_but_a_rollback_is_executed() -> None:
    plan, row = sample_plan(), plan_row(sample_plan())
    assert state_of_plan(plan, row, 0.0, FROZEN) == f"dev is {FROZEN}: no plan is applied"
    back = replace(plan, request=replace(plan.request, verb="rollback"))
    assert state_of_plan(back, row, 0.0, FROZEN) is state_of_plan(plan, row, 0.0) is None


@pytest.mark.parametrize(
    ("approvals", "act", "do", "user", "refused"),
    [
        (1, "skip", "validate", "ana", True),
        (1, "swap", "", "ana", True),
        (1, "skip", "validate", "bob", False),
        (1, "swap", "", "bob", False),
        (0, "skip", "validate", "ana", False),
        (1, "skip", "catch_up", "ana", False),
        (1, "skip", "", "ana", False),
    ],
)
def test_the_author_of_a_plan_that_needed_an_approval_cannot_skip_its_comparison(
    approvals: int, act: str, do: str, user: str, refused: bool
) -> None:
    plan = replace(sample_plan(), approvals=approvals)
    why = why_author_may_not_override(plan, plan_row(plan), act, do, user=user)
    assert why == ("its plan needed an approval, so its author cannot do this; another login must" if refused else None)
    now = replace(ActionContext(), run_state="failed", run_failed=True, held=True)
    key = "swap" if act == "swap" else "skip"
    found = find_action(key, "run")
    assert found is not None
    assert why_not_possible(found, replace(now, not_swapped=why, not_skipped=why)) == why
