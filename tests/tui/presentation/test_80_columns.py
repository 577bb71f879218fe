"""At 80 columns nothing important is cut: text that does not fit is wrapped."""

from dataclasses import replace

import pytest

from core.model.errors import HeadgateError
from core.model.states import PoolState, State
from core.plan.model import Guard
from core.project.manifest_head import COLOURS
from state.row_types import PlanRow
from tests.terminal.in_memory_backend import FakeBackend
from tests.terminal.pizzeria_values import NOW, sample_plan, sample_run
from tests.tui.console_harness import Console, in_console
from tui.presentation.interaction.confirmation_dialogs import (
    ActionSummary,
    ConfirmationDialog,
    OpenDialog,
    dialog_for_statements,
    dialog_lines,
)
from tui.presentation.interaction.help_text import topic_lines
from tui.presentation.interaction.input_line import insert
from tui.presentation.screen_content import runs
from tui.presentation.screen_content.plan_review import heading, sections_below_rows
from tui.presentation.screen_content.screen_frame import (
    ConsoleIdentity,
    EnvironmentBadge,
    LaterCommands,
    banner_line,
    message_lines,
)
from tui.presentation.styling.styled_text import Line, Span, Tone, line, line_width, plain, wrap_line, wrap_lines
from tui.presentation.styling.theme import DARK, MONO, SIXTEEN, UNICODE
from tui.presentation.view.ledger_view import Access, freshness, make_ledger_view
from tui.services.help_topics import help_topic, help_topics

LONG = "orders_paid_by_card_and_delivered_to_the_door_of_the_client_v"


def words(lines: tuple[Line, ...]) -> str:
    """Return the words of a text, wherever it was wrapped."""
    return " ".join(" ".join(plain(one) for one in lines).split())


def test_a_wrapped_line_keeps_every_word_its_tones_and_its_indent() -> None:
    content = line("   LEFT BEHIND  ", ("crm_orders stays on order_items__v1 ", Tone.BAD), "x" * 50)
    rows = wrap_line(content, 30)
    assert all(line_width(row) <= 30 for row in rows)
    assert "".join(plain(row) for row in rows).replace(" ", "") == plain(content).replace(" ", "")
    assert all(plain(row).startswith("   ") for row in rows)
    assert any(span.tone is Tone.BAD for span in rows[0])
    assert wrap_line(line("short"), 30) == (line("short"),)


def test_a_message_takes_the_lines_it_needs_and_at_most_five() -> None:
    sentence = " ".join(f"word{n}" for n in range(20))
    rows = message_lines(sentence, NOW, Tone.BAD, 80)
    assert all(line_width(row) == 80 for row in rows)
    assert [word for row in rows for word in plain(row).split() if word.startswith("word")] == sentence.split()
    many = message_lines(" ".join(["word"] * 200), None, Tone.BAD, 80)
    assert len(many) == 5
    assert plain(many[4]).rstrip().endswith("…")
    assert len(message_lines("", None, Tone.DIM, 80)) == 1


@pytest.mark.parametrize("expected", ["yes", LONG])
def test_a_dialog_shows_target_environment_effect_command_and_confirmation_in_full(expected: str) -> None:
    facts = ActionSummary(
        "stop", (LONG,), frozenset(), ("a", "b"), "pizzeria PROD protected", f"headgate stop {LONG} --env prod",
        "data 2s old", expected,
    )  # fmt: skip
    box = dialog_lines(
        OpenDialog(dialog_for_statements(facts), 0.0, typed=expected, note=f"not `{expected}`"), 78, UNICODE
    )
    assert all(line_width(row) == 78 for row in box)
    inside = " ".join(plain(row)[2:-2].strip() for row in box)
    for told in ("in pizzeria PROD protected", LONG, "a, b", "data 2s old", "Enter alone, esc: keep running"):
        assert told in inside
    assert f"type {expected} and Enter to stop:" in inside
    assert f"{expected}▌" in inside


def test_the_question_on_leaving_is_readable_at_80_columns() -> None:
    async def scenario(console: Console) -> None:
        console.app.offer_down = True
        folder = f"--project ../{'a-long-folder-name/' * 3} --env dev"
        console.app.later = LaterCommands(f".venv/bin/headgate {folder}", f".venv/bin/headgate down {folder}")
        await console.press("q")
        assert all(len(row) <= 80 for row in console.dialog().splitlines())
        squeezed = "".join(console.dialog().replace("│", "").split())
        assert all(f"`{''.join(each.split())}`" in squeezed for each in console.app.later)
        said = " ".join(row.strip("│ ") for row in console.dialog().splitlines())
        assert "You lose only what this screen remembers: marks, filters, what was typed." in said
        assert "Statements and runs continue" in said and "staged tables stay staged" in said
        assert "generator" not in said
        assert "Enter alone: leave it running; esc: stay here" in said

    in_console(scenario)


def test_leaving_asks_nothing_when_no_agent_and_no_statement_runs() -> None:
    backend = FakeBackend()
    current = backend.current
    assert current.facts is not None
    backend.current = replace(
        current,
        facts=replace(current.facts, agent_pid=None),
        statements=tuple(one._replace(state=State.STOPPED) for one in current.statements),
    )

    async def scenario(console: Console) -> None:
        console.app.offer_down = True
        await console.press("q")
        assert console.app._exit and console.app.return_value == 0

    in_console(scenario, backend=backend)


def test_an_unknown_command_lists_all_there_are() -> None:
    async def scenario(console: Console) -> None:
        await console.press(":")
        await console.type("nonsense")
        await console.press("enter")
        said = " ".join(console.status().split())
        assert ":nonsense is unknown" in said
        assert said.endswith("vacuum")

    in_console(scenario)


def test_the_body_gives_the_lines_that_a_long_sentence_takes() -> None:
    async def scenario(console: Console) -> None:
        await console.press("G")
        last = console.screen.table.cursor_id
        console.app.state.notify(" ".join(["word"] * 40), Tone.BAD)
        console.screen.redraw()
        await console.pilot.pause()
        assert console.screen.status.size.height == 3
        assert last is not None and last in console.text()

    in_console(scenario)


def test_checks_steps_and_headings_of_a_plan_and_a_run_are_complete() -> None:
    check = Guard("retention", "warn", "the oldest file of src_orders is of 08-01 and 34 of 90 days would be missing")
    plan = replace(sample_plan(protected=True), guards=(check,))
    row = PlanRow(plan.hash, "", "somebody", NOW - 60, NOW - 5, "refused")
    assert "the plan is refused" in words(heading(plan, row, "PROD protected", NOW, 80))
    assert check.summary in words(wrap_lines(sections_below_rows(plan, 80, UNICODE), 80))
    run = replace(sample_run(NOW), state="failed", actor="somebody.else")
    top = runs.heading(run, "PROD protected", NOW, 80, UNICODE, planned=plan.steps)
    assert all(line_width(one) <= 80 for one in top)
    assert "by somebody.else" in words(top)
    assert runs.ending(run) in words(top)


def test_a_dialog_hides_the_whole_width_of_a_narrow_screen() -> None:
    async def scenario(console: Console) -> None:
        assert console.screen.table.choose("till")
        await console.press("T")
        rows = console.text().splitlines()
        top = next(index for index, row in enumerate(rows) if "STOP till" in row)
        box = rows[top : top + len(console.screen.question.lines)]
        assert all(row[0] in "┌│└" and row[79] in "┐│┘" for row in box)

    in_console(scenario)


def test_the_pages_of_help_fit_80_columns_where_they_are_tables() -> None:
    assert "changes" in help_topics()
    for name in help_topics():
        for row in topic_lines(help_topic(name), 80):
            assert line_width(row) <= 80, plain(row)


@pytest.mark.parametrize("width", [80, 100, 200])
def test_the_first_line_never_loses_the_environment_or_the_age_of_the_data(width: int) -> None:
    backend = FakeBackend(protected=True)
    facts = backend.current.facts
    assert facts is not None
    run = replace(sample_run(NOW), id="7f3a-01c2f")
    pools = (replace(facts.pools[0], name="spark-connect-eu-central-1", state=PoolState.SILENT),)
    facts = replace(facts, pools=pools, agent_seen_at=NOW - 42)
    view = make_ledger_view(replace(backend.current, facts=facts, open_runs=(run,)))
    place = ConsoleIdentity("the-payments-platform-of-the-company", "production-eu", True, "somebody.else.of.the.night")
    text = plain(banner_line(place, view, freshness(view.snapshot, NOW), width))
    assert len(text) == width
    assert " PRODUCTION-EU protected " in text
    assert "STALE 40s" in text
    for word in text.split():
        assert word.strip("…") in f"{place} {facts} run {run.id} STALE 40s ! 2 faults 1 staged PRODUCTION-EU protected"


def test_a_read_error_is_reported_once_and_not_every_half_second() -> None:
    class Failing(FakeBackend):
        asked = 0

        def audits(self):
            self.asked += 1
            raise HeadgateError("the ledger is gone", remedy="headgate up")

    backend = Failing()

    async def scenario(console: Console) -> None:
        console.app.tab.open_screen("audit")
        await console.until(lambda: "the ledger is gone. headgate up" in console.status(), "the sentence")
        said, asked = console.app.state.message, backend.asked
        for _ in range(3):
            console.pass_time(1.0)
            console.app.tab.read_now()
            await console.until(lambda before=asked: backend.asked > before, "another reading")
            asked = backend.asked
        await console.pilot.pause()
        assert console.app.state.message is said

    in_console(scenario, backend=backend)


def test_the_cursor_of_a_long_line_is_visible_and_so_is_the_hidden_rest() -> None:
    async def scenario(console: Console) -> None:
        await console.press(":")
        assert console.lines(console.screen.footer).rstrip().endswith("…")
        assert line_width(console.screen.footer.lines[0]) <= 80
        console.screen.typed.entry = insert(console.screen.typed.entry, "deploy " + "a" * 90 + " the_end")
        console.screen.redraw()
        await console.pilot.pause()
        assert "the_end▌" in console.text().splitlines()[22]

    in_console(scenario)


@pytest.mark.parametrize("colour", ["", *COLOURS])
@pytest.mark.parametrize("width", [30, 40, 78])
def test_the_environment_of_a_dialog_has_its_own_colour_and_its_words_in_every_palette(colour: str, width: int) -> None:
    identity = ConsoleIdentity("pizzeria", "prod", True, "ana", colour)
    question = ConfirmationDialog("STOP till in", (), "till", "stop", "keep running", place=identity.title)
    first, *_ = dialog_lines(OpenDialog(question, 0.0), width, UNICODE, tone=identity.tone)
    assert line_width(first) == width
    if width > 40:
        assert "STOP till in pizzeria PROD protected " in plain(first)
        assert Span("pizzeria PROD protected", identity.tone) in first
    assert {palette.paint(identity.tone).reverse for palette in (SIXTEEN, MONO)} == {True}
    assert DARK.paint(identity.tone).bg is not None


@pytest.mark.parametrize("width", [80, 120, 200])
@pytest.mark.parametrize("shown", [0, 5])
def test_many_open_environments_are_counted_and_those_with_faults_shown_first(shown: int, width: int) -> None:
    view = make_ledger_view(FakeBackend().current)
    names = [*(f"pr-{n}" for n in range(100, 108)), "dev", "PROD protected"]
    faults = {"PROD protected": 3, "pr-102": None}
    badges = tuple(
        EnvironmentBadge(name, Tone.OPEN, n == shown, faults.get(name, 0)) for n, name in enumerate(names)
    )  # fmt: skip
    place = ConsoleIdentity("the-payments-platform-of-the-company", names[shown], False, "alice")
    drawn = banner_line(place, view, freshness(view.snapshot, NOW), width, access=Access("read-only"), badges=badges)
    text = plain(drawn)
    assert line_width(drawn) == width
    assert f"[ {names[shown]} ]" in text and "read-only" in text and "live 2s" in text
    assert " PROD protected ! 3" in text and (" pr-102 ? " in text or width == 80)
    counted = int(left.split()[0]) if (left := text.partition(" +")[2]) else 0
    assert counted + sum(f" {name} " in text for name in names) == len(names)
