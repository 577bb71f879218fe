from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from core.bench.made_up_sample import ComparedInSource, made_up_sample
from core.bench.replayed_load import (
    ReplayedLoad,
    SourceSample,
    begun_at,
    event_column,
    joined_values,
    key_columns,
)
from core.model.names import TableName

ORDERS, PAYMENTS = TableName("orders"), TableName("payments")
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def at(second: float) -> datetime:
    return BEGIN + timedelta(seconds=second)


ORDER_ROWS = tuple(
    {"id": n, "status": "open" if n % 3 else "void", "client": n % 4, "at": at(n - 5 * (n % 2))} for n in range(1, 41)
)
PAYMENT_ROWS = tuple({"id": f"p{n}", "order_id": n, "at": at(n + 1)} for n in range(1, 41) if n % 4)
SAMPLES = {
    ORDERS: SourceSample(
        ORDERS,
        (("id", "bigint"), ("status", "string"), ("client", "int"), ("at", "timestamp")),
        ORDER_ROWS,
        "at",
    ),
    PAYMENTS: SourceSample(
        PAYMENTS, (("id", "string"), ("order_id", "bigint"), ("at", "timestamp")), PAYMENT_ROWS, "at"
    ),
}
KEYS = key_columns(tuple(SAMPLES.values()))


def load() -> ReplayedLoad:
    return ReplayedLoad(SAMPLES, KEYS)


def test_keys_and_what_refers_to_them_are_found() -> None:
    assert {(ORDERS, "id"), (PAYMENTS, "id"), (PAYMENTS, "order_id")} == KEYS


@given(st.lists(st.floats(0.1, 50), min_size=1, max_size=20))
def test_totals_that_follow_each_other_give_every_row_once(steps: list[float]) -> None:
    made, total = load(), 0.0
    rows: dict[TableName, list[int]] = {ORDERS: [], PAYMENTS: []}
    for step in steps:
        for table, (first, count) in made.counts(total, total + step).items():
            rows[table] += range(first, first + count)
        total += step
    assert all(found == list(range(len(found))) for found in rows.values())
    assert abs(sum(map(len, rows.values())) - total) <= len(rows)


def test_three_cycles_repeat_no_key_and_keep_every_match() -> None:
    made = load()
    orders = made.rows(ORDERS, 0, 120, at_s=1e9, spread_s=60)
    payments = made.rows(PAYMENTS, 0, 90, at_s=1e9, spread_s=60)
    ids = {row["id"] for row in orders}
    assert len(ids) == 120
    assert len({row["id"] for row in payments}) == 90
    assert {row["order_id"] for row in payments} <= ids
    assert [row["status"] for row in orders] == [row["status"] for row in ORDER_ROWS] * 3
    assert {row["client"] for row in orders} == {0, 1, 2, 3}


def test_a_narrow_type_still_holds_the_renamed_key() -> None:
    sample = SourceSample(ORDERS, (("id", "int"),), tuple({"id": n} for n in range(100, 120)))
    made = ReplayedLoad({ORDERS: sample}, frozenset({(ORDERS, "id")}))
    assert all(0 <= row["id"] < 1 << 31 for row in made.rows(ORDERS, 10**9, 100, at_s=0, spread_s=0))  # type: ignore[operator]  # Values are objects.


@given(st.integers(0, 200), st.integers(1, 40), st.floats(0, 100))
def test_events_end_now_and_are_spread_as_in_the_sample(first: int, count: int, spread_s: float) -> None:
    rows = load().rows(ORDERS, first, count, at_s=1e9, spread_s=spread_s)
    events = [row["at"].timestamp() - 1e9 for row in rows]  # type: ignore[attr-defined]  # It is a datetime.
    assert max(events) == 0
    assert -spread_s - 1e-3 <= min(events)
    sample = [ORDER_ROWS[(first + n) % 40]["at"].timestamp() for n in range(count)]  # type: ignore[attr-defined]  # As above.
    assert [events.index(each) for each in sorted(events)] == [sample.index(each) for each in sorted(sample)] or (
        spread_s < 1e-3
    )


def test_padding_makes_a_column_longer_and_never_shorter() -> None:
    made = ReplayedLoad(SAMPLES, KEYS, {ORDERS: ("status", 5)})
    assert [row["status"] for row in made.rows(ORDERS, 0, 3, at_s=0, spread_s=0)] == ["openx", "openx", "voidx"]


def test_made_up_rows_match_and_contain_what_statements_compare() -> None:
    columns = (("id", "bigint"), ("status", "string"), ("tags", "array<string>"), ("at", "timestamp"))
    orders = made_up_sample(ORDERS, columns, {("status", True): ["paid"]}, event_column="at")
    payments = made_up_sample(PAYMENTS, (("order_id", "bigint"), ("at", "timestamp")), {}, event_column="at")
    assert [row["id"] for row in orders.rows] == [row["order_id"] for row in payments.rows]
    assert {row["status"] for row in orders.rows} == {"paid"}
    assert all(isinstance(row["tags"], list) for row in orders.rows)
    assert len({row["id"] for row in orders.rows}) == len(orders.rows)


def test_the_event_column_is_the_nearest_watermark_or_the_first_timestamp() -> None:
    columns = (("id", "int"), ("created", "timestamp"), ("paid_at", "timestamp"))
    assert event_column(columns, ["ts", "PAID_AT"]) == "paid_at"
    assert event_column(columns, []) == "created"
    assert event_column(columns[:1], ["id"]) == ""


def test_lateness_is_that_of_the_sample_in_its_order() -> None:
    assert load().lateness_s() == 4.0
    assert ReplayedLoad({PAYMENTS: SAMPLES[PAYMENTS]}, KEYS).lateness_s() == 0.0


CLIENTS = TableName("clients")


def clients(*values: object, made_up: bool = False) -> SourceSample:
    """Return a static side whose column `no` has values."""
    return SourceSample(CLIENTS, (("no", "string"),), tuple({"no": value} for value in values), made_up=made_up)


def joined(column: str, side: SourceSample, *, cycles: int = 1) -> list[object]:
    """Return what a column of the orders is in each row, if it is joined with that of a static side."""
    groups = {(ORDERS, column): "g", (CLIENTS, "no"): "g"}
    made = ReplayedLoad(SAMPLES, KEYS, joined=joined_values(tuple(SAMPLES.values()), [side], groups, KEYS))
    return [row[column] for row in made.rows(ORDERS, 0, 40 * cycles, at_s=0, spread_s=0)]


def test_keys_that_are_joined_with_a_static_side_move_on_through_its_values() -> None:
    side = clients(*range(1, 101))
    assert joined("id", side, cycles=2) == list(range(1, 81))
    assert joined("id", side, cycles=3)[80:] == [*range(81, 101), *range(1, 21)]


def test_other_joined_columns_keep_the_values_that_find_a_match() -> None:
    side = clients(3, 2, 1, 0, -5)
    assert joined("client", side, cycles=2) == [row["client"] for row in ORDER_ROWS] * 2


def test_values_without_a_match_are_those_of_the_sample_unless_none_has_one_or_rows_are_made_up() -> None:
    assert set(joined("client", clients(0, 1))) == {0, 1, 2, 3}
    assert set(joined("client", clients(7, 8))) == {7, 8}
    assert set(joined("client", clients(0, 1, made_up=True))) == {0, 1}
    assert joined("id", clients("x")) == [row["id"] for row in ORDER_ROWS], "text is no whole number"


def test_columns_that_together_are_joined_with_a_static_side_stay_together() -> None:
    side = SourceSample(CLIENTS, (("a", "bigint"), ("b", "int")), tuple({"a": n, "b": n % 4} for n in range(1, 200)))
    groups = {(ORDERS, "id"): "a", (CLIENTS, "a"): "a", (ORDERS, "client"): "b", (CLIENTS, "b"): "b"}
    made = ReplayedLoad(SAMPLES, KEYS, joined=joined_values(tuple(SAMPLES.values()), [side], groups, KEYS))
    rows = made.rows(ORDERS, 0, 120, at_s=0, spread_s=0)
    assert {(row["id"], row["client"]) for row in rows} <= {(row["a"], row["b"]) for row in side.rows}


def test_documents_in_text_are_no_keys() -> None:
    rows = tuple({"_content": f"text {n}", "body": f'{{"n": {n}}}', "id": f"{n}"} for n in range(20))
    sample = SourceSample(ORDERS, (("_content", "string"), ("body", "string"), ("id", "string")), rows)
    assert key_columns([sample]) == {(ORDERS, "id")}


def test_made_up_rows_of_a_static_side_match_by_texts_and_by_times() -> None:
    kinds = (("code", "string"), ("product", "bigint"), ("since", "timestamp"), ("until", "timestamp"))
    of = ComparedInSource({"code": "kind", "product": "product"}, ("until",), static=True, spaced=True)
    side = made_up_sample(CLIENTS, kinds, {}, event_column="since", compared=of)
    mine = made_up_sample(ORDERS, (("kind", "string"),), {}, event_column="", compared=ComparedInSource())
    assert {row["kind"] for row in mine.rows} <= {row["code"] for row in side.rows}
    assert len({row["product"] for row in side.rows}) == len(side.rows)
    begun = begun_at(side.rows, "since", BEGIN)
    assert [row["since"] for row in begun[:3]] == [at(0), at(10), at(20)]
    assert all(row["until"] > row["since"] for row in begun)  # type: ignore[operator]  # Datetimes.


def test_columns_that_join_two_streams_are_other_ones_in_each_cycle_also_in_lists() -> None:
    columns = (("id", "int"), ("pizzas", "array<int>"), ("note", "string"))
    rows = tuple({"id": 0, "pizzas": [n % 3, 1], "note": "same"} for n in range(20))
    pizzas = SourceSample(CLIENTS, (("id", "int"), ("at", "timestamp")), tuple({"id": n % 3} for n in range(30)))
    samples = (SourceSample(ORDERS, columns, rows), pizzas)
    groups = {(ORDERS, "pizzas"): "g", (CLIENTS, "id"): "g", (ORDERS, "id"): "alone"}
    keys = key_columns(samples, groups)
    assert keys == {(ORDERS, "pizzas"), (CLIENTS, "id")}
    made = ReplayedLoad({each.table: each for each in samples}, keys)
    assert made.rows(ORDERS, 21, 1, at_s=0, spread_s=0) == [{"id": 0, "pizzas": [11, 11], "note": "same"}]
    assert [row["id"] for row in made.rows(CLIENTS, 30, 3, at_s=0, spread_s=0)] == [10, 11, 12]
