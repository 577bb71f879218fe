"""The inventory: the feeds and readers of each table, declared or only deployed, and the tables of a selection."""

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from core.observed.versions import Binding, StatementLine
from core.project.model import Layer, Project
from core.project_reader.loader import read_project
from core.reports.inventory import (
    InventoryEntry,
    InventoryReading,
    InventorySelection,
    inventory_of,
    select,
)
from tests.support.domain_builders import T, project, table
from tests.support.ledger_rows import deployment_row, statement_line

SAMPLE = Path(__file__).parents[3] / "pipelines/samples/pizzeria"


@cache
def sample() -> Project:
    texts = {path.relative_to(SAMPLE).as_posix(): path.read_text() for path in SAMPLE.rglob("*.*") if path.is_file()}
    found, problems = read_project(texts)
    assert found is not None, problems
    return found


def serving(*reads: str, **known: Any) -> StatementLine:
    """Return a serving version that streams from the named tables."""
    row = deployment_row(bindings=tuple(Binding(T(name), 1, True) for name in reads))
    return statement_line(row, **known)


def by_name(entries: tuple[InventoryEntry, ...]) -> dict[str, InventoryEntry]:
    return {str(entry.table): entry for entry in entries}


def names(entries: tuple[InventoryEntry, ...]) -> str:
    return " ".join(entry.table for entry in entries)


def test_the_sample_is_listed_by_name_with_inputs_and_readers_of_each_table() -> None:
    entries = inventory_of(sample(), {})
    assert [entry.table for entry in entries] == sorted(entry.table for entry in entries)
    items = by_name(entries)["int_priced_items"]
    assert (items.product, items.layer, items.external, items.stateful) == ("sales", Layer.INTERMEDIATE, False, False)
    assert items.parents == (InventoryReading(T("int_order_items"), True), InventoryReading(T("pizzas"), False))
    assert (items.children, items.products) == ((InventoryReading(T("fct_revenue"), True),), ())
    folder = "pipelines/intermediates/sales/int_priced_items"
    assert items.files == tuple(f"{folder}/sql-scripts/{kind}.int_priced_items.sql" for kind in ("ddl", "dml"))


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        (InventorySelection(cross_product=True), "int_order_items pizzas src_orders"),
        (InventorySelection(unused=True), "dim_clients int_seated_orders"),
        (
            InventorySelection(single_reader=True, products=("crm",)),
            "client_changes dim_seatings table_assignments tables",
        ),
        (InventorySelection(single_reader=True, cross_product=True), "pizzas"),
        (InventorySelection(products=("nobody",)), ""),
    ],
)
def test_a_selection_contains_the_tables_that_meet_all_conditions(selection: InventorySelection, expected: str) -> None:
    assert names(select(inventory_of(sample(), {}), selection)) == expected


def test_a_fact_that_nothing_reads_is_no_unused_table_and_a_dimension_is() -> None:
    found = by_name(inventory_of(sample(), {}))
    assert [found[name].unused for name in ("fct_revenue", "vw_busy_windows", "dim_clients")] == [False, False, True]


def test_a_table_that_is_read_streamed_and_static_by_one_statement_is_one_streamed_parent() -> None:
    found = by_name(inventory_of(project(src="", a="src src!"), {}))
    assert (found["a"].parents, found["src"].children) == (
        (InventoryReading(T("src"), True),),
        (InventoryReading(T("a"), True),),
    )


def test_deployed_but_undeclared_tables_are_listed_and_count_as_readers() -> None:
    found = by_name(inventory_of(project(src="", a="src"), {T("gone"): serving("a", product="crm")}))
    gone = found["gone"]
    assert (gone.declared, gone.product, gone.folder, gone.parents) == (
        False,
        "crm",
        "",
        (InventoryReading(T("a"), True),),
    )
    assert (found["a"].children, found["a"].products) == ((InventoryReading(T("gone"), True),), ("crm",))


def test_a_deployed_version_that_still_reads_what_its_text_no_longer_does_is_a_reader() -> None:
    found = by_name(inventory_of(project(src="", a="src", b="src", c="b"), {T("c"): serving("a")}))
    assert (found["c"].parents, found["a"].children) == (
        (InventoryReading(T("b"), True),),
        (InventoryReading(T("c"), True),),
    )


def test_products_are_those_of_other_readers_alone() -> None:
    declared = project(table("src"), table("a", "src"), table("b", "src", product="q"), table("c", "src", product="r"))
    assert by_name(inventory_of(declared, {}))["src"].products == ("q", "r")
