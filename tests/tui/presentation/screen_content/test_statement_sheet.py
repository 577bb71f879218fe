"""The sheet of a statement in its three widths, and the sheet of a table that others write."""

import json
from dataclasses import replace

import pytest

from core.model.names import TableName
from core.observed.table_statistics import LogHistory, TableStatistics
from core.observed.time_left import Bound, Left, TimeLeft
from state.ledger_snapshot import StatementDetails
from state.row_types import AuditRow, EventRow
from tests.terminal.in_memory_backend import FakeBackend
from tests.terminal.pizzeria_values import NOW
from tui.presentation.screen_content.audit_log_events import record_row
from tui.presentation.screen_content.inspector import branch_lines, event_lines, inspector_lines
from tui.presentation.screen_content.statement_detail import TABS, row_lines, tab_lines
from tui.presentation.screen_content.statement_rows import RowContext, columns_for, statement_row, tree_row
from tui.presentation.screen_content.statement_sheet import (
    sheet_lines,
    sheet_text,
    statement_sheet,
)
from tui.presentation.styling.styled_text import Tone, line_width, plain
from tui.presentation.styling.theme import UNICODE, WORDS_ALONE
from tui.presentation.view.ledger_view import make_ledger_view
from tui.presentation.view.statement_tree import by_product

LOOK = RowContext(UNICODE, NOW)
GONE = "pizzas has no table: /lake/pizzas has no _delta_log; correct LOCATION in ddl.pizzas.sql"
LOG = LogHistory(3, NOW - 9000, ((11, NOW - 900, 5), (12, NOW - 200, 7))).as_text()
FIGURES = TableStatistics(NOW - 5, 1_204_000, True, 12_000_000, 14, NOW - 7200, None, small_files=14, log_entries=2,
                          log_bytes=2_000, log=LOG)  # fmt: skip


def known(figures: TableStatistics, **deployed: str) -> StatementDetails:
    found = FakeBackend().detail("pizzas")
    about: dict[str, str] = {"format": "delta", "folder": "/lake/pizzas", "table_id": "id-1"}
    row = replace(found.versions[0], **(about | deployed))  # type: ignore[arg-type]  # names are those of the row
    return replace(found, versions=(row,), statistics=figures)


def overview(facts: StatementDetails, error: str = "", width: int = 80) -> list[str]:
    backend = FakeBackend()
    backend.change("pizzas", error=error)
    view = make_ledger_view(backend.current)
    sheet = statement_sheet(view.statements["pizzas"], facts, view, LOOK)
    return [plain(each).rstrip() for each in sheet_lines(sheet, LOOK, width)]


def test_an_input_shows_its_folder_contents_and_the_age_of_its_newest_version() -> None:
    assert overview(known(FIGURES)) == [
        " table      pizzas  external: written by others, only read by Headgate",
        " product    sales  dimension  owner sales-team",
        " read by    menu_sales@v1  oven_load@v4",
        " lies in    /lake/pizzas",
        " format     delta",
        " holds      1.2M rows  12 MB in 14 files, 14 below 16 MB  oldest 2h",
        " version    12, committed 3m 20s ago  the log begins with 3",
        " log        2 versions since its checkpoint, 2 kB",
        " id         id-1",
    ]


def test_a_version_shows_the_values_of_its_variables() -> None:
    found = known(FIGURES)
    given = replace(found.versions[0].texts, variables=(("days", "7"), ("region", "eu")))
    shown = replace(found, versions=(replace(found.versions[0], texts=given),))
    assert overview(shown)[-1] == " variables  days = 7  region = eu"


@pytest.mark.parametrize("table", ["oven_load", "orders_paid", "crm_orders", "pizzas"])
def test_inspector_console_and_terminal_have_the_same_facts(table: str) -> None:
    view = make_ledger_view(FakeBackend().current)
    facts = FakeBackend().detail(table)
    drawn = statement_sheet(view.statements[table], facts, view, LOOK)
    names = [fact.name for fact in drawn]
    for width in (58, 80, 200):
        lines = sheet_lines(drawn, LOOK, width)
        assert all(line_width(each) <= width for each in lines)
        shown = [fact.name for fact in drawn if fact.parts or width >= 80]
        assert [name for each in lines if (name := plain(each)[1:12].strip())] == shown
        text = "".join("".join(map(plain, lines)).split())
        for fact in drawn:
            assert all("".join(part.text.split()) in text for part in fact.parts), fact.name
            assert width < 80 or all("".join(part.text.split()) in text for part in fact.more), fact.name
    words = RowContext(WORDS_ALONE, NOW)
    printed = sheet_text(statement_sheet(view.statements[table], facts, view, words, by_key=False))
    assert [each[:12].strip() for each in printed] == names


@pytest.mark.parametrize(
    ("figures", "holds"),
    [(TableStatistics(), " holds      not measured"),
     (TableStatistics(at=NOW - 20, exact=False), " holds      not known: no table was there 20s ago"),
     (replace(FIGURES, rows=None, exact=False, earliest=None, small_files=0),
      " holds      ? rows  12 MB in 14 files")],
    ids=["never looked at", "gone", "no statistics"],
)  # fmt: skip
def test_an_unknown_figure_is_shown_as_unknown(figures: TableStatistics, holds: str) -> None:
    assert holds in overview(known(figures))


def test_figures_of_another_time_have_their_age() -> None:
    held = [each for each in overview(known(replace(FIGURES, at=NOW - 3700)), width=120) if "as of 1h 1m ago" in each]
    assert [each.split()[0] for each in held] == ["holds", "version", "log"]


def test_the_fault_of_an_input_is_shown_below_it_and_in_the_inspector() -> None:
    assert overview(known(TableStatistics()), GONE)[1:3] == [
        " error      pizzas has no table: /lake/pizzas has no _delta_log; correct",
        "            LOCATION in ddl.pizzas.sql",
    ]
    backend = FakeBackend()
    backend.change("pizzas", error=GONE)
    view = make_ledger_view(backend.current)
    entry = next(each for each in by_product(view, frozenset(), None, force_open=True) if each.name == "pizzas")
    shown = " ".join(" ".join(map(plain, inspector_lines(entry, known(FIGURES), view, LOOK, width=44))).split())
    assert "lies in /lake/pizzas" in shown and "1.2M rows" in shown and "has no _delta_log" in shown


def test_a_faulty_input_is_a_fault_in_tree_and_branch_and_a_healthy_one_is_not() -> None:
    backend, columns = FakeBackend(), columns_for(80, wide=False)
    well = make_ledger_view(backend.current)
    backend.change("pizzas", error=GONE)
    view = make_ledger_view(backend.current)
    pizzas = view.statements["pizzas"]
    assert (view.faults - well.faults, pizzas.faulty, well.statements["pizzas"].faulty) == (1, True, False)
    cell = next(span for span in statement_row(pizzas, columns, 80, LOOK) if "external" in span.text)
    assert (cell.text.strip(), cell.tone) == ("✖ external", Tone.BAD)
    rows = {each.id: each for each in by_product(view, frozenset({"layer:sales/dimension"}), None, force_open=False)}
    branch = rows["layer:sales/dimension"]
    assert plain(tree_row(branch, columns, 80, LOOK, view)).split() == ["▸", "dimensions", "(1)", "1", "wrong"]
    assert "has no _delta_log" in "\n".join(map(plain, branch_lines(branch, view, LOOK, 80)))
    assert "1 wrong" in plain(tree_row(rows["product:sales"], columns, 80, LOOK, view))
    for reader in pizzas.readers:
        backend.drop(reader)
    assert not make_ledger_view(backend.current).statements["pizzas"].faulty, "nobody reads it"


def test_an_input_has_no_version_of_ours_in_any_tab_or_list_of_events() -> None:
    view = make_ledger_view(FakeBackend().current)
    event = EventRow(1, NOW, "pizzas", 0, "exception", "HEADGATE_INPUT_NOT_READ", "cannot be read")
    facts = replace(known(FIGURES), events=(event,))
    for tab in TABS:
        shown = tab_lines(tab, view.statements["pizzas"], facts, view, look=LOOK, width=80)
        assert "v0" not in " ".join(map(plain, shown)), tab
    busy = make_ledger_view(replace(view.snapshot, events=(event,)))
    assert "pizzas: HEADGATE_INPUT_NOT_READ" in "".join(map(plain, event_lines(busy, LOOK, 80)))
    assert plain(record_row(event, 80, NOW)).split()[1] == "pizzas"


def test_a_branch_of_external_tables_has_no_statements_that_could_be_healthy() -> None:
    view = make_ledger_view(FakeBackend().current)
    branch = next(one for one in by_product(view, frozenset(), None, force_open=True) if one.id == "layer:crm/source")
    assert [plain(one).split() for one in branch_lines(branch, view, LOOK, 80)] == [["sources", "external"]]


def test_no_next_batch_is_promised_of_a_statement_that_has_ended() -> None:
    backend = FakeBackend()
    for state, promised in (("running", True), ("failed", False)):
        backend.change("till", state=state, batch_ms=None)
        view = make_ledger_view(backend.current)
        facts = statement_sheet(view.statements["till"], StatementDetails(TableName("till")), view, LOOK)
        assert ("from the next one on" in "\n".join(sheet_text(facts))) is promised


def test_a_stopped_statement_whose_position_is_lost_soon_is_in_sheet_sources_and_branch() -> None:
    bound = Bound.SLOT_SIZE.of(slot="s", kept=64 << 20, raised=128)
    left = TimeLeft(
        Left.LIMITED, bound, 3 * 3600.0, 9 * 3600.0, held_bytes=40_000_000, held_by="oven_load", held_version=4, at=NOW
    )
    backend = FakeBackend()
    backend.change("oven_load", state="stopped", wanted="stopped", fault="", time_left=left.as_text())
    view, later = make_ledger_view(backend.current), RowContext(UNICODE, NOW + 3600)
    oven = view.statements["oven_load"]
    facts = backend.detail("oven_load")
    assert facts.measurement is not None
    sources: tuple[dict[str, object], ...] = (
        {"table": "pizzas", "rows": 1, "time_left": left.as_json()},
        {"table": "orders", "rows": 2},
    )
    facts = replace(facts, measurement=replace(facts.measurement, sources=sources))
    sheet = {fact.name: [part.text for part in fact.parts] for fact in statement_sheet(oven, facts, view, later)}
    words = "the database keeps 67 MB of its log for the slot s"
    assert sheet["time left"] == ["about 2h", words, "40 MB of WAL kept for oven_load@v4, which does not run"]
    rows = [plain(each) for each in tab_lines("sources", oven, facts, view, look=later, width=100)]
    assert "LOST IN" in rows[0] and " 2h" in rows[1] and rows[2].rstrip().endswith("-")
    kitchen = next(row for row in by_product(view, frozenset(), None, force_open=True) if "oven_load" in row.tables)
    branch = " ".join(plain(each).strip() for each in branch_lines(kitchen, view, later, 200))
    assert f"Its position is kept for about 2h: {words}; raise it in the database: ALTER SYSTEM" in branch
    backend.change("pizzas", format="jdbc")
    view = make_ledger_view(backend.current)
    source = statement_sheet(view.statements["pizzas"], backend.detail("pizzas"), view, later)
    assert all(fact.name != "log kept" for fact in source), "a table that is not read by a slot keeps no log"
    backend.change("pizzas", format="postgres_changes")
    view = make_ledger_view(backend.current)
    source = statement_sheet(view.statements["pizzas"], backend.detail("pizzas"), view, later)
    held = next(fact for fact in source if fact.name == "log kept")
    assert held.parts[0].text == "40 MB of WAL kept for oven_load@v4, which does not run"


def test_one_row_in_one_file_is_no_plural() -> None:
    view, facts = make_ledger_view(FakeBackend().current), FakeBackend().detail("oven_load")
    assert facts.measurement is not None
    facts = replace(facts, measurement=replace(facts.measurement, lag_rows=1, lag_files=1))
    sheet = statement_sheet(view.statements["oven_load"], facts, view, LOOK)
    parts = next(fact.parts for fact in sheet if fact.name == "behind")
    assert [each.text for each in parts][1:3] == ["1 row", "1 file"]


def test_a_wide_audit_log_shows_every_action_in_full() -> None:
    entry = AuditRow(1, NOW, "agent", "policy_approve", "f9b560c2", outcome="done")
    assert "policy approve f9b560c2" in " ".join(plain(record_row(entry, 200, NOW)).split())
    assert line_width(record_row(entry, 80, NOW)) == 80


@pytest.mark.parametrize("width", [80, 200])
def test_the_last_column_of_rows_gets_the_rest_of_the_line(width: int) -> None:
    pizzas = [{"pizza": f"Quattro Formaggi {n}", "price": "10.50", "vegetarian": True} for n in range(2)]
    head, row = (plain(each) for each in row_lines(("id", "pizzas"), ((1, pizzas),), width))
    assert head.split() == ["id", "pizzas"] and len(row) <= width
    whole = f" 1   {json.dumps(pizzas)}"
    assert row == whole if width == 200 else row[-1] == "…" and whole.startswith(row[:-1]) and len(row) == 80
