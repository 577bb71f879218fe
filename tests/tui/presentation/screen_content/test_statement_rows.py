"""Rows of the tree: levels, rows below the window, and outdated measurements."""

from dataclasses import replace

from tests.terminal.in_memory_backend import FakeBackend
from tests.terminal.pizzeria_values import NOW
from tui.presentation.screen_content.home import first_frame_lines
from tui.presentation.screen_content.screen_frame import ConsoleIdentity
from tui.presentation.screen_content.statement_rows import RowContext, columns_for, statement_row, tree_row
from tui.presentation.styling.styled_text import Tone, plain
from tui.presentation.styling.table_layout import header
from tui.presentation.styling.theme import UNICODE
from tui.presentation.view.ledger_view import make_ledger_view
from tui.presentation.view.statement_tree import by_lineage, by_product, folded_to_fit

LOOK = RowContext(UNICODE, NOW)
COLUMNS = columns_for(80, wide=False)


def first_letter(text: str) -> int:
    return next(place for place, letter in enumerate(text) if letter.isalnum())


def test_names_of_two_levels_never_begin_in_the_same_column() -> None:
    view = make_ledger_view(FakeBackend().current)
    for listing in (by_product, by_lineage):
        places: dict[int, set[int]] = {}
        for entry in listing(view, frozenset(), None, force_open=True):
            if entry.kind != "again":
                text = plain(tree_row(entry, COLUMNS, 80, LOOK, view))
                places.setdefault(first_letter(text), set()).add(entry.depth)
        assert len(places) > 2 and all(len(depths) == 1 for depths in places.values()), places


def test_behind_is_shown_before_rows_and_a_fault_differs_from_a_backlog() -> None:
    titles = plain(header(COLUMNS, 80)).split()
    assert titles.index("BEHIND") < titles.index("LAG")
    backend = FakeBackend()
    for fault, tone in (("", Tone.PLAIN), ("behind", Tone.BAD)):
        backend.change("till", behind_s=400.0, lag_rows=1, fault=fault, trend="steady", at=NOW)
        till = make_ledger_view(backend.current).statements["till"]
        spans = statement_row(till, COLUMNS, 80, LOOK)
        assert next(span.tone for span in spans if span.text.strip() == "6m") is tone
        assert till.faulty == bool(fault)


def test_a_starved_statement_shows_the_age_of_its_data() -> None:
    backend = FakeBackend()
    backend.change("till", trend="starved", fault="starved", data_age_s=200.0, behind_s=0.0, at=NOW)
    assert "starved 3m" in plain(statement_row(make_ledger_view(backend.current).statements["till"], COLUMNS, 80, LOOK))


def test_figures_of_another_time_are_dimmed() -> None:
    backend = FakeBackend()
    for age_s, tone in ((5.0, Tone.PLAIN), (61.0, Tone.DIM)):
        backend.change("till", behind_s=40.0, lag_rows=77, trend="steady", at=NOW - age_s)
        spans = statement_row(make_ledger_view(backend.current).statements["till"], COLUMNS, 80, LOOK)
        assert next(span.tone for span in spans if span.text.strip() == "77") is tone


def test_the_first_frame_says_how_many_rows_are_below_it() -> None:
    backend = FakeBackend()
    for line in backend.current.statements:
        backend.change(line.table, fault="behind")
    view = make_ledger_view(backend.current)
    identity = ConsoleIdentity("pizzeria", "dev", False, "ana")
    rows = len(by_product(view, folded_to_fit(view, 19), None, force_open=False))
    assert rows > 19
    for height in (24, 60):
        lines = first_frame_lines(identity, view, width=80, height=height, glyphs=UNICODE, now=NOW)
        assert (f"{rows - 19} more rows below" in plain(lines[1].line)) == (height == 24)


def test_a_folded_branch_says_how_many_tables_it_has_and_no_figures_of_external_ones() -> None:
    view = make_ledger_view(FakeBackend().current)
    closed = frozenset({"layer:crm/source", "layer:sales/fact"})
    rows = {entry.id: entry for entry in by_product(view, closed, None, force_open=False)}
    facts, sources = (
        plain(tree_row(rows[row], COLUMNS, 80, LOOK, view)) for row in ("layer:sales/fact", "layer:crm/source")
    )
    assert "facts (2)" in facts and "2 running" in facts and "steady" in facts
    assert sources.split()[1:] == ["sources", "(1)", "external"]


def test_an_external_table_has_no_figures_of_statements_and_no_trigger() -> None:
    backend = FakeBackend()
    statement = make_ledger_view(backend.current).statements["pizzas"]
    shown = plain(statement_row(statement, columns_for(200, wide=False), 200, RowContext(UNICODE, NOW)))
    assert shown.split() == ["pizzas", "\u00d72", "shared", "·", "external", "sales", "dimension", "sales-team"]
    copied = replace(statement, line=statement.line._replace(format="jdbc", started_at=NOW - 240))
    shown = plain(statement_row(copied, columns_for(200, wide=False), 200, RowContext(UNICODE, NOW)))
    assert shown.split()[5:] == ["4m", "sales", "dimension", "sales-team"], "the age of the copy"
