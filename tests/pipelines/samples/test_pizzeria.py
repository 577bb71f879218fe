"""The properties of the shipped sample, read from its texts."""

import re

import pytest
from expected_results import BUSY_FROM, EVENT_TIME, EXPECTED_TABLES, LATENESS_S_MAX, PAID_BOUND_MS, SEATED_BOUND_MS

from core.model.names import TableName
from core.project.model import Layer, Project
from core.project_reader.loader import read_project
from pipelines.demo.event_generator import MARGIN_MS
from pipelines.demo.event_simulation import FEEDS, FOLDER, dining_tables, menu


@pytest.fixture(scope="module")
def project() -> Project:
    files = [path for path in FOLDER.rglob("*") if path.suffix in (".yml", ".sql")]
    read, problems = read_project({path.relative_to(FOLDER).as_posix(): path.read_text() for path in files})
    assert problems == ()
    assert read is not None
    return read


def delays_s(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"DELAY OF INTERVAL (\d+) SECONDS", text)]


def test_it_has_sixteen_statements_in_three_products_and_all_layers(project: Project) -> None:
    statements = [table for table in project.tables.values() if not table.external]
    assert len(statements) == 16
    assert {table.product for table in statements} == {"kitchen", "sales", "crm"}
    assert {table.layer for table in statements} == set(Layer)
    assert {table.name for table in statements} == set(EXPECTED_TABLES)


def test_every_delay_is_longer_than_any_event_is_late_and_shorter_than_the_settling_margin(project: Project) -> None:
    found = [delay for table in project.tables.values() if table.dml for delay in delays_s(table.dml.text)]
    assert len(found) == 11
    assert min(found) > LATENESS_S_MAX and max(found) * 1000 < MARGIN_MS


def test_every_statement_with_state_has_a_watermark_on_each_stream(project: Project) -> None:
    stateful = [table for table in project.tables.values() if table.parsed and table.parsed.stateful]
    assert len(stateful) == 9
    for table in stateful:
        assert table.parsed
        assert all(read.watermark for read in table.parsed.reads if read.streaming), table.name


def test_all_tables_of_ours_are_parquet_in_append_mode_at_five_seconds_or_slower(project: Project) -> None:
    for table in project.tables.values():
        if not table.external:
            assert (table.parsed_ddl.format, table.settings.mode) == ("parquet", "append")
            assert 5 <= int(table.settings.trigger.removesuffix(" seconds")) <= 20


def test_only_pizzas_and_tables_are_static_and_all_that_changes_is_streamed(project: Project) -> None:
    reads = [read for table in project.tables.values() if table.parsed for read in table.parsed.reads]
    assert {read.table for read in reads if not read.streaming} == {"pizzas", "tables"}
    external = {table.name for table in project.tables.values() if table.external}
    assert external == {*FEEDS, "pizzas", "tables"}
    for feed, column in EVENT_TIME.items():
        ddl = project.tables[TableName(feed)].parsed_ddl
        assert ddl.location == f"landing/{feed}"
        assert next(c.type for c in ddl.columns if c.name == column) == "timestamp"


def test_the_order_items_are_shared_by_two_products(project: Project) -> None:
    readers = {table.product for table in project.tables.values() if table.parsed
               and "int_order_items" in {read.table for read in table.parsed.reads}}  # fmt: skip
    assert readers == {"kitchen", "sales"}


def test_the_router_is_one_unit_of_three_statements_over_one_input(project: Project) -> None:
    unit = [table for table in project.tables.values() if table.unit == "kitchen_tickets"]
    assert len(unit) == 3
    assert {read.table for table in unit if table.parsed for read in table.parsed.reads} == {"src_orders"}


def test_the_slowed_statement_is_a_stateless_leaf(project: Project) -> None:
    slowed = [table for table in project.tables.values() if table.parsed and any(r.options for r in table.parsed.reads)]
    assert [table.name for table in slowed] == ["order_labels"]
    assert slowed[0].parsed and not slowed[0].parsed.stateful
    assert not [t for t in project.tables.values() if t.parsed and "order_labels" in {r.table for r in t.parsed.reads}]


def test_the_reference_has_the_bounds_of_the_statements(project: Project) -> None:
    def text(table: str) -> str:
        dml = project.tables[TableName(table)].dml
        assert dml
        return dml.text

    assert f"o.order_time + INTERVAL {PAID_BOUND_MS // 1000} SECONDS" in text("int_paid_orders")
    assert f"s.time_in + INTERVAL {SEATED_BOUND_MS // 60_000} MINUTES" in text("int_seated_orders")
    assert f"pizzas >= {BUSY_FROM}" in text("vw_busy_windows")
    assert min(delays_s(text("fct_takings"))) * 1000 > PAID_BOUND_MS


def test_reference_data_has_a_row_for_closing_events() -> None:
    assert menu()[0] == ("closing", 0)
    assert dining_tables()[0] == ("closing", 0)
    assert len(menu()) == len(dining_tables()) == 5
