"""Folding of the tree: expanded if everything fits, quiet branches collapsed first; the user's choice prevails."""

from dataclasses import replace

import pytest

from tests.terminal.in_memory_backend import FakeBackend
from tui.presentation.view.ledger_view import LedgerView, make_ledger_view
from tui.presentation.view.statement_tree import (
    FoldingMode,
    TreeFolding,
    by_product,
    folded_to_fit,
    quiet_branches,
    rows_of,
)

KITCHEN_FACTS = "layer:kitchen/fact"


def view_of(**faults: str) -> LedgerView:
    """Return the view of the pizzeria with nothing staged and with faults by table."""
    backend = FakeBackend()
    backend.current = replace(backend.current, staged=())
    for line in backend.current.statements:
        backend.change(line.table, fault=faults.get(line.table, ""), state="running", wanted="running")
    return make_ledger_view(backend.current)


def shown(view: LedgerView, closed: frozenset[str]) -> int:
    return len(by_product(view, closed, None, force_open=False))


@pytest.mark.parametrize("closed", [frozenset(), frozenset({KITCHEN_FACTS}), frozenset({"product:crm", KITCHEN_FACTS})])
def test_rows_are_counted_as_the_tree_lists_them(closed: frozenset[str]) -> None:
    assert rows_of(view_of(), closed) == shown(view_of(), closed)


def test_as_much_as_fits_is_open_and_faulty_branches_always_are() -> None:
    view = view_of(till="behind")
    whole = shown(view, frozenset())
    assert folded_to_fit(view, whole) == frozenset()
    layers = folded_to_fit(view, whole - 1)
    assert "layer:sales/fact" not in layers and not any(branch.startswith("product:") for branch in layers)
    assert shown(view, layers) <= whole - 1
    fewest = folded_to_fit(view, 5)
    assert {"product:crm", "product:kitchen"} <= fewest and not {"product:sales", "layer:sales/fact"} & fewest


@pytest.mark.parametrize("rows", range(3, 40))
def test_no_row_stays_empty_that_a_closed_branch_could_fill(rows: int) -> None:
    view = view_of(till="behind")
    closed = folded_to_fit(view, rows)
    assert shown(view, closed) <= rows or closed == quiet_branches(view), "more than fits only where nothing can close"
    for branch in closed:
        product = f"product:{branch.split(':')[1].split('/')[0]}"
        if product == branch or product not in closed:
            assert shown(view, closed - {branch}) > rows


def test_a_branch_that_turns_unhealthy_opens_unless_a_person_has_closed_it() -> None:
    folding = TreeFolding()
    assert KITCHEN_FACTS in folding.closed(view_of(), 19)
    folding.chosen["layer:sales/fact"] = True
    closed = folding.closed(view_of(oven_load="behind", till="behind"), 19)
    assert KITCHEN_FACTS not in closed
    assert "layer:sales/fact" in closed


def test_a_branch_that_opened_by_itself_stays_open_after_recovery() -> None:
    folding = TreeFolding()
    folding.closed(view_of(), 19)
    folding.closed(view_of(oven_load="behind"), 19)
    assert KITCHEN_FACTS not in folding.closed(view_of(), 19)


def test_a_branch_opened_by_a_person_stays_open_in_a_smaller_terminal() -> None:
    folding = TreeFolding()
    folding.chosen["layer:crm/fact"] = False
    assert "layer:crm/fact" not in folding.closed(view_of(), 60)
    assert "layer:crm/fact" not in folding.closed(view_of(), 19)


def test_the_branch_of_the_cursor_is_not_closed_when_the_terminal_shrinks() -> None:
    folding = TreeFolding()
    assert not folding.closed(view_of(), 60)
    assert KITCHEN_FACTS not in folding.closed(view_of(), 19, ("product:kitchen", KITCHEN_FACTS))


def test_modes_that_show_the_same_are_passed_over() -> None:
    folding, view = TreeFolding(), view_of()
    modes = []
    for _ in range(3):
        folding.change_mode(view, 60)
        modes.append(folding.mode)
    assert modes == [FoldingMode.QUIET, FoldingMode.NONE, FoldingMode.QUIET]
