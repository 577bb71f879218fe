"""One second of the pizzeria: determined by ids, identical in every byte, with bounded lateness."""

import json
from collections import Counter

from expected_results import EVENT_TIME, LATENESS_S_MAX, PAID_BOUND_MS, event_ms

from pipelines.demo.event_simulation import (
    FEEDS,
    PAID_WITHIN_MS,
    GeneratorState,
    LinesByFeed,
    closing_events,
    generator_state_from_json,
    simulate_second,
    take_pending,
)

START_MS = 1_800_000_000_000


def seconds(
    count: int, *, rate: float = 20.0, book: GeneratorState | None = None, start_ms: int = START_MS
) -> list[LinesByFeed]:
    book = book if book is not None else GeneratorState()
    return [simulate_second(book, start_ms + 1000 * n, rate) for n in range(count)]


def rows(landed: list[LinesByFeed], feed: str) -> list[dict[str, object]]:
    return [json.loads(line) for second in landed for line in second[feed]]


def test_same_seed_and_same_clock_give_the_same_bytes() -> None:
    assert seconds(40) == seconds(40)
    assert seconds(40) != seconds(40, book=GeneratorState(seed=8))


def test_an_id_decides_its_event_whatever_the_clock_says() -> None:
    def clocked_out(start_ms: int) -> dict[object, object]:
        return {row["id"]: (row["channel"], row["status"], row["pizzas"])
                for row in rows(seconds(30, start_ms=start_ms), "orders")}  # fmt: skip

    assert clocked_out(START_MS) == clocked_out(START_MS + 123_456)


def test_ids_grow_without_gap_and_a_repeated_id_is_a_repeated_line() -> None:
    landed = seconds(120)
    for feed in FEEDS:
        lines = [line for second in landed for line in second[feed]]
        first_seen = [json.loads(line)["id"] for line in dict.fromkeys(lines)]
        assert len(set(first_seen)) == len(first_seen)
        if feed != "payments":  # A payment gets its id with the order, and lands when it is due.
            assert first_seen == list(range(1, len(first_seen) + 1))


def test_duplicates_are_byte_identical_and_never_in_the_file_of_their_original() -> None:
    landed = seconds(200)
    for feed in FEEDS:
        assert all(len(set(second[feed])) == len(second[feed]) for second in landed)
        times = Counter(line for second in landed for line in second[feed])
        repeated = sum(count > 1 for count in times.values())
        assert set(times.values()) == {1, 2}
        assert 0.01 < repeated / len(times) < 0.12


def test_lateness_occurs_and_stays_below_its_bound() -> None:
    landed = seconds(300)
    for feed in FEEDS:
        newest, late_ms_max = 0, 0
        for second in landed:
            times = [event_ms(json.loads(line), feed) for line in second[feed]]
            late_ms_max = max([late_ms_max, *(newest - at for at in times)])
            newest = max([newest, *times])
        assert 2_000 < late_ms_max <= LATENESS_S_MAX * 1000


def test_no_event_is_in_the_future() -> None:
    for n, second in enumerate(seconds(60)):
        for feed in FEEDS:
            assert all(event_ms(json.loads(line), feed) <= START_MS + 1000 * n for line in second[feed])


def test_payments_refer_to_orders_and_are_made_within_the_bound_of_the_join() -> None:
    landed = seconds(120)
    ordered = {row["id"]: event_ms(row, "orders") for row in rows(landed, "orders")}
    waits = [event_ms(row, "payments") - ordered[row["order_id"]] for row in rows(landed, "payments")]
    assert len(waits) > 1000
    assert min(waits) >= 2_000
    assert max(waits) <= PAID_WITHIN_MS < PAID_BOUND_MS


def test_seatings_refer_to_known_clients_and_orders_to_seatings_before_them() -> None:
    landed = seconds(120)
    clients = {row["client_id"] for row in rows(landed, "client_changes")}
    seated = {row["id"]: event_ms(row, "table_assignments") for row in rows(landed, "table_assignments")}
    assert {row["client_id"] for row in rows(landed, "table_assignments")} <= clients
    at_tables = [row for row in rows(landed, "orders") if row["assignment_id"] is not None]
    assert len(at_tables) > 500
    assert all(seated[row["assignment_id"]] <= event_ms(row, "orders") for row in at_tables)


def test_a_saved_generator_state_continues_as_if_it_had_never_been_saved() -> None:
    book = GeneratorState()
    seconds(30, book=book)
    again = generator_state_from_json(json.loads(json.dumps(book.as_json())))
    later = START_MS + 30_000
    assert seconds(20, book=again, start_ms=later) == seconds(20, book=book, start_ms=later)


def test_a_fraction_of_an_order_a_second_adds_up() -> None:
    book = GeneratorState()
    seconds(100, rate=0.25, book=book)
    assert book.next_id["orders"] == 26


def test_rate_zero_lands_only_what_is_due() -> None:
    book = GeneratorState()
    seconds(10, book=book)
    rest = seconds(60, rate=0.0, book=book, start_ms=START_MS + 10_000)
    assert book.pending == []
    assert not [second for second in rest[30:] if any(second.values())]
    assert any(second["payments"] for second in rest[:20])


def test_taking_all_that_is_pending_keeps_duplicates_apart() -> None:
    book = GeneratorState(pending=[(5, "orders", "a"), (6, "orders", "a"), (9, "payments", "b")])
    assert take_pending(book, None) == {
        "orders": ["a"], "payments": ["b"], "table_assignments": [], "client_changes": []
    }  # fmt: skip
    assert book.pending == [(6, "orders", "a")]


def test_closing_events_have_negative_ids_that_refer_to_each_other_and_are_never_used_again() -> None:
    book = GeneratorState()
    first, second = closing_events(book, START_MS), closing_events(book, START_MS + 600_000)
    for number, lines in ((-1, first), (-2, second)):
        found = {feed: json.loads(lines[feed][0]) for feed in FEEDS}
        assert {event["id"] for event in found.values()} == {number}
        assert found["payments"]["order_id"] == found["orders"]["assignment_id"] == number
        times = [event_ms(found[feed], feed) for feed in ("table_assignments", "orders", "payments")]
        assert times == sorted(times) and times[-1] - times[0] <= 2_000
    assert book.newest_ms == START_MS + 602_000


def test_every_feed_has_its_event_time() -> None:
    landed = seconds(30)
    assert all(EVENT_TIME[feed] in row for feed in FEEDS for row in rows(landed, feed))
