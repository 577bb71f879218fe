"""The columns of a table in Detail: their lineage as lines, and the keys that select one."""

from dataclasses import replace

import pytest

from core.lineage.column_lineage import LineageTracer
from core.model.names import TableName
from core.sql.lineage.model import ColumnOrigin
from tests.core.lineage.test_column_lineage import project
from tests.tui.console_harness import Console
from tests.tui.screens.test_screens import in_console
from tui.presentation.screen_content.lineage_tab import ColumnDetails, column_lines
from tui.presentation.styling.styled_text import line_width, plain


def facts(table: str, column: str, **dml: str) -> ColumnDetails:
    tracer = LineageTracer(project(**dml))
    at = ColumnOrigin(TableName(table), column)
    names = tuple(each.name for each in tracer.columns(at.table))
    return ColumnDetails(names, column, tracer.trace(at, "up"), tracer.trace(at, "down"))


def texts(found: ColumnDetails | None, width: int = 80) -> list[str]:
    return [plain(each).rstrip() for each in column_lines(found, width)]


def test_the_chosen_column_is_marked_and_traced_in_both_directions() -> None:
    assert [" ".join(text.split()) for text in texts(facts("kept", "kind"))] == [
        "",
        "COLUMNS in the files h and l choose another",
        "id [kind] amount",
        "",
        "kind STANDS ON",
        "kept.kind = kind",
        "landed.Kind external input: json in",
        "",
        "kind FEEDS",
        "kept.kind",
        "both.word = kind",
        "via q.kind = kind",
        "counted.kind = kind",
        "",
        "ROWS DECIDED BY",
        "kept WHERE kind <> 'x'",
        "kept FROM landed",
    ]


def test_a_wide_screen_names_types_and_files() -> None:
    (found,) = [text for text in texts(facts("kept", "amount"), 160) if "* 2" in text]
    assert found.split() == ["kept.amount", "int", "dml.kept.sql:4", "=", "amount", "*", "2"]


def test_the_address_of_an_external_input_is_not_cut_where_there_is_room() -> None:
    address = "jdbc:postgresql://127.0.0.1:37569/postgres#public.clients"
    found = facts("kept", "kind")
    assert found.up is not None
    nodes = tuple(replace(node, location=node.location and address) for node in found.up.nodes)
    for width in (80, 120, 240):
        shown = "".join("".join(texts(replace(found, up=replace(found.up, nodes=nodes)), width)).split())
        assert f"externalinput:json{address}" in shown


@pytest.mark.parametrize("width", [80, 200])
def test_no_line_is_wider_than_the_screen(width: int) -> None:
    long = "INSERT INTO kept SELECT id, kind, amount + " + " + ".join(["amount"] * 60) + " AS amount FROM STREAM landed"
    lines = column_lines(facts("kept", "amount", kept=long), width)
    assert max(line_width(each) for each in lines) <= width
    # Text that does not fit is wrapped, not cut.
    assert " + ".join(["amount"] * 61) in " ".join(" ".join(plain(each).split()) for each in lines)


def test_untraced_columns_are_reported() -> None:
    found = texts(facts("kept", "kind", kept="INSERT INTO kept SELECT id, lost AS kind, amount FROM STREAM landed"))
    assert " NOT TRACED" in found
    assert "   kept.kind: lost cannot be traced: no source has such a column" in found


def test_unread_and_unreadable_files_are_reported() -> None:
    assert texts(None)[-1] == "   reading the files"
    assert texts(ColumnDetails(missing="the project has 2 problems"))[-1] == "   the project has 2 problems"


@pytest.mark.parametrize("size", [(80, 24), (200, 60)])
def test_keys_choose_a_column_and_its_lineage_follows(size: tuple[int, int]) -> None:
    async def scenario(console: Console) -> None:
        console.app.tab.open_screen("detail", table="oven_load", tab="lineage")
        await console.until(lambda: "[pizza]" in console.text(), "the first column")
        await console.press("l")
        await console.until(lambda: "= length(pizza)" in console.text(), "the second column")
        await console.press("right")
        await console.until(lambda: "[pizza]" in console.text(), "the first column again")
        await console.press("h")
        await console.until(lambda: "[letters]" in console.text(), "the one before")

    in_console(scenario, size=size)


def test_on_another_pane_the_keys_say_where_columns_are() -> None:
    async def scenario(console: Console) -> None:
        console.app.tab.open_screen("detail", table="oven_load")
        await console.until(lambda: "VERDICT" in console.text(), "the overview")
        await console.press("l")
        await console.until(lambda: "columns are on pane 4, lineage" in console.text(), "the sentence")

    in_console(scenario)
