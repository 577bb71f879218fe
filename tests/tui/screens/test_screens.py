"""Screens operated by keys: what they ask, what they send, and above all what they do not send."""

import re
import string
from dataclasses import replace

import pytest

from core.model.names import TableName
from state.row_types import StagedRow
from tests.terminal.in_memory_backend import FakeBackend
from tests.terminal.pizzeria_values import NOW, sample_run
from tests.tui.console_harness import Console, in_console
from tui.agent_client.agent_commands import PeekedRows
from tui.presentation.interaction.input_line import names
from tui.presentation.interaction.keymap import (
    ALL_SCREENS,
    KNOWN_KEYS,
    find_action,
)
from tui.screens.backend import PlanView, RunView
from tui.screens.home import RESTS_S, HomeScreen

OPENED_WITH = {
    "detail": {"table": "till"}, "review": {"plan_hash": "7f3a"}, "rows": {"table": "till"}, "run": {"run_id": "9f2c"},
    "report": {"path": ("schema", "a"), "read": lambda: ("two columns",), "command": ""},
}  # fmt: skip


async def find(console: Console, table: str) -> None:
    """Put the cursor on a table of the tree."""
    assert console.screen.table.choose(table)
    await console.pilot.pause()


def test_stop_is_sent_after_yes_and_enter_and_names_what_is_below() -> None:
    async def scenario(console: Console) -> None:
        await find(console, "order_items")
        await console.press("T")
        assert "STOP order_items in pizzeria dev" in console.dialog()
        assert "downstream: 3 statements will get no new rows" in console.dialog()
        assert "headgate stop order_items --env dev" in console.dialog()
        await console.type("yes")
        await console.press("enter")
        await console.until(lambda: bool(console.backend.calls), "the stop")
        assert console.backend.calls == [("stop", ("order_items",), "yes")]

    in_console(scenario)


@pytest.mark.sampled
@pytest.mark.parametrize(
    "keys", [("enter",), ("escape",), ("y", "enter"), ("y", "e", "s"), ("Y", "E", "S", "enter"), ("ctrl+c",)]
)
def test_anything_but_the_expected_text_and_enter_sends_nothing(keys: tuple[str, ...]) -> None:
    async def scenario(console: Console) -> None:
        await find(console, "order_items")
        await console.press("T", *keys)
        assert console.backend.calls == []

    in_console(scenario)


def test_a_dialog_takes_no_key_in_its_first_moments() -> None:
    async def scenario(console: Console) -> None:
        await find(console, "order_items")
        await console.press("T")
        console.clocks["tick"] = console.screen.question.dialog.opened_at + 0.3
        await console.pilot.press("y", "e", "s", "enter")
        assert console.screen.question.dialog.typed == ""
        assert console.backend.calls == []

    in_console(scenario)


def test_enter_in_the_same_burst_as_the_text_does_not_confirm() -> None:
    async def scenario(console: Console) -> None:
        await find(console, "order_items")
        await console.press("T")
        console.pass_time(1.0)
        await console.pilot.press("y", "e", "s", "enter")
        assert "all at once" in console.dialog()
        assert console.backend.calls == []

    in_console(scenario)


def test_a_dialog_applies_to_its_original_rows_even_if_they_move() -> None:
    async def scenario(console: Console) -> None:
        await find(console, "order_items")
        await console.press("T")
        console.backend.drop("order_items")
        await console.show_ledger()
        await console.type("yes")
        await console.press("enter")
        await console.until(lambda: bool(console.backend.calls), "the stop")
        assert console.backend.calls[0][1] == ("order_items",)

    in_console(scenario)


def test_a_vanished_statement_leaves_a_ghost_on_which_no_key_acts() -> None:
    async def scenario(console: Console) -> None:
        await find(console, "till")
        console.backend.drop("till")
        console.pass_time(1.0)
        await console.show_ledger()
        assert "till" in console.text()
        await console.press("T")
        assert console.screen.question.dialog is None
        assert "was deleted" in console.status()
        console.pass_time(6.0)
        await console.show_ledger()
        assert "till" not in console.screen.table.ids

    in_console(scenario)


def test_a_filter_leaves_no_ghosts_of_what_it_hides() -> None:
    async def scenario(console: Console) -> None:
        await console.press("/")
        await console.type("till")
        await console.press("enter", "G")
        assert list(console.screen.table.ids) == ["product:sales", "layer:sales/fact", "till"]
        await console.press("T")
        assert "STOP till" in console.dialog()

    in_console(scenario)


def test_a_new_filter_begins_empty_and_enter_without_one_ends_the_old_one() -> None:
    async def scenario(console: Console) -> None:
        await console.press("/")
        await console.type("till")
        await console.press("enter", "/")
        assert console.screen.typed.entry is not None and console.screen.typed.entry.text == ""
        await console.type("menu")
        await console.press("enter")
        assert console.screen.typed.filter_text == "menu"
        await console.press("/", "up")
        assert console.screen.typed.filter_text == "menu", "the last one is one key away"
        await console.press("enter", "/", "enter")
        assert console.screen.typed.filter_text == ""

    in_console(scenario)


def test_a_key_just_pressed_keeps_every_row_in_its_place() -> None:
    async def scenario(console: Console) -> None:
        await console.press("tab", "o", "o", "o", "o")
        assert console.screen.path_and_counts()[0] == ("statements", "by lag")
        before = list(console.screen.table.ids)
        console.backend.change("till", lag_rows=99_999)
        await console.pilot.press("j")
        await console.show_ledger()
        assert list(console.screen.table.ids) == before
        console.pass_time(0.2)
        await console.show_ledger()
        assert console.screen.table.ids[0] == "till"

    in_console(scenario)


def test_the_inspector_waits_for_a_cursor_that_rests() -> None:
    async def scenario(console: Console) -> None:
        page = console.screen
        assert isinstance(page, HomeScreen)
        await console.show_ledger()
        before = console.lines(page.inspector)
        console.pass_time(1.0)
        for _ in range(4):
            await console.pilot.press("j")
            console.pass_time(RESTS_S / 8)
            await console.show_ledger()
        assert console.lines(page.inspector) == before
        console.pass_time(RESTS_S)
        await console.show_ledger()
        assert page.table.cursor_id in console.lines(page.inspector) != before

    in_console(scenario, size=(200, 60))


def test_the_cursor_stays_on_its_statement_when_rows_move() -> None:
    async def scenario(console: Console) -> None:
        await console.press("tab", "o", "o")
        console.screen.table.choose("menu_sales")
        console.backend.change("till", lag_rows=99_999)
        console.pass_time(1.0)
        await console.show_ledger()
        assert console.screen.table.cursor_id == "menu_sales"

    in_console(scenario)


def test_a_set_asks_for_its_count_and_names_what_the_filter_hides() -> None:
    async def scenario(console: Console) -> None:
        await find(console, "till")
        await console.press("space")
        await find(console, "menu_sales")
        await console.press("space", "/")
        await console.type("menu")
        await console.press("enter", "T")
        assert "STOP 2 statements" in console.dialog()
        assert "till (hidden by your filter)" in console.dialog()
        assert "type 2 and Enter" in console.dialog()

    in_console(scenario)


def test_in_a_protected_environment_one_statement_asks_for_its_name() -> None:
    async def scenario(console: Console) -> None:
        assert "PROD protected" in console.lines(console.screen.banner)
        await find(console, "till")
        await console.press("T")
        assert "pizzeria PROD protected" in console.dialog()
        assert "type till and Enter" in console.dialog()

    in_console(scenario, protected=True)


def test_stale_data_disables_staging_and_restart_and_never_stop() -> None:
    async def scenario(console: Console) -> None:
        await find(console, "till")
        console.pass_time(42.0)
        await console.show_ledger()
        assert "STALE" in console.lines(console.screen.banner)
        for key in "DXUSR":
            await console.press(key)
            assert console.screen.question.dialog is None
            assert "old" in console.status()
        await console.press("T")
        assert "STOP till" in console.dialog()
        assert "data 49s old" in console.dialog()
        assert console.backend.calls == []

    in_console(scenario)


def test_an_external_table_is_never_acted_on() -> None:
    async def scenario(console: Console) -> None:
        await find(console, "pizzas")
        for key in "TSRX":
            await console.press(key)
            assert console.screen.question.dialog is None
            assert "external" in console.status()

    in_console(scenario)


def test_a_paste_is_text_in_a_filter_and_ignored_elsewhere() -> None:
    async def scenario(console: Console) -> None:
        from textual import events

        await find(console, "till")
        console.app.post_message(events.Paste("T\nyes\n"))
        await console.pilot.pause()
        assert console.screen.question.dialog is None
        await console.press("T")
        console.pass_time(1.0)
        console.app.post_message(events.Paste("yes\n"))
        await console.pilot.pause()
        assert "type it" in console.dialog()
        await console.press("enter", "/")
        console.app.post_message(events.Paste("menu\nT"))
        await console.pilot.pause()
        assert console.screen.typed.filter_text == "menu"
        assert console.backend.calls == []

    in_console(scenario)


def test_staging_needs_no_question_and_is_sent_at_once() -> None:
    async def scenario(console: Console) -> None:
        await find(console, "till")
        await console.press("D")
        await console.until(lambda: bool(console.backend.calls), "the stage")
        assert console.backend.calls == [("stage", ("till",), "deploy")]

    in_console(scenario)


def test_a_plan_is_executed_after_environment_and_hash_were_typed() -> None:
    async def scenario(console: Console) -> None:
        await console.press("p")
        await console.until(lambda: "rebuild + 1" in console.text(), "the changes")
        await console.press("enter")
        await console.until(lambda: "PLAN 7f3a" in console.text(), "the review")
        await console.press("E")
        said = " ".join(word.strip("│ ") for word in console.dialog().splitlines())
        assert "LOST" in said and "permanent" not in said
        assert "kept in the trash for 7 days after the run" in said
        await console.type("dev 7f3a")
        await console.press("enter")
        await console.until(lambda: "RUN 9f2c" in console.text(), "the run")
        assert console.backend.calls[-1] == ("apply", "7f3a" * 16, "dev 7f3a")

    in_console(scenario)


def test_leaving_a_run_sends_nothing() -> None:
    async def scenario(console: Console) -> None:
        await console.press(":")
        await console.type("run 9f2c")
        await console.press("enter")
        await console.until(lambda: "RUN 9f2c" in console.text(), "the run")
        await console.press("ctrl+c")
        assert "runs and statements continue" in console.status()
        await console.press("q")
        assert console.screen.screen_name == "home"
        assert console.backend.calls == []

    in_console(scenario)


def test_cancel_asks_and_is_sent() -> None:
    async def scenario(console: Console) -> None:
        console.app.tab.open_screen("run", run_id="9f2c")
        await console.until(lambda: "RUN 9f2c" in console.text(), "the run")
        await console.press("C")
        assert "CANCEL run 9f2c" in console.dialog()
        await console.type(console.screen.question.dialog.question.expected)
        await console.press("enter")
        await console.until(lambda: bool(console.backend.calls), "the cancel")
        assert console.backend.calls[0][0] == "cancel"

    in_console(scenario)


def test_no_lower_case_key_anywhere_calls_an_act() -> None:
    async def scenario(console: Console) -> None:
        for name in ("home", "statements", "changes", "audit", "log", "runs"):
            if name != "home":
                console.app.tab.open_screen(name)
                await console.pilot.pause()
            for key in "abcdefghijklmnoprstuvwxyz":
                if console.screen.screen_name == name and key not in "hqp":
                    await console.press(key)
                    console.screen.typed.entry = None
            console.app.tab.go_home()
            await console.pilot.pause()
        assert console.backend.calls == []

    in_console(scenario)


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)])
def test_every_screen_draws_at_every_size(size: tuple[int, int]) -> None:
    async def scenario(console: Console) -> None:
        wanted = {
            "statements": ({}, "menu_sales"), "detail": ({"table": "oven_load"}, "VERDICT"), "changes": ({},
            "rebuild + 1"),
            "review": ({"plan_hash": "7f3a"}, "PLAN 7f3a"), "run": ({"run_id": "9f2c"}, "RUN 9f2c"),
            "runs": ({}, "9f2c9f"), "pools": ({}, "garbage collection"), "rows": ({"table": "till"}, "margherita"),
            "audit": ({}, "bob"), "log": ({}, "headgate stop crm_orders"), "help": ({}, "KEYS on home"),
            "report": (OPENED_WITH["report"], "two columns"),
        }  # fmt: skip
        for name, (arguments, words) in wanted.items():
            console.app.tab.open_screen(name, **arguments)
            await console.until(lambda words=words: words in console.text(), f"{name}: {words}")
            console.app.tab.go_back()
            await console.pilot.pause()

    in_console(scenario, size=size)


@pytest.mark.parametrize("size", [(79, 24), (80, 23), (20, 5), (1, 1)])
def test_a_terminal_that_is_too_small_shows_the_required_size(size: tuple[int, int]) -> None:
    async def scenario(console: Console) -> None:
        await console.pilot.resize_terminal(*size)
        await console.until(lambda: "needs 80x24"[: size[0]] in console.text(), "the sentence")
        await console.press("T", "j")
        assert console.screen.question.dialog is None
        await console.pilot.resize_terminal(80, 24)
        await console.until(lambda: "kitchen" in console.text(), "the tree again")

    in_console(scenario)


def test_a_console_without_a_ledger_shows_the_remedy() -> None:
    backend = FakeBackend()
    backend.current = type(backend.current)(
        read_at=0.0, problem="pizzeria dev has never been started on this machine", remedy="start it: headgate up"
    )

    async def scenario(console: Console) -> None:
        assert "NO LEDGER" in console.text()
        assert "never been started" in console.text()
        assert "headgate up" in console.text()

    in_console(scenario, backend=backend)


def test_a_table_that_is_neither_deployed_nor_declared_cannot_be_staged() -> None:
    async def scenario(console: Console) -> None:
        await console.pilot.press(*("space" if letter == " " else letter for letter in ":deploy oven_lod"))
        console.pass_time(1.0)
        await console.pilot.press("enter")
        await console.until(lambda: "there is no table oven_lod" in console.text(), "the refusal")
        assert console.backend.calls == []

    in_console(scenario)


def test_the_detail_copies_its_text_and_the_line_that_shows_the_statement() -> None:
    async def scenario(console: Console) -> None:
        await find(console, "order_items")
        await console.press("d", "Y")
        await console.until(lambda: "copied: headgate show order_items" in console.text(), "the line")
        await console.press("y")
        await console.until(lambda: "lines" in console.text() and "copied:" in console.text(), "the text")

    in_console(scenario)


def test_a_branch_copies_a_line_that_lists_its_statements() -> None:
    async def scenario(console: Console) -> None:
        await console.press("g", "Y")
        await console.until(lambda: "copied: headgate ls " in console.text(), "the line")

    in_console(scenario)


def row_of(console: Console, table: str) -> str:
    """Return the line of the screen that begins with a table."""
    return next(row for row in console.text().splitlines() if row.startswith(f"  {table}"))


def test_an_unstaged_row_is_no_longer_drawn_as_staged() -> None:
    class Staging(FakeBackend):
        def unstage(self, tables):
            left = tuple(mark for mark in self.current.staged if mark.table not in tables)
            self.current = replace(self.current, staged=left)
            return super().unstage(tables)

    backend = Staging()
    marks = (*backend.staged_marks, StagedRow("alice", "/p", TableName("till"), "deploy", NOW))
    backend.current = replace(backend.current, staged=marks)

    async def scenario(console: Console) -> None:
        await console.press("p")
        await console.until(lambda: "rebuild + 1" in console.text(), "the changes")
        for table, after in (("oven_load", "rebuild + 1"), ("till", "no longer staged or changed")):
            assert console.screen.table.choose(table)
            await console.press("U")
            await console.until(lambda table=table: "alice" not in row_of(console, table), "the row that is not staged")
            assert after in row_of(console, table)
        await console.press("D")
        assert "it is no longer staged or changed" in console.status()

    in_console(scenario, backend=backend)


def test_the_footer_shows_the_keys_of_an_open_dialog_and_no_others() -> None:
    async def scenario(console: Console) -> None:
        await find(console, "till")
        await console.press("T")
        footer = console.lines(console.screen.footer)
        assert footer.split("  ") == [" enter, esc keep running", "ctrl+u clear", "yes enter stop"]
        await console.press("escape")
        assert "? keys" in console.lines(console.screen.footer)

    in_console(scenario)


def test_a_progress_message_ends_with_its_operation() -> None:
    async def scenario(console: Console) -> None:
        await console.press("r")
        await console.until(lambda: "reloading" not in console.status(), "the end of the reload")
        await console.press("p")
        await console.until(lambda: "rebuild + 1" in console.text(), "the changes")
        await console.press("enter")
        await console.until(lambda: "PLAN 7f3a" in console.text(), "the review")
        assert "planning" not in console.status()

    in_console(scenario)


def test_after_staging_the_next_key_of_the_current_screen_is_named() -> None:
    async def scenario(console: Console) -> None:
        await find(console, "till")
        await console.press("D")
        await console.until(
            lambda: "deploy staged: till (till: unchanged, nothing to do); p shows the" in console.status(),
            "the answer",
        )
        await console.press("p")
        await console.until(lambda: "rebuild + 1" in console.text(), "the changes")
        await console.press("D")
        await console.until(lambda: "; enter plans what is staged" in console.status(), "the answer")
        assert "p shows" not in console.status()

    in_console(scenario)


def test_the_history_is_one_key_away_and_newest_first() -> None:
    async def scenario(console: Console) -> None:
        await find(console, "till")
        await console.press("c")
        await console.until(lambda: "rebuild v3→v4" in console.text(), "the timeline")
        text = console.text()
        assert "no change" not in text
        assert text.index("CAST_INVALID_INPUT") < text.index("v4 began to serve") < text.index("rebuild v3→v4")
        assert "(plan 7f3a, by alice)" in " ".join(text.split())
        await console.press("d")
        await console.press("8")
        await console.until(lambda: "rebuild v3→v4" in console.text(), "the pane by its number")
        assert "8 history" in console.text().splitlines()[2]

    in_console(scenario)


LOOKS = ("detail", "sql", "events", "lineage", "history")


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("screen", "arguments", "row", "table"),
    [
        ("review", {"plan_hash": "7f3a"}, "oven_load", "oven_load"),
        ("changes", {}, "menu_sales", "menu_sales"),
        ("run", {"run_id": "9f2c"}, "4", "oven_load"),
        ("events", {}, "3", "orders_paid"),
        ("audit", {}, "1", "oven_load"),
        ("log", {}, "2", "crm_orders"),
    ],
)
def test_views_of_a_statement_open_from_every_row_that_is_about_one(
    screen: str, arguments: dict[str, str], row: str, table: str
) -> None:
    async def scenario(console: Console) -> None:
        console.app.tab.open_screen(screen, **arguments)
        await console.until(lambda: row in console.screen.table.ids, "the rows")
        console.screen.following = False
        for look in LOOKS:
            action = find_action(look, screen)
            if look == "sql" and screen in ("review", "changes"):
                continue
            assert console.screen.table.choose(row)
            await console.press(action.keys[0])
            await console.until(lambda: console.screen.screen_name == "detail", f"{look} of {table}")
            assert console.screen.table_name == table
            assert console.screen.tab == {"detail": "overview"}.get(look, look)
            await console.press("q")

    in_console(scenario)


def test_a_key_without_a_meaning_says_so_in_two_words_that_disappear() -> None:
    async def scenario(console: Console) -> None:
        for key, words in (("Q", "Q: no key"), ("E", "E: not here"), ("f9", "f9: no key")):
            await console.press(key)
            assert console.status().strip().endswith(words)
        console.pass_time(3.0)
        await console.show_ledger()
        assert "no key" not in console.status()

    in_console(scenario)


@pytest.mark.parametrize("key", ["h", "left"])
def test_h_closes_what_l_opened_and_every_other_page(key: str) -> None:
    async def scenario(console: Console) -> None:
        await find(console, "till")
        await console.press("l")
        assert console.screen.screen_name == "detail"
        await console.press(key)
        assert console.screen.screen_name == "home"
        for name in sorted(set(ALL_SCREENS) - {"home", "detail"}):
            console.app.tab.open_screen(name, **OPENED_WITH.get(name, {}))
            await console.pilot.pause()
            assert console.screen.screen_name == name
            await console.press(key)
            assert console.screen.screen_name == "home", name
        console.app.tab.open_screen("detail", table="till", tab="lineage")
        await console.press(key)
        assert console.screen.screen_name == "detail", "there it chooses a column"

    in_console(scenario)


def test_help_closes_with_the_key_that_opened_it() -> None:
    async def scenario(console: Console) -> None:
        await console.press("?")
        await console.until(lambda: "KEYS on home" in console.text(), "the help")
        await console.press("?")
        assert console.screen.screen_name == "home"

    in_console(scenario)


class BrokenRun(FakeBackend):
    """A pizzeria whose only run has failed and is no longer open."""

    def broken(self):
        run = sample_run(self.now)
        steps = (*run.steps[:2], replace(run.steps[2], state="failed"))
        return replace(run, state="failed", ended_at=self.now, steps=steps)

    def runs(self):
        return (self.broken(),)

    def run(self, run_id):
        return RunView(self.broken(), self.plan(""))


@pytest.mark.parametrize("start", ["home", "audit", "detail"])
def test_retry_without_an_id_asks_about_the_last_run_from_anywhere(start: str) -> None:
    async def scenario(console: Console) -> None:
        if start != "home":
            console.app.tab.open_screen(start, **({"table": "till"} if start == "detail" else {}))
            await console.pilot.pause()
        await console.press(":")
        await console.type("retry")
        await console.press("enter")
        await console.until(lambda: "RETRY" in console.dialog(), "the question")
        assert console.screen.screen_name == "run"
        console.screen.question.dialog = None
        await console.press(":")
        await console.type("run")
        await console.press("enter")
        await console.until(lambda: console.screen.run_id.startswith("9f2c"), "the run")

    in_console(scenario, backend=BrokenRun())


def test_a_run_that_is_over_and_well_is_not_retried_from_elsewhere() -> None:
    async def scenario(console: Console) -> None:
        await console.press(":")
        await console.type("retry")
        await console.press("enter")
        await console.until(lambda: "retry: no step has failed" in console.status(), "the reason")
        assert console.screen.question.dialog is None

    in_console(scenario)


def test_the_footer_begins_with_the_keys_that_the_row_allows() -> None:
    async def scenario(console: Console) -> None:
        assert "(" not in console.lines(console.screen.footer)
        await find(console, "till")
        await console.press("j", "k")
        assert " d detail  s sql " in console.lines(console.screen.footer)

    in_console(scenario)


def test_a_movement_beyond_the_edge_says_that_nothing_changed() -> None:
    async def scenario(console: Console) -> None:
        await console.press("g")
        assert console.status().strip().endswith("g: no change")
        await console.press("j")
        assert "no change" not in console.lines(console.screen.footer)

    in_console(scenario)


LEAVING = {"q", "ctrl+l", "r", "ctrl+z", "e"}
"""Keys of the home screen that leave the console or change no text; they are tried in a real terminal."""
NO_WORDS = re.compile(r"(?:not here|no key|no change)$")


@pytest.mark.drill
@pytest.mark.parametrize("third", [pytest.param(n, marks=pytest.mark.long) if n else n for n in range(3)])
@pytest.mark.parametrize("screen", sorted(ALL_SCREENS))
def test_every_key_on_every_screen_has_an_effect_or_says_that_it_has_none(screen: str, third: int) -> None:
    """If long tests are left out, a different third of the keys is tried on each screen."""

    async def scenario(console: Console) -> None:
        keys = KNOWN_KEYS | set(string.ascii_letters) | {"f1", "f9", "(", "insert", "delete", "enter", "backspace"}
        silent, kept = [], []
        every = sorted(key for key in keys - LEAVING if not key.startswith(":") or key == ":")
        for key in every[(third + sorted(ALL_SCREENS).index(screen)) % 3 :: 3]:
            console.app.tab.go_home()
            console.app.state.frozen = False
            console.app.state.marks.clear()
            if screen != "home":
                console.app.tab.open_screen(screen, **OPENED_WITH.get(screen, {}))
            await console.pilot.pause()
            if screen == "changes":
                await console.until(lambda: console.screen.table.ids, "the edits that were read in a thread")
            await console.ledger_arrives()
            front, console.screen.state.message = console.screen, None
            console.screen.redraw()
            before = console.text(), len(console.backend.calls)
            # Keys are pressed without the usual pause of a second, because a moving clock is not an effect of a key.
            await console.pilot.press(key)
            await console.pilot.pause()
            answered = console.screen is not front or front.typed.entry is not None or front.question.dialog is not None
            if not answered and (console.text(), len(console.backend.calls)) == before:
                silent.append(key)
            if NO_WORDS.search(said := console.status().strip()):
                console.pass_time(2.5)
                console.screen.redraw()
                kept += [key] if console.status().strip() == said else []
            front.typed.entry = front.question.dialog = None
        assert not silent, f"silent on {screen}"
        assert not kept, f"the words stay on {screen}"

    in_console(scenario)


def test_a_selector_after_a_colon_asks_about_the_tables_that_it_means() -> None:
    async def scenario(console: Console) -> None:
        await console.press(":")
        await console.type("stop 1+oven_load")
        await console.press("enter")
        await console.until(lambda: "STOP 2 statements" in console.dialog(), "the question")
        assert "oven_load" in console.dialog() and "order_items" in console.dialog()

    in_console(scenario)


def test_the_logs_of_agent_and_pool_are_named_and_a_plan_is_reviewed_by_its_name() -> None:
    async def scenario(console: Console) -> None:
        await console.press(":")
        await console.type("logs")
        await console.press("enter")
        await console.until(lambda: "`headgate logs agent`" in console.status(), "the commands")

    in_console(scenario)
    assert {"logs", "review"} <= {name for name, _ in names("home")}


def test_rows_and_logs_of_a_statement_are_read_in_the_console() -> None:
    async def scenario(console: Console) -> None:
        await find(console, "till")
        await console.press("b")
        await console.until(lambda: "margherita" in console.text(), "the rows")
        assert "3 rows in no order" in console.text()
        await console.press("q", "d", "5")
        await console.until(lambda: "at x.Y(Z.scala:1)" in console.text(), "the stack trace of the log")

    in_console(scenario)


def test_rows_that_do_not_fit_are_counted_as_more_below() -> None:
    class Full(FakeBackend):
        def peek(self, table: str, *, version: int | None, limit: int) -> PeekedRows:
            return PeekedRows(("order_id",), [[n] for n in range(30)])

    async def scenario(console: Console) -> None:
        await find(console, "till")
        await console.press("b")
        await console.until(lambda: "30 rows in no order, " in console.text(), "the rows")
        (below,) = re.findall(r"in no order, (\d+) more below", console.text())
        shown = [row for row in console.text().splitlines() if re.fullmatch(r"\s+\d+", row)]
        assert len(shown) + int(below) == 30
        await console.press("G")
        await console.until(lambda: "more below" not in console.text(), "the last row")

    in_console(scenario, backend=Full())


def test_rows_that_take_several_lines_are_not_counted_by_lines() -> None:
    class Wide(FakeBackend):
        def peek(self, table: str, *, version: int | None, limit: int) -> PeekedRows:
            return PeekedRows([f"column_{n}" for n in range(5)], [["x" * 40] * 5 for _ in range(30)])

    async def scenario(console: Console) -> None:
        await find(console, "till")
        await console.press("b")
        await console.until(lambda: "30 rows in no order, " in console.text(), "the rows")
        assert re.search(r"in no order, \d+ more lines below", console.text())

    in_console(scenario, backend=Wide())


@pytest.mark.parametrize(("name", "arguments"), [("review", {"plan_hash": "7f3a"}), ("run", {"run_id": "9f2c"})])
def test_rows_of_a_plan_and_steps_of_a_run_that_do_not_fit_are_counted(name: str, arguments: dict[str, str]) -> None:
    class Long(FakeBackend):
        def plan(self, plan_hash: str) -> PlanView:
            found = super().plan(plan_hash)
            nodes = tuple(replace(found.plan.nodes[0], table=TableName(f"t{n}")) for n in range(30))
            return replace(found, plan=replace(found.plan, nodes=nodes))

        def run(self, run_id: str) -> RunView:
            found = super().run(run_id)
            steps = tuple(replace(found.run.steps[3], n=n) for n in range(1, 31))
            return replace(found, run=replace(found.run, steps=steps))

    async def scenario(console: Console) -> None:
        console.app.tab.open_screen(name, **arguments)
        await console.until(lambda: " more below" in console.text(), "the count of the rows below")
        table = console.screen.table

        def is_counted() -> bool:
            return f" {30 - table.top - table.page} more below" in console.text()

        await console.until(is_counted, "the number of rows below the page")
        await console.press("G")
        await console.until(lambda: " more below" not in console.text(), "the last row")

    in_console(scenario, backend=Long())


def test_quiet_branches_are_folded_and_faulty_ones_stay_open() -> None:
    async def scenario(console: Console) -> None:
        await find(console, "till")
        await console.press("z", "z")
        ids = set(console.screen.table.ids)
        assert "orders_paid" in ids
        assert "product:sales" in ids and not {"till", "menu_sales"} & ids
        assert console.screen.table.cursor_id == "product:sales"
        assert "quiet branches folded" in console.status()
        assert "sales (5)" in console.text()

    in_console(scenario)


def test_folding_is_refused_in_the_lineage_and_leaves_the_products_as_they_were() -> None:
    async def scenario(console: Console) -> None:
        mode = console.screen.folding.mode
        await console.press("t", "z")
        assert "the lineage does not fold" in console.status()
        assert console.screen.folding.mode == mode

    in_console(scenario)


def test_the_tree_of_a_small_terminal_shows_what_fits_and_counts_the_rest() -> None:
    async def scenario(console: Console) -> None:
        table = console.screen.table
        assert "more row" not in console.text() and "orders_paid" in table.ids
        assert 10 < len(table.ids) <= table.page
        for branch in [row for row in table.ids if row.startswith("layer:")]:
            console.screen.folding.chosen[branch] = False
        await console.press("j")
        await console.press("j")
        assert f"{len(table.ids) - table.top - table.page} more rows below" in console.text()

    in_console(scenario, folded=True)


def test_at_sixty_lines_every_branch_is_open() -> None:
    async def scenario(console: Console) -> None:
        assert not console.screen.folding.closed(console.screen.state.view, console.screen.page)

    in_console(scenario, size=(200, 60), folded=True)


def test_the_cursor_stays_on_its_row_when_a_branch_above_it_opens_by_itself() -> None:
    async def scenario(console: Console) -> None:
        table = console.screen.table
        assert "till" not in table.ids
        await console.press("G")
        on = table.cursor_id
        console.backend.change("till", fault="behind", behind_s=500.0)
        await console.show_ledger()
        assert "till" not in table.ids, "no row moves just after a key"
        console.pass_time(1.0)
        await console.show_ledger()
        assert "till" in table.ids and table.cursor_id == on
        console.backend.change("till", fault="", behind_s=0.0)
        console.pass_time(1.0)
        await console.show_ledger()
        assert "till" in table.ids and table.cursor_id == on

    in_console(scenario, folded=True)


def test_the_worst_statement_is_first_when_sorted_by_badness() -> None:
    async def scenario(console: Console) -> None:
        await console.press("tab", "o")
        assert console.screen.sort == "badness"
        assert next(iter(console.screen.table.ids)) == "orders_paid"

    in_console(scenario)
