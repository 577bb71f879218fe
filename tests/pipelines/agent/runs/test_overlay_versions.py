"""The versions of an overlay and of its base as one set, and positions that both have read, found in real logs."""

from dataclasses import replace
from pathlib import Path

import pytest
from delta_files import WrittenLog
from ledger_rows import external_row
from overlay_ledgers import CHANGED, TwoLedgers, texts, two_ledgers
from spark_files import Consumer, WrittenTable

from core.model.names import TableName as T
from core.observed.aligned_positions import AlignedPair, Unaligned, newest_aligned
from core.observed.versions import Binding
from core.sql.comparison.row_effects import RowSide
from pipelines.agent.runs.common_positions import version_histories
from pipelines.agent.runs.differences_explained_by_release import of_release, starts_first
from pipelines.agent.runs.overlay_versions import OWN
from pipelines.storage.checkpoints import TableCheckpoints
from pipelines.storage.delta_readers import DeltaOffset


@pytest.fixture
def two(tmp_path: Path) -> TwoLedgers:
    return two_ledgers(tmp_path)


def test_an_inherited_table_is_the_version_of_the_base_and_no_version_has_the_number_of_another(
    two: TwoLedgers,
) -> None:
    deployed = two.versions.deployed()
    paid, report = (T("paid"), OWN + 1), (T("report"), OWN + 1)
    assert set(deployed) == {
        *((T("landed"), 0), (T("orders"), 2), (T("orders"), 3), (T("paid"), 1), (T("report"), 2)), paid, report,
    }  # fmt: skip
    assert deployed[paid].bindings == (Binding(T("orders"), 3, True),)
    assert deployed[report].bindings == (Binding(T("paid"), OWN + 1, True),)
    names = [two.versions.name(*key) for key in ((T("orders"), 3), paid, (T("landed"), 0))]
    assert names == ["orders@v3 of dev", "paid@v1 of pr-123", "landed of dev"]
    assert two.versions.find(*paid) == deployed[paid]
    assert set(two.versions.serving_here()) == {"paid", "report"}
    assert set(two.versions.serving_in_base()) == {"orders", "paid", "report"}


def test_an_external_table_at_another_location_is_another_source(two: TwoLedgers) -> None:
    two.own.put_deployment(external_row("landed", folder="/elsewhere", texts=texts("landed", location="/elsewhere")))
    two.put("pr-123", "paid", 1, "SELECT id, kind FROM STREAM landed")
    deployed = two.versions.deployed()
    assert deployed[T("paid"), OWN + 1].bindings == (Binding(T("landed"), OWN, True),)
    assert two.versions.name(T("landed"), OWN) == "landed of pr-123"


def test_a_topic_that_the_base_writes_is_the_version_that_writes_it(two: TwoLedgers) -> None:
    written = two.base.deployment(T("orders"), 3)
    assert written is not None
    two.base.put_deployment(replace(written, format="kafka"))
    two.own.put_deployment(external_row("orders", folder="kafka://b:9092/dev_orders", format="kafka", active=True))
    assert two.versions.deployed()[T("paid"), OWN + 1].bindings == (Binding(T("orders"), 3, True),)


def test_a_version_that_the_base_has_retired_is_not_mistaken_for_another(two: TwoLedgers) -> None:
    two.base.update_deployment(T("orders"), 3, drop_after=5.0)
    assert two.versions.deployed()[T("paid"), OWN + 1].bindings == (Binding(T("orders"), OWN, True),)


def test_the_branch_explains_differences_as_a_release_would(two: TwoLedgers) -> None:
    deployed = two.versions.deployed()
    files = TableCheckpoints("ledger-1")
    old, new = deployed[T("report"), 2], deployed[T("report"), OWN + 1]
    rows = of_release(files, two.versions, deployed, old, new).rows
    assert [(row.side, row.why) for row in rows] == [
        (RowSide.OLD, "paid: filter changed: id > 3 → id > 5"),
        (RowSide.NEW, "paid: filter changed: id > 3 → id > 5"),
    ]


def test_a_window_of_the_sources_explains_the_rows_from_before_it(two: TwoLedgers) -> None:
    two.put("pr-123", "paid", 1, "SELECT id, kind FROM STREAM orders WHERE id > 3", begins_where=("orders.id >= 9",))
    deployed = two.versions.deployed()
    old, new = deployed[T("paid"), 1], deployed[T("paid"), OWN + 1]
    (row,) = of_release(TableCheckpoints("ledger-1"), two.versions, deployed, old, new).rows
    assert (row.side, row.why) == (RowSide.OLD, "paid@v1 of pr-123 begins with orders.id >= 9")


@pytest.mark.parametrize(
    ("query", "sides"),
    [
        ("SELECT id, kind FROM STREAM orders WHERE id > 3", {RowSide.OLD}),
        ("SELECT max(id) AS id, kind FROM STREAM orders WHERE id > 3 GROUP BY kind", {*RowSide}),
    ],
)
def test_a_window_by_time_of_files_explains_rows_that_are_missing_and_no_others(
    query: str, sides: set[RowSide], two: TwoLedgers
) -> None:
    two.put("dev", "paid", 1, query, reads=3)
    two.put("pr-123", "paid", 1, query, begins_after="4 files written before noon")
    deployed = two.versions.deployed()
    old, new = deployed[T("paid"), 1], deployed[T("paid"), OWN + 1]
    rows = of_release(TableCheckpoints("ledger-1"), two.versions, deployed, old, new).rows
    assert {row.side for row in rows} == sides
    words = "paid@v1 of pr-123 begins with the rows after 4 files written before noon, in any number"
    assert {row.why for row in rows} == {words}


def test_downstream_of_a_window_the_window_is_named_before_the_edits(two: TwoLedgers) -> None:
    """The edit of `paid` is by `id`, which `report` does not have, so that no predicate shows which rows it drops."""
    of_kinds = "SELECT 1 AS id, kind FROM STREAM paid"
    two.put("pr-123", "paid", 1, CHANGED, begins_after="4 files written before noon")
    two.put("dev", "report", 2, of_kinds, reads=1)
    two.put("pr-123", "report", 1, of_kinds, reads=1)
    deployed = two.versions.deployed()
    old, new = deployed[T("report"), 2], deployed[T("report"), OWN + 1]
    found = starts_first(of_release(TableCheckpoints("ledger-1"), two.versions, deployed, old, new).rows)
    words = "paid: paid@v1 of pr-123 begins with the rows after 4 files written before noon, in any number"
    first = next(row for row in found if row.side is RowSide.OLD)
    assert (first.why, first.from_start) == (f"{words} or paid: filter changed: id > 3 → id > 5", True)


def test_downstream_of_a_window_the_window_is_the_reason_why_a_total_is_not_compared(two: TwoLedgers) -> None:
    totals = "SELECT count(*) AS id, kind FROM STREAM paid GROUP BY kind"
    two.put("pr-123", "paid", 1, CHANGED, begins_after="4 files written before noon")
    two.put("dev", "report", 2, totals, reads=1)
    two.put("pr-123", "report", 1, totals, reads=1)
    deployed = two.versions.deployed()
    old, new = deployed[T("report"), 2], deployed[T("report"), OWN + 1]
    changed = of_release(TableCheckpoints("ledger-1"), two.versions, deployed, old, new).changed
    assert changed["id"].startswith("paid: paid@v1 of pr-123 begins with the rows after")


def aligned(two: TwoLedgers, table: str, old: int) -> AlignedPair | Unaligned:
    key = (T(table), OWN + 1)
    histories = version_histories(TableCheckpoints("ledger-1"), two.versions.deployed(), (T(table), old), key)
    return newest_aligned(histories, (T(table), old), key, name=two.versions.name)


def test_a_parquet_table_gives_the_same_position_read_by_its_owner_and_as_an_external_table(two: TwoLedgers) -> None:
    raw = WrittenTable(two.folder / "raw")
    uris = [raw.write() for _ in range(3)]
    orders = WrittenTable(Path(two.at("dev", "orders", 3)))
    reader = Consumer(Path(two.at("dev", "orders", 3, "checkpoints")))
    base = Consumer(Path(two.at("dev", "paid", 1, "checkpoints")))
    written = []
    for uri in uris:
        reader.commit(uri)
        written.append(orders.write())
        base.commit(written[-1])
    ours = Consumer(Path(two.at("pr-123", "paid", 1, "checkpoints")))
    assert aligned(two, "paid", 1) == Unaligned("it is unknown what paid@v1 of pr-123 had read at its last batches")
    ours.commit(*written[:2])
    assert aligned(two, "paid", 1) == AlignedPair(1, 0)
    ours.commit(written[2])
    assert aligned(two, "paid", 1) == AlignedPair(2, 1)


def test_a_reader_of_a_built_table_is_aligned_through_it(two: TwoLedgers) -> None:
    orders = WrittenTable(Path(two.at("dev", "orders", 3)))
    written = [orders.write() for _ in range(3)]
    for environment, cuts, version in (("dev", ([0], [1], [2]), 2), ("pr-123", ([1, 0], [2]), 1)):
        paid = WrittenTable(Path(two.at(environment, "paid", 1)))
        reads = Consumer(Path(two.at(environment, "paid", 1, "checkpoints")))
        report = Consumer(Path(two.at(environment, "report", version, "checkpoints")))
        for cut in cuts:
            reads.commit(*(written[n] for n in cut))
            report.commit(paid.write())
    assert aligned(two, "report", 2) == AlignedPair(2, 1)


def delta_batch(checkpoint: Path, batch: int, offset: DeltaOffset) -> None:
    for name, text in (("offsets", f'v1\n{{"batchWatermarkMs":0}}\n{offset.line}'), ("commits", "v1\n{}")):
        (checkpoint / name).mkdir(parents=True, exist_ok=True)
        (checkpoint / name / str(batch)).write_text(text)
    (checkpoint / "metadata").write_text('{"id":"q-1"}')


def test_a_delta_table_gives_the_same_position_read_by_its_owner_and_as_an_external_table(tmp_path: Path) -> None:
    two = two_ledgers(tmp_path, format="delta")
    log = WrittenLog(Path(two.at("dev", "orders", 3)))
    base, ours = (Path(two.at(each, "paid", 1, "checkpoints")) for each in ("dev", "pr-123"))
    for batch in range(3):
        log.commit(5, batch=("orders-query", batch))
        delta_batch(base, batch, DeltaOffset(log.id, batch + 2, -1, False))
    assert two.versions.deployed()[T("paid"), OWN + 1].bindings == (Binding(T("orders"), 3, True),)
    delta_batch(ours, 0, DeltaOffset(log.id, 1, 0, True))
    assert isinstance(aligned(two, "paid", 1), Unaligned), "half of a snapshot is no position of the base"
    delta_batch(ours, 1, DeltaOffset(log.id, 3, -1, False))
    assert aligned(two, "paid", 1) == AlignedPair(1, 1)


def test_a_base_that_has_moved_on_is_not_mistaken_for_the_version_that_is_read(two: TwoLedgers) -> None:
    two.put("dev", "orders", 4, "SELECT id, kind FROM STREAM landed WHERE id > 1", active=True)
    two.put("dev", "paid", 1, "SELECT id, kind FROM STREAM orders WHERE id > 3", reads=4)
    deployed = two.versions.deployed()
    bindings = [deployed[T("paid"), number].bindings[0].version for number in (1, OWN + 1)]
    assert bindings == [4, 3]


def test_a_view_as_of_now_does_not_read_the_versions_again(two: TwoLedgers) -> None:
    now = two.versions.as_of_now()
    two.base.update_deployment(T("paid"), 1, drop_after=5.0)
    assert (T("paid"), 1) in now.deployed() and now.find(T("paid"), 1) == now.deployed()[T("paid"), 1]
    assert (T("paid"), 1) not in now.as_of_now().deployed()
