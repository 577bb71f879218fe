"""The pairs of a release on its run's screen: at every width, limited in number, largest lag first."""

from dataclasses import replace

import pytest

from core.run.records import MigrationTicket
from core.run.release import ReleaseState
from tests.tui.presentation.reports.test_releases import BEHIND, NOW, ORDERS, PAIR, release
from tui.presentation.screen_content.releases import pairs_lines
from tui.presentation.screen_content.statement_rows import RowContext
from tui.presentation.styling.styled_text import line_width, plain
from tui.presentation.styling.theme import UNICODE

LOOK = RowContext(UNICODE, NOW)


def shown(width: int = 80, rows: int = 4, **known: object) -> list[str]:
    lines = pairs_lines(release(**known), width, rows, LOOK)  # type: ignore[arg-type]  # Fields of a release.
    assert all(line_width(one) <= width for one in lines)
    return [plain(one).rstrip() for one in lines]


def test_a_pair_has_both_versions_in_one_row_and_marks_what_serves() -> None:
    found = shown()
    assert found[-2:] == [
        "  * serves     VER  STATE        LAG NEW  STATE        LAG TREND        GATE",
        "  orders       v1*  ● running      0 v2   ● running    12k ▼ 4m left    closed",
    ]
    (wide,) = [plain(one) for one in pairs_lines(release(), 200, 4, LOOK, {ORDERS: (8, 4, None, 0)})[-1:]]
    assert "█▅ ▁" in wide
    assert "220/s" in wide and "980/s" in wide and "reading" in wide


@pytest.mark.parametrize(
    ("gate", "checks", "said"),
    [("gate", "waits", "closed"), ("done", "", "open"), ("done", "waits", "open"), ("done", "gate", "checking"),
     ("done", "done", "checked"), ("done", "failed", "differs"), ("failed", "blocked", "failed")],
)  # fmt: skip
def test_the_last_cell_says_how_far_a_version_is_let(gate: str, checks: str, said: str) -> None:
    assert shown(pairs=(replace(PAIR, gate=gate, checks=checks),))[-1].endswith(f" {said}")


def test_of_many_pairs_the_furthest_behind_are_shown_and_the_others_counted() -> None:
    pairs = tuple(
        replace(
            PAIR,
            table=f"t{n}",
            gate="done" if n == 9 else "gate",
            new=replace(PAIR.new, figures=replace(BEHIND, lag_rows=n)),
        )
        for n in range(10)
    )
    found = shown(rows=2, pairs=pairs)
    assert [row.split()[0] for row in found[-3:-1]] == ["t8", "t7"]
    assert found[-1] == " and 8 more pairs: headgate release show 9f2c-1"


def test_the_rollback_is_shown_below_once_a_new_version_serves() -> None:
    assert not any("rollback" in row for row in shown(state="hydrating"))
    assert shown(state="done", serves=True, blocked="")[-1] == " headgate rollback 9f2c-1"
    found = shown(state="observing", serves=True, blocked="", old_until=NOW + 60)
    assert sum("headgate rollback 9f2c-1" in row for row in found) == 1, "its verdict says it already"
    assert shown(state="done", serves=True, blocked="orders v1: it is deleted")[-1].endswith("orders v1: it is deleted")


def test_open_tickets_are_listed_at_the_end() -> None:
    one = MigrationTicket("9f2c-1", ORDERS, "BI", "", "", False, "orders__v1", "orders__v2", 4, NOW, NOW + 60)
    found = shown(tickets=(one,) * 5)
    assert sum("BI reads orders__v1" in row for row in found) == 3 and found[-1] == " and 2 more open tickets"


def test_a_ticket_is_never_cut_off_before_its_deadline() -> None:
    reader = "the monthly finance report"
    one = MigrationTicket("9f2c-1", ORDERS, reader, "", "bi-team", False, "orders__v1", "orders__v2", 4, NOW, NOW - 60)
    found = shown(80, tickets=(one,))
    assert max(map(len, found)) <= 80 and " ".join(" ".join(found).split()).endswith("(overdue)")


@pytest.mark.parametrize("state", ReleaseState)
@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_every_state_fits_every_width(state: str, width: int) -> None:
    assert shown(width, state=state, note="said")
