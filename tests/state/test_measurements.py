"""Samples thin out with age, stay small, and events are grouped by fingerprint."""

import random
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from ledger_rows import sample_row

from core.model.names import TableName
from core.observed.versions import Deployment, Measurement
from state.ledger import Ledger, LedgerReader
from state.row_types import EventRow, SampleRow

ORDERS, PAYMENTS = TableName("orders"), TableName("payments")
START = 1_800_000_000.0
HOUR, DAY = 3600, 24 * 3600
Made = Callable[..., Deployment]


def sample(at: float) -> SampleRow:
    return sample_row(
        at, lag_rows=int(at - START), lag_files=1, lag_bytes=2, in_rows_s=3.0, out_rows_s=4.0, batch_ms=5,
        produced_rows=6, consumed_rows=7,
    )  # fmt: skip


def deployed(ledger: Ledger, made: Made, *tables: str) -> None:
    for table in tables:
        ledger.put_deployment(made(table))


def fill(ledger: Ledger, seconds: int, every_s: int = 5) -> float:
    rounds = [START + offset for offset in range(0, seconds, every_s)]
    for first in range(0, len(rounds), 1000):
        ledger.add_samples(
            (table, 1, sample(at)) for at in rounds[first : first + 1000] for table in (ORDERS, PAYMENTS)
        )
    return rounds[-1] + every_s


def test_samples_are_read_by_version_and_time(ledger: Ledger, path: Path, deployment: Made) -> None:
    deployed(ledger, deployment, "orders", "payments")
    ledger.put_deployment(deployment("orders", 2))
    ledger.add_samples([(ORDERS, 1, sample(START)), (ORDERS, 2, sample(START)), (PAYMENTS, 1, sample(START + 5))])
    ledger.add_samples([(ORDERS, 1, sample(START + 5)), (ORDERS, 9, sample(START))])
    with LedgerReader(path) as reader:
        assert reader.samples(ORDERS, 1) == (sample(START), sample(START + 5))
        assert reader.samples(ORDERS, 1, since=START + 5) == (sample(START + 5),)
        assert reader.samples(ORDERS, 2) == (sample(START),)
        assert reader.samples(ORDERS, 9) == ()


def test_a_version_that_does_not_run_has_no_rates(ledger: Ledger, deployment: Made) -> None:
    deployed(ledger, deployment, "orders")
    ledger.put_measurements([Measurement(ORDERS, 1, START, lag_rows=7, in_rows_s=3.0, out_rows_s=4.0)])

    def rates() -> set[tuple[float | None, float | None]]:
        one = ledger.measurement(ORDERS, 1)
        assert one is not None and one.lag_rows == 7
        return {(m.in_rows_s, m.out_rows_s) for m in (one, *ledger.measurements(), *ledger.statements())}

    for state in ("running", "degraded", "unknown", "stopping"):
        ledger.update_deployment(ORDERS, 1, state=state)
        assert rates() == {(3.0, 4.0)}
    for state in ("stopped", "failed", "pending", "absent"):
        ledger.update_deployment(ORDERS, 1, state=state)
        assert rates() == {(None, None)}


def test_second_sample_of_one_moment_replaces_the_first(ledger: Ledger, deployment: Made) -> None:
    deployed(ledger, deployment, "orders")
    later = sample_row(START, lag_rows=99)
    ledger.add_samples([(ORDERS, 1, sample(START)), (ORDERS, 1, later)])
    assert ledger.samples(ORDERS, 1) == (later,)


def test_nothing_of_the_last_hour_is_thinned(ledger: Ledger, deployment: Made) -> None:
    deployed(ledger, deployment, "orders", "payments")
    now = fill(ledger, HOUR)
    before = ledger.samples(ORDERS, 1)
    ledger.thin_samples(now)
    assert ledger.samples(ORDERS, 1) == before and len(before) == 720


def test_after_an_hour_one_sample_per_minute_stays_and_thinning_is_idempotent(ledger: Ledger, deployment: Made) -> None:
    deployed(ledger, deployment, "orders", "payments")
    now = fill(ledger, 3 * HOUR)
    ledger.thin_samples(now)
    for table in (ORDERS, PAYMENTS):
        old = [s.at - START for s in ledger.samples(table, 1) if s.at < now - HOUR]
        assert old == list(range(0, 2 * HOUR, 60))
    kept = ledger.samples(ORDERS, 1)
    assert kept[0] == sample_row(START, lag_rows=0, lag_files=1, in_rows_s=3.0, out_rows_s=4.0, batch_ms=5)
    ledger.thin_samples(now)
    assert ledger.samples(ORDERS, 1) == kept


@pytest.mark.drill
def test_after_a_day_one_sample_per_quarter_of_an_hour_stays_and_after_a_week_none(
    ledger: Ledger, deployment: Made
) -> None:
    deployed(ledger, deployment, "orders", "payments")
    now = fill(ledger, 9 * DAY, every_s=60)
    ledger.thin_samples(now)
    ages = [now - s.at for s in ledger.samples(ORDERS, 1)]
    quarters, minutes = [a for a in ages if a > DAY], [a for a in ages if a <= DAY]
    assert quarters[0] <= 7 * DAY and len(quarters) == 6 * 24 * 4 and len(minutes) == 24 * 60
    assert all(before - after == 900 for before, after in pairwise(quarters))


def test_samples_at_odd_moments_are_thinned_by_version_and_no_version_loses_its_only_one(
    ledger: Ledger, deployment: Made
) -> None:
    deployed(ledger, deployment, "orders", "payments")
    ledger.add_samples([(ORDERS, 1, sample(START + 1.5)), (ORDERS, 1, sample(START + 6.5))])
    ledger.add_samples([(PAYMENTS, 1, sample(START + 41.3))])
    ledger.thin_samples(START + 2 * HOUR)
    assert [s.at - START for s in ledger.samples(ORDERS, 1)] == [1.5]
    assert [round(s.at - START, 1) for s in ledger.samples(PAYMENTS, 1)] == [41.3]


@pytest.mark.drill
def test_ten_thousand_statements_and_a_week_of_samples_stay_under_one_gigabyte(
    ledger: Ledger, path: Path, deployment: Made
) -> None:
    """Measured with 30 statements and pessimistic values, minus free pages and the size of an empty ledger."""
    count = 30
    tables = [TableName(f"t{n}") for n in range(count)]
    dice = random.Random(1)
    connection = ledger._connection
    (empty,) = connection.execute("PRAGMA page_count").fetchone()
    for table in tables:
        ledger.put_deployment(deployment(table, compiled="x" * 1500, texts=deployment("x").texts))

    def figures(at: float) -> SampleRow:
        big = dice.randrange(1 << 23, 1 << 31)
        return sample_row(
            at, lag_rows=big % (1 << 23), lag_files=900, lag_bytes=big, in_rows_s=big % 30_000 + 0.0,
            out_rows_s=big % 30_000 + 0.0, batch_ms=2500, produced_rows=big * 3, consumed_rows=big * 2,
        )  # fmt: skip

    spans = [(0, 6 * DAY, 900), (6 * DAY, 7 * DAY - HOUR, 60), (7 * DAY - HOUR, 7 * DAY, 5)]
    for first, last, every_s in spans:
        for offset in range(first, last, every_s):
            ledger.add_samples((table, 1, figures(START + offset)) for table in tables)
        ledger.thin_samples(START + last)
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    (free,) = connection.execute("PRAGMA freelist_count").fetchone()
    (size,) = connection.execute("PRAGMA page_size").fetchone()
    assert len(ledger.samples(tables[0], 1)) == 6 * 96 + 23 * 60 + 720
    assert (pages - free - empty) * size * (10_000 / count) < 1e9


def test_exceptions_of_one_fingerprint_are_counted_and_others_are_separate(ledger: Ledger) -> None:
    def failed(at: float, table: str, fingerprint: str, kind: str = "exception") -> int:
        return ledger.add_event(
            EventRow(
                id=0, at=at, table=table, version=1, kind=kind, summary="S", detail=f"at {at}", fingerprint=fingerprint
            )
        )

    first = failed(1.0, "orders", "zero")
    assert failed(5.0, "orders", "zero") == first
    assert len({first, failed(2.0, "orders", "cast"), failed(3.0, "payments", "zero")}) == 3
    assert [failed(4.0, "orders", "", kind="state") for _ in range(2)]
    newest, *others = ledger.events(ORDERS)
    assert (newest.count, newest.first_at, newest.at, newest.detail) == (2, 1.0, 5.0, "at 5.0")
    assert [event.count for event in others] == [1, 1, 1]
    assert len(ledger.events(limit=2)) == 2
