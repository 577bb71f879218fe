"""Presentation as functions: filters, trees, rows and words, without an application."""

from dataclasses import replace
from pathlib import Path

import pytest

from core.model.states import State, Trend
from core.observed.table_statistics import TableStatistics
from core.plan.rendering import column_widths, plan_lines
from core.project.model import Pool
from core.text.diff import unified_diff
from state.ledger_snapshot import LedgerSnapshot, StatementDetails
from tests.support.ledger_rows import pool_row, statement_line
from tests.terminal.in_memory_backend import FakeBackend
from tests.terminal.pizzeria_values import NOW, sample_plan, sample_run
from tui.presentation.interaction import input_line as typing_line
from tui.presentation.interaction.confirmation_dialogs import ConfirmationDialog, OpenDialog, answer_key, answer_paste
from tui.presentation.interaction.filters import completions, parse_filter
from tui.presentation.interaction.input_line import InputLine
from tui.presentation.screen_content.changes import merge, row, summary
from tui.presentation.screen_content.home import first_frame_lines
from tui.presentation.screen_content.plan_review import columns, heading, losses, node_row, state_of_plan, summary_of
from tui.presentation.screen_content.runs import step_row
from tui.presentation.screen_content.screen_frame import ConsoleIdentity, banner_line, nothing_lines, standing_message
from tui.presentation.screen_content.statement_advice import spark_ui_words
from tui.presentation.screen_content.statement_detail import TABS, DeclaredDetails, tab_lines
from tui.presentation.screen_content.statement_rows import RowContext, columns_for, sort_key, statement_row, tree_row
from tui.presentation.styling.styled_text import (
    Tone,
    clean,
    colour_sql,
    difference,
    fit,
    line,
    line_width,
    plain,
    shorten,
    width_of,
    wrap,
)
from tui.presentation.styling.table_layout import header
from tui.presentation.styling.theme import (
    ASCII,
    STATE_TONES,
    TREND_TONES,
    UNICODE,
    choose_glyphs,
    choose_palette,
    sparkline,
)
from tui.presentation.styling.value_formatting import (
    age,
    clock,
    long_duration,
    rate,
    short_duration,
    short_number,
    short_size,
    took,
    trend_words,
)
from tui.presentation.view.ledger_view import freshness, make_ledger_view
from tui.presentation.view.statement_tree import by_lineage, by_product, folded_to_fit, health_of

VIEW = make_ledger_view(FakeBackend().current)
LOOK = RowContext(UNICODE, NOW)
ALL = None


def matching(text: str) -> set[str]:
    found = parse_filter(text)
    assert not found.problem
    return {name for name, statement in VIEW.statements.items() if found.match(statement)}


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("lag>1k", {"oven_load", "orders_paid"}),
        ("lag>1k state=running", {"oven_load"}),
        ("state=failed,stopped", {"orders_paid", "crm_orders"}),
        ("trend=draining", {"oven_load"}),
        ("product=crm !clients state!=stopped", set()),
        ("^orders", {"orders_paid"}),
        ("-f ovld", {"oven_load"}),
        ("errors>=3", {"orders_paid"}),
        ("staged=deploy", {"oven_load"}),
    ],
)
def test_filters_select_the_matching_rows(text: str, wanted: set[str]) -> None:
    assert matching(text) == wanted


@pytest.mark.parametrize("text", ["lag>many", "state=broken", "colour=red", "(", "!", "state>3"])
def test_an_invalid_filter_gives_the_reason_and_hides_nothing(text: str) -> None:
    found = parse_filter(text)
    assert found.problem
    assert all(found.match(statement) for statement in VIEW.statements.values())


def test_filters_complete_fields_and_values() -> None:
    assert "state=" not in completions("sta")
    assert completions("sta") == ("state", "staged")
    assert completions("lag>1 state=st") == ("lag>1 state=starting", "lag>1 state=stopping", "lag>1 state=stopped")


def test_the_tree_goes_from_products_to_layers_to_tables_and_rolls_up_the_worst() -> None:
    entries = by_product(VIEW, frozenset(), ALL, force_open=False)
    assert [entry.name for entry in entries if entry.kind == "product"] == ["crm", "kitchen", "sales"]
    kitchen = next(entry for entry in entries if entry.id == "product:kitchen")
    health = health_of(kitchen, VIEW)
    assert (health.word, health.trend, health.errors) == ("1 failed", Trend.GROWING, 3)
    layers = [entry.name for entry in entries if entry.kind == "layer" and entry.id.startswith("layer:kitchen")]
    assert layers == ["sources", "intermediates", "facts"]


def test_a_branch_in_which_rows_wait_is_not_idle() -> None:
    backend = FakeBackend()
    for one in backend.current.statements:
        backend.change(one.table, trend="idle", lag_rows=0, state="running")
    idle = make_ledger_view(backend.current)
    kitchen = next(entry for entry in by_product(idle, frozenset(), ALL, force_open=False) if entry.name == "kitchen")
    assert health_of(kitchen, idle).trend is Trend.IDLE
    backend.change("oven_load", trend="unknown", lag_rows=4000, state="starting")
    assert health_of(kitchen, make_ledger_view(backend.current)).trend is Trend.UNKNOWN
    backend.change("oven_load", lag_rows=0, state="stopped")
    assert health_of(kitchen, make_ledger_view(backend.current)).trend is Trend.IDLE


def test_a_closed_branch_hides_what_is_below_and_a_filter_opens_it() -> None:
    closed = frozenset({"product:kitchen"})
    assert "oven_load" not in {entry.id for entry in by_product(VIEW, closed, ALL, force_open=False)}
    assert "oven_load" in {entry.id for entry in by_product(VIEW, closed, ALL, force_open=True)}


def test_by_lineage_every_table_is_opened_once_and_named_below_each_other_parent() -> None:
    entries = by_lineage(VIEW, frozenset(), ALL, force_open=True)
    opened = [entry.name for entry in entries if entry.kind == "table"]
    assert sorted(opened) == sorted(VIEW.statements)
    assert {entry.name for entry in entries if entry.kind == "again"} == {
        "orders_paid", "oven_load", "menu_sales", "crm_orders",
    }  # fmt: skip
    assert len({entry.id for entry in entries}) == len(entries)


def test_a_chain_longer_than_python_s_recursion_is_a_tree_too() -> None:
    from tests.terminal.ledger_under_load import name_of, row_of

    rows = tuple(statement_line(row_of(index + 1, NOW), product="one") for index in range(39))
    view = make_ledger_view(LedgerSnapshot(read_at=NOW, statements=rows))
    assert [entry.depth for entry in by_lineage(view, frozenset(), ALL, force_open=True)] == list(range(39))
    assert view.statements[name_of(1)].readers == (name_of(2),)


def test_many_statements_begin_with_closed_layers() -> None:
    from tests.terminal.ledger_under_load import row_of

    lines = tuple(statement_line(row_of(index, NOW)) for index in range(200))
    view = make_ledger_view(LedgerSnapshot(read_at=NOW, statements=lines))
    assert len(by_product(view, folded_to_fit(view, 19), ALL, force_open=False)) == 17


@pytest.mark.parametrize("width", [80, 100, 132, 159, 200, 320])
@pytest.mark.parametrize("wide", [True, False])
@pytest.mark.parametrize("glyphs", [UNICODE, ASCII])
def test_rows_and_headings_have_the_width_they_were_given(width: int, wide: bool, glyphs) -> None:
    columns = columns_for(width, wide=wide)
    look = RowContext(glyphs, NOW)
    assert line_width(header(columns, width)) <= width
    for entry in by_product(VIEW, frozenset(), ALL, force_open=True):
        assert line_width(tree_row(entry, columns, width, look, VIEW)) <= width
    for statement in VIEW.statements.values():
        assert line_width(statement_row(statement, columns, width, look)) == line_width(header(columns, width))


@pytest.mark.parametrize("width", [80, 200])
def test_the_first_frame_fills_the_terminal_exactly(width: int) -> None:
    place = ConsoleIdentity("pizzeria", "prod", True, "alice")
    rows = first_frame_lines(place, VIEW, width=width, height=24 if width == 80 else 60, glyphs=UNICODE, now=NOW)
    assert len(rows) == (24 if width == 80 else 60)
    assert {line_width(one.line) for one in rows} == {width}
    assert "PROD protected" in plain(rows[0].line)


def test_every_state_and_trend_has_a_glyph_of_one_cell_and_a_tone() -> None:
    for glyphs in (UNICODE, ASCII):
        assert set(glyphs.states) == set(State)
        assert set(glyphs.trends) == set(Trend)
        for glyph in (*glyphs.states.values(), *glyphs.trends.values(), *glyphs.levels, glyphs.full, glyphs.mark):
            assert width_of(glyph) == 1
    assert set(STATE_TONES) == set(State)
    assert set(TREND_TONES) == set(Trend)


def test_figures_are_short() -> None:
    assert [short_number(value) for value in (None, 0, 12, 999, 1204, 41_200, 3_100_000)] == [
        "?", "0", "12", "999", "1.2k", "41k", "3.1M",
    ]  # fmt: skip
    assert [short_size(value) for value in (None, 512, 2_400_000, 1_300_000_000)] == ["?", "512 B", "2.4 MB", "1.3 GB"]
    assert [short_duration(value) for value in (None, 4, 660, 3600, 260_000)] == ["?", "4s", "11m", "1h", "3d"]
    assert [age(value) for value in (None, 4, 47, 660)] == ["-", "now", "40s", "11m"]
    assert [long_duration(value) for value in (72, 4320, 273_600, 5)] == ["1m 12s", "1h 12m", "3d 4h", "5s"]
    assert [took(value) for value in (None, 0.31, 58, 123)] == ["", "0.3 s", "58 s", "2m 3s"]
    assert (rate(None), rate(220.0), clock(None)) == ("-", "220/s", "")


def test_a_trend_without_an_estimate_is_its_own_word() -> None:
    assert trend_words(Trend.DRAINING, -3.0, 240.0) == "4m left"
    assert trend_words(Trend.GROWING, 15.0, None) == "+900/m"
    assert trend_words(Trend.DRAINING, -3.0, None) == "draining"
    assert trend_words(Trend.UNKNOWN, 3.0, 9.0) == "unknown"


def test_a_spark_is_scaled_to_its_maximum_and_shows_gaps() -> None:
    assert sparkline([0, None, 4, 8], 4, "▁▂▃▄▅▆▇█") == "▁ ▅█"
    assert sparkline([], 3, "▁█") == "   "


def test_freshness_says_live_stale_or_no_agent_and_why() -> None:
    snapshot = FakeBackend().current
    assert freshness(snapshot, NOW).words == "live 2s"
    stale = freshness(snapshot, NOW + 41)
    assert (stale.words, stale.stale, bool(stale.reason)) == ("STALE 40s", True, True)
    gone = freshness(replace(snapshot, facts=replace(snapshot.facts, agent_pid=None)), NOW + 7200)
    assert (gone.words, gone.agent, gone.no_agent) == ("NO AGENT 2h", False, True) and not stale.no_agent
    assert freshness(LedgerSnapshot(read_at=NOW), NOW).words == "reading"


def test_without_an_agent_the_status_line_says_that_this_is_the_last_known_state() -> None:
    snapshot = FakeBackend().current
    view = make_ledger_view(replace(snapshot, facts=replace(snapshot.facts, agent_pid=None)))
    assert "last known state" in standing_message(view, freshness(view.snapshot, NOW + 60), NOW + 60)[0]


def test_an_empty_environment_shows_the_next_step() -> None:
    facts = FakeBackend().current.facts
    view = make_ledger_view(LedgerSnapshot(read_at=NOW, facts=facts))
    text = "\n".join(
        plain(one) for one in nothing_lines(view, ConsoleIdentity("pizzeria", "dev", False, "alice"), "", 80)
    )
    assert "nothing is deployed in dev yet" in text
    assert "D stages" in text


def test_an_empty_environment_that_is_being_deployed_names_its_run() -> None:
    snapshot = LedgerSnapshot(read_at=NOW, facts=FakeBackend().current.facts, open_runs=(sample_run(NOW),))
    told = nothing_lines(make_ledger_view(snapshot), ConsoleIdentity("pizzeria", "dev", False, "alice"), "", 80)
    assert plain(told[-1]).strip() == "run 9f2c9f2c9f is open; :run shows its steps"


def test_a_list_of_faults_under_a_filter_counts_the_faults_that_the_filter_hides() -> None:
    place = ConsoleIdentity("pizzeria", "dev", False, "alice")
    said = nothing_lines(VIEW, place, "zzz", 120, faults_only=True)
    assert VIEW.faults and " ".join(plain(one).strip() for one in said).strip() == (
        f"no statement at fault matches /zzz: f shows all that match; {VIEW.faults} faults outside of the filter"
    )
    said = nothing_lines(VIEW, place, "zzz", 80)
    assert " ".join(plain(one).strip() for one in said).strip() == "no statement matches /zzz"


def test_a_list_of_faults_that_is_empty_does_not_call_stopped_statements_healthy() -> None:
    said = nothing_lines(VIEW, ConsoleIdentity("pizzeria", "dev", False, "alice"), "", 80)
    assert " ".join(plain(one).strip() for one in said).strip() == "no faults: f shows all again"


@pytest.mark.parametrize(("state", "tone"), [("up", Tone.DIM), ("starting", Tone.CHANGING), ("silent", Tone.BAD)])
def test_a_pool_that_starts_is_no_alarm(state: str, tone: Tone) -> None:
    assert VIEW.snapshot.facts is not None
    snapshot = replace(VIEW.snapshot, facts=replace(VIEW.snapshot.facts, pools=(pool_row(state=state),)))
    place = ConsoleIdentity("pizzeria", "dev", False, "alice")
    banner = banner_line(place, replace(VIEW, snapshot=snapshot), freshness(snapshot, NOW), 120)
    assert [span.tone for span in banner if span.text.strip("! ").startswith("pool ")] == [tone]
    assert any(span.text.startswith("! pool ") for span in banner) == (state == "silent")


def test_a_dead_pool_is_one_fault_that_is_named_also_where_only_faults_are_shown() -> None:
    assert VIEW.snapshot.facts is not None
    facts = replace(VIEW.snapshot.facts, pools=(pool_row(state="down", detail="exit code 137"),))
    view = replace(VIEW, snapshot=replace(VIEW.snapshot, facts=facts))
    said = "the pool local is down (exit code 137); headgate logs pool"
    place = ConsoleIdentity("pizzeria", "dev", False, "alice")
    assert standing_message(view, freshness(view.snapshot, NOW), NOW) == (said, None, Tone.BAD)
    shown = " ".join(" ".join(plain(one) for one in nothing_lines(view, place, "", 80)).split())
    assert shown == f"no statement is at fault: f shows all again. But {said}"


def test_the_banner_counts_the_problems_in_the_files() -> None:
    place = ConsoleIdentity("pizzeria", "dev", False, "alice")
    found = [plain(banner_line(place, VIEW, freshness(VIEW.snapshot, NOW), 120, problems_in_files=n)) for n in (0, 2)]
    assert ["2 problems in files" in text for text in found] == [False, True]


def test_the_banner_keeps_project_and_environment_at_any_width() -> None:
    place = ConsoleIdentity("pizzeria", "prod", True, "alice")
    for width in (80, 100, 200):
        text = plain(banner_line(place, VIEW, freshness(VIEW.snapshot, NOW), width))
        assert text.startswith(" pizzeria  PROD protected ")
        assert line_width(banner_line(place, VIEW, freshness(VIEW.snapshot, NOW), width)) == width


@pytest.mark.parametrize("tab", TABS)
@pytest.mark.parametrize("table", ["oven_load", "orders_paid", "pizzas", "crm_orders"])
def test_every_tab_of_the_detail_draws_for_every_kind_of_statement(tab: str, table: str) -> None:
    statement = VIEW.statement(table)
    assert statement is not None
    asked = FakeBackend()
    for facts in (asked.detail(table), StatementDetails(statement.table)):
        for declared in (asked.declared(table, ""), DeclaredDetails()):
            assert tab_lines(tab, statement, facts, VIEW, declared=declared, look=LOOK, width=80)


@pytest.mark.parametrize(("table", "differs"), [("oven_load", True), ("orders_paid", False)])
def test_the_lineage_tab_says_whose_columns_it_shows(table: str, differs: bool) -> None:
    statement, asked = VIEW.statement(table), FakeBackend()
    assert statement is not None
    drawn = tab_lines("lineage", statement, asked.detail(table), VIEW, declared=asked.declared(table, ""), look=LOOK,
                      width=80)  # fmt: skip
    (head,) = [plain(row) for row in drawn if plain(row).startswith(" COLUMNS")]
    assert head.startswith(" COLUMNS in the files") and (f"differ from v{statement.version} " in head) == differs


def test_the_detail_of_a_delta_table_shows_small_files_and_the_log_if_known() -> None:
    found = VIEW.statement("crm_orders")
    assert found is not None
    statement = replace(found, line=found.line._replace(format="delta"))
    figures = TableStatistics(LOOK.now - 59, 9, True, 20_000_000, 400, small_files=399, log_entries=7, log_bytes=8_000)

    def told(statistics: TableStatistics) -> list[str]:
        facts = replace(FakeBackend().detail("crm_orders"), statistics=statistics, measurement=None)
        shown = (plain(row) for row in tab_lines("overview", statement, facts, VIEW, look=LOOK, width=120))
        return [row.rstrip() for row in shown if row.startswith((" holds", " log"))]

    assert told(figures) == [
        " holds      182k rows  20 MB in 400 files, 399 below 16 MB",
        " log        7 versions since its checkpoint, 8 kB",
    ]
    older = told(replace(figures, at=LOOK.now - 300))
    assert older[0].endswith("399 below 16 MB  as of 5m ago") and older[1].endswith("checkpoint, 8 kB  as of 5m ago")
    unmeasured = replace(statement, line=statement.line._replace(at=None))
    facts = replace(FakeBackend().detail("crm_orders"), measurement=None)
    shown = tab_lines("overview", unmeasured, facts, VIEW, look=LOOK, width=80)
    assert " holds      not measured" in [plain(row).rstrip() for row in shown]


def test_terminal_control_sequences_in_text_are_drawn_as_blanks() -> None:
    assert clean("a\x1b[31mb\x07") == "a [31mb "
    assert plain(fit(line("\x1b]52;c;x\x07"), 12)) == " ]52;c;x    "


def test_texts_are_cut_by_cells() -> None:
    assert shorten("日本語", 5) == "日本…"
    assert [plain(one) for one in wrap("one two three", 8)] == ["one two", "three"]


def test_sql_and_its_differences_are_shown_without_secrets() -> None:
    old, new = "SELECT 1 -- x\nOPTIONS ('password' = 'hunter2')", "SELECT 1 -- x\nOPTIONS ('password' = 'hunter3')"
    assert [plain(row).strip() for row in colour_sql(old)][1] == "OPTIONS ('password' = '*****')"
    assert [plain(row).strip() for row in difference(old, new, 0)] == [
        "- OPTIONS ('password' = '*****')",
        "+ OPTIONS ('password' = '*****')",
    ]


def test_a_difference_is_marked_by_signs() -> None:
    text = [plain(one) for one in difference("a\nb\r\nc\n", "a\nx\nc")]
    assert text == ["     a", "   - b", "   + x", "     c"]
    assert difference("a\r\nb\n", "a\nb") == ()


@pytest.mark.parametrize("separator", ["\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029"])
def test_a_comment_continues_past_characters_that_end_no_line_in_spark(separator: str) -> None:
    text = f"SELECT 1 -- safe{separator}WHERE false"
    (only,) = (plain(one) for one in difference("SELECT 2", text) if plain(one).startswith("   +"))
    assert only.startswith("   + SELECT 1 -- safe") and only.endswith("WHERE false")
    assert [each for each in unified_diff("", text) if each.startswith("+")] == [f"+{text}"]
    assert len(colour_sql(text)) == 1


QUESTION = ConfirmationDialog("STOP till", (), "yes", "stop", "keep running", ("till",))


def answered(*keys: str, gap: float = 0.2) -> OpenDialog:
    state = OpenDialog(QUESTION, opened_at=0.0)
    now = 1.0
    for key in keys:
        now += gap
        state = answer_key(state, key, key if len(key) == 1 else None, now)
    return state


def test_only_the_complete_text_and_enter_confirm() -> None:
    assert answered("y", "e", "s", "enter").outcome == "yes"
    assert answered("enter").outcome == "safe"
    assert answered("escape").outcome == "no"
    assert answered("y", "e", "enter").outcome == ""
    assert answered("y", "e", "x", "backspace", "s", "enter").outcome == "yes"
    assert answered("y", "e", "s", "s", "enter").outcome == ""
    assert answered("n", "enter").note


def test_a_burst_never_confirms_and_a_second_enter_does() -> None:
    assert "all at once" in answered("y", "e", "s", "enter", gap=0.001).note
    state = answered("y", "e", "s", "enter", gap=0.001)
    assert answer_key(state, "enter", None, 5.0).outcome == "yes"


def test_a_dialog_is_deaf_at_first_and_never_takes_a_paste() -> None:
    assert answer_key(OpenDialog(QUESTION, opened_at=1.0), "enter", None, 1.39).outcome == ""
    assert answer_paste(OpenDialog(QUESTION, opened_at=0.0)).typed == ""


def test_typing_a_line() -> None:
    entry = InputLine("/", history=("old",))
    for key in ("a", "b", "left", "c", "end", "d"):
        entry = typing_line.type_key(entry, key, key if len(key) == 1 else None)
    assert entry.text == "acbd"
    assert typing_line.type_key(entry, "ctrl+w", None).text == ""
    assert typing_line.type_key(entry, "up", None).text == "old"
    assert typing_line.type_key(InputLine("/"), "backspace", None).done == "leave"
    assert typing_line.insert(InputLine(":"), "stop till\nyes\n").text == "stop till"
    assert typing_line.complete(InputLine(":", "st", 2), ("start", "stop")).text == "start"


def test_changes_combine_differences_and_staged_actions() -> None:
    backend = FakeBackend()
    drift = {one.table: one for one in backend.project().drift}
    changes = merge(drift, backend.staged_marks)
    assert [one.table for one in changes] == ["menu_sales", "oven_load"]
    assert summary(changes, "alice") == "2 differences   1 staged by you"
    assert summary(changes, "bob") == "2 differences   0 staged by you   1 by others"
    assert "D by alice" in plain(row(changes[1], 80, "alice"))


def test_a_plan_shows_its_losses_and_why_it_cannot_be_executed() -> None:
    plan = sample_plan()
    view = FakeBackend().plan("7f3a")
    assert view is not None
    assert summary_of(plan) == "2 rebuild, 1 record, 1 restart, 1 delete"
    assert losses(plan) == (
        "crm_orders: table crm_orders__v1, 18,220 rows, its checkpoint",
        "undo: headgate plan undo RUN --env dev  (soon)",
        "undo: order_items, oven_load: rebuild; reads 81 k rows again, ETA 41\N{EN DASH}95 s",
        "undo: no way back for crm_orders: its files are kept in the trash for 7 days after the run",
    )
    assert state_of_plan(plan, view.row, NOW) is None
    assert "expired" in state_of_plan(plan, view.row, NOW + 99_999)
    assert "applied" in state_of_plan(plan, replace(view.row, status="applied", run_id="7f3a-1"), NOW)
    assert "nothing" in state_of_plan(replace(plan, steps=()), view.row, NOW)
    for node in plan.nodes:
        assert line_width(node_row(node, column_widths(plan.nodes, 79))) <= 80
    assert plain(heading(plan, view.row, "dev", NOW, 80)[0]).startswith(" PLAN 7f3a")


def test_a_step_names_its_pending_condition() -> None:
    run = sample_run(NOW)
    assert "needs 2, 4" in plain(step_row(run.steps[4], (2, 4), (), 80, LOOK))


def test_statements_sort_worst_first_and_equal_ones_by_name() -> None:
    rows = sorted(VIEW.statements.values(), key=sort_key("lag"))
    assert [one.table for one in rows[:3]] == ["orders_paid", "oven_load", "crm_orders"]
    rows = sorted(VIEW.statements.values(), key=sort_key("state"))
    assert [one.table for one in rows] == [
        "orders_paid", "oven_load", "pizza_per_10s", "clients", "menu_sales", "order_items", "payments", "src_orders",
        "till", "crm_orders", "landed_clients", "landed_orders", "landed_payments", "pizzas",
    ], "failed, late, starting, running, stopped, external"  # fmt: skip


@pytest.mark.parametrize(
    ("environ", "palette"),
    [
        ({"TERM": "xterm-256color"}, "dark"),
        ({"TERM": "xterm-256color", "COLORFGBG": "0;15"}, "light"),
        ({"TERM": "xterm-256color", "NO_COLOR": "1"}, "mono"),
        ({"TERM": "xterm"}, "sixteen"),
        ({"TERM": "vt100"}, "mono"),
        ({"TERM": "xterm", "HEADGATE_THEME": "light"}, "light"),
    ],
)
def test_the_palette_follows_the_terminal(environ: dict[str, str], palette: str) -> None:
    assert choose_palette(environ).name == palette


def test_glyphs_follow_the_locale() -> None:
    assert choose_glyphs({"LANG": "de_DE.UTF-8"}) is UNICODE
    assert choose_glyphs({"LANG": "de_DE.UTF-8", "LC_ALL": "C"}) is ASCII
    assert choose_glyphs({}) is ASCII


def test_help_explains_every_sign_that_the_screens_show() -> None:
    from core.plan.descriptions import GLYPH_BY_ACTION

    folder = Path(__file__).parents[3] / "tui" / "help"
    plans, console = ((folder / f"{name}.md").read_text() for name in ("plans", "console"))
    for action, sign in GLYPH_BY_ACTION.items():
        assert f"\n    {sign}  {action}" in plans
    for word in ("stop", "plan", "none"):
        assert f"\n    {word} " in plans
    for sign in ("~12k", "ERR", "x3 shared", "[D] [X]", "AGE", "(S start)"):
        assert sign in console


def test_a_row_is_the_same_on_paper_and_on_screen() -> None:
    plan = sample_plan()
    printed = plan_lines(plan, 79)
    widths = column_widths(plan.nodes, 79)
    assert plain(columns(widths)).strip() in [line.strip() for line in printed]
    for node in plan.nodes:
        assert plain(node_row(node, widths)).strip() in [line.strip() for line in printed]


def test_a_statement_that_was_just_started_is_starting_and_not_stalled() -> None:
    pizzeria = FakeBackend()
    started = dict(trend="stalled", fault="stalled", trigger="10 seconds", started_at=NOW - 5, committed_at=NOW - 3600)
    pizzeria.change("till", **started, at=NOW - 1)
    till = make_ledger_view(pizzeria.current).statements["till"]
    shown = plain(statement_row(till, columns_for(120, wide=False), 120, LOOK))
    assert "starting" in shown and "stalled" not in shown
    assert not till.faulty
    for later in ({"at": NOW + 6}, {"committed_at": NOW - 2}):
        pizzeria.change("till", **started | {"at": NOW - 1} | later)
        assert make_ledger_view(pizzeria.current).statements["till"].faulty


def test_the_result_of_a_command_leaves_the_status_line_after_a_minute() -> None:
    live = freshness(VIEW.snapshot, NOW)
    assert "stop crm_orders: done" in standing_message(VIEW, live, NOW)[0]
    assert standing_message(VIEW, live, NOW + 31)[0] == ""


@pytest.mark.parametrize(
    ("pool", "said"),
    [
        (Pool(), "no Spark UI for browsers"),
        (Pool(master="spark://h:7077"), "no Spark UI for browsers; its executors at http://h:8080"),
        (
            Pool("eu", "sc://user:secret@spark-eu:15002/;token=secret"),
            "Spark UI of its server on spark-eu, port 4040 by default",
        ),
    ],
)
def test_the_spark_ui_is_named_by_host_alone(pool: Pool, said: str) -> None:
    assert spark_ui_words(pool) == said
