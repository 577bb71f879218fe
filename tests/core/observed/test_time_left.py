"""The time until a position is lost: of topics, logs, slots and files, and what an observer can never conclude."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.observed.time_left import (
    DAY_S,
    Bound,
    Growth,
    Left,
    PartitionPosition,
    SlotState,
    TimeLeft,
    TopicSettings,
    lost,
    shortest,
    time_left_from_json,
    time_left_in_files,
    time_left_in_log,
    time_left_in_slot,
    time_left_in_topic,
    time_left_of,
)

NOW = 1_790_000_000.0
WEEK_S = 7 * DAY_S
TOPIC = TopicSettings("orders", "k:9092", kept_s=WEEK_S)
SLOT = SlotState("s", NOW, end=3 << 20, begins=1 << 20, kept=64 << 20, free=62 << 20)


def in_topic(settings: TopicSettings, *partitions: PartitionPosition, message: float | None = 100.0) -> TimeLeft:
    return time_left_in_topic(settings, partitions, message=message, now=NOW)


def test_a_message_stays_for_the_retention_after_its_time_and_the_oldest_partition_decides() -> None:
    behind, ahead = PartitionPosition(5, 0, NOW - 6 * DAY_S), PartitionPosition(5, 0, NOW - DAY_S)
    found = in_topic(TOPIC, ahead, behind)
    assert (found.kind, found.seconds, found.full_s) == (Left.LIMITED, DAY_S, WEEK_S)
    assert found.words == "at least 1d: Kafka deletes messages of orders 7d after their time"
    assert found.bound.remedy == (
        "raise its retention: kafka-configs.sh --bootstrap-server k:9092 --alter --entity-type topics "
        "--entity-name orders --add-config retention.ms=1209600000"
    )


def test_a_statement_that_has_read_everything_has_the_whole_retention() -> None:
    found = in_topic(TOPIC, PartitionPosition(0, 90))
    assert (found.seconds, found.is_short) == (WEEK_S, False)


def test_a_message_whose_time_has_passed_is_not_lost_until_kafka_deletes_it() -> None:
    found = in_topic(TOPIC, PartitionPosition(5, 0, NOW - 40 * DAY_S))
    assert (found.kind, found.seconds, found.is_short) == (Left.LIMITED, 0.0, True)
    assert found.amount == "any moment now"


def test_a_message_that_was_not_read_leaves_the_time_unknown_unless_another_is_short() -> None:
    assert in_topic(TOPIC, PartitionPosition(5, 0)).kind is Left.UNKNOWN
    assert in_topic(TOPIC, PartitionPosition(5, 0), PartitionPosition(1, 0, NOW)).kind is Left.UNKNOWN
    assert in_topic(TOPIC, PartitionPosition(5, 0), PartitionPosition(1, 0, NOW - 6.5 * DAY_S)).seconds == DAY_S / 2


@pytest.mark.parametrize(
    ("settings", "bound"),
    [
        (replace(TOPIC, deletes=False), Bound.COMPACTED),
        (replace(TOPIC, kept_s=None), Bound.TOPIC_KEEPS_ALL),
    ],
)
def test_a_topic_that_deletes_nothing_never_loses_a_position(settings: TopicSettings, bound: Bound) -> None:
    found = in_topic(settings, PartitionPosition(5, 0, 0.0, 100.0))
    assert (found.kind, found.bound.kind, found.is_short) == (Left.NEVER, bound, False)


def test_the_size_of_a_partition_bounds_by_the_growth() -> None:
    sized = replace(TOPIC, kept_s=None, kept=100_000)
    found = in_topic(sized, PartitionPosition(600, 0, NOW, per_s=10.0))
    assert (found.bound.kind, found.seconds, found.full_s) == (Bound.TOPIC_SIZE, 40.0, 100.0)
    assert found.amount == "about 40s"
    # Compressed messages take less space than was assumed: nothing has been deleted yet.
    packed = in_topic(sized, PartitionPosition(1_200, 300, NOW, per_s=10.0))
    assert packed.seconds == 30.0
    unknown = in_topic(sized, PartitionPosition(600, 0, NOW))
    assert (unknown.kind, unknown.bound.kind) == (Left.UNKNOWN, Bound.GROWTH_UNKNOWN)
    assert in_topic(sized, PartitionPosition(600, 0, NOW), message=None).kind is Left.UNKNOWN
    assert in_topic(sized, PartitionPosition(600, 0, NOW, per_s=0.0)).bound.kind is Bound.NO_GROWTH


def test_the_age_is_no_bound_while_that_by_size_is_unknown_unless_nothing_grows() -> None:
    both = replace(TOPIC, kept=100_000)
    assert in_topic(both, PartitionPosition(600, 0, NOW)).bound.kind is Bound.GROWTH_UNKNOWN
    assert in_topic(both, PartitionPosition(600, 0, NOW, per_s=0.0)).seconds == WEEK_S
    assert in_topic(both, PartitionPosition(600, 0, NOW - WEEK_S)).seconds == 0


def in_log(**given: float | None) -> TimeLeft:
    values: dict[str, float | None] = {"next_at": None, "replaced_at": None, "log_kept_s": 30 * DAY_S}
    return time_left_in_log("orders", **{**values, "files_kept_s": WEEK_S, "now": NOW, **given})  # type: ignore[arg-type]  # Times.


def test_a_position_in_a_delta_log_lasts_as_long_as_commits_and_replaced_files_do() -> None:
    assert in_log().seconds == 30 * DAY_S
    by_commit = in_log(next_at=NOW - 29 * DAY_S)
    assert (by_commit.bound.kind, by_commit.seconds) == (Bound.COMMIT_AGE, DAY_S)
    by_files = in_log(next_at=NOW - 6 * DAY_S, replaced_at=NOW - 6.5 * DAY_S)
    assert (by_files.bound.kind, by_files.seconds, by_files.is_short) == (Bound.REPLACED_FILES, DAY_S / 2, True)
    assert by_files.bound.remedy == (
        "raise it in TBLPROPERTIES of orders: 'delta.deletedFileRetentionDuration' = 'interval 14 days'"
    )
    assert in_log(log_kept_s=float("inf")).kind is Left.NEVER
    assert in_log(log_kept_s=None).bound.kind is Bound.RETENTION_UNREADABLE
    assert in_log(files_kept_s=None).kind is Left.LIMITED
    assert in_log(files_kept_s=None, replaced_at=NOW).kind is Left.UNKNOWN


def test_a_slot_lasts_until_the_log_has_grown_to_its_limit() -> None:
    found = time_left_in_slot(SLOT, 1 << 20)
    assert (found.kind, found.seconds, found.full_s, found.is_short) == (Left.LIMITED, 62.0, 64.0, False)
    assert (found.held_bytes, found.held_by) == (2 << 20, "")
    assert time_left_in_slot(replace(SLOT, free=20 << 20), 1 << 20).is_short
    unreserved = time_left_in_slot(replace(SLOT, free=-5), None)
    assert (unreserved.kind, unreserved.seconds, unreserved.is_short) == (Left.LIMITED, 0.0, True)
    assert time_left_in_slot(SLOT, None).bound.kind is Bound.GROWTH_UNKNOWN
    assert time_left_in_slot(SLOT, 0.0).bound.kind is Bound.NO_GROWTH
    boundless = time_left_in_slot(replace(SLOT, kept=None, free=None), 1e9)
    assert (boundless.kind, boundless.held_bytes) == (Left.NEVER, 2 << 20)


def test_an_idle_slot_lasts_for_the_timeout_by_the_time_of_the_database() -> None:
    idle = replace(SLOT, kept=None, free=None, idle_limit_s=3600.0, idle_since=NOW - 3000)
    found = time_left_in_slot(idle, None)
    assert (found.bound.kind, found.seconds, found.is_short) == (Bound.SLOT_IDLE, 600.0, True)
    assert time_left_in_slot(replace(idle, idle_since=None), None).kind is Left.NEVER


def test_files_of_our_tables_are_never_lost_and_those_of_others_may_be() -> None:
    assert time_left_in_files("orders", external=False).kind is Left.NEVER
    assert time_left_in_files("landed", external=True).kind is Left.UNKNOWN


def test_the_most_urgent_time_is_the_shortest() -> None:
    never, unknown = time_left_in_files("a", external=False), time_left_in_files("b", external=True)
    day, hour = in_log(next_at=NOW - 29 * DAY_S), in_log(next_at=NOW - 30 * DAY_S + 3600)
    gone = lost(Bound.SOURCE_GONE, table="c")
    assert shortest([None, never, day, hour, unknown, gone]) is gone
    assert shortest([never, day, hour, unknown]) is hour
    assert shortest([never, unknown, None]) is unknown
    assert shortest([None]) is None


@pytest.mark.parametrize(
    ("seconds", "full_s", "short"),
    [
        (DAY_S - 1, WEEK_S, True),
        (DAY_S, WEEK_S, False),
        (3600.0, 2 * 3600.0, False),
        (3599.0, 2 * 3600.0, True),
        (3599.0, None, True),
        (None, None, False),
    ],
)
def test_less_than_a_day_is_short_unless_half_of_the_retention_is_shorter(
    seconds: float | None, full_s: float | None, short: bool
) -> None:
    bound = Bound.MESSAGE_AGE.of(topic="t", kept_s=1.0, set="", raised=1)
    assert TimeLeft(Left.LIMITED, bound, seconds, full_s).is_short is short


def test_growth_is_known_after_a_while_and_begins_again_if_a_counter_or_clock_goes_back() -> None:
    growth = Growth()
    assert [growth.add(at, value) for at, value in ((0, 100), (5, 150), (10, 200), (100, 1_100))] == [
        None,
        None,
        10,
        10,
    ]
    assert growth.add(110, 50) is None
    assert growth.add(120, 150) == 10
    assert growth.add(60, 150) is None
    assert growth.add(80, 150) == 0


def test_growth_forgets_what_is_older_than_an_hour() -> None:
    growth = Growth()
    growth.add(0, 0)
    for minute in range(1, 200):
        found = growth.add(60.0 * minute, 60 * minute if minute < 100 else 6_000)
    assert found == 0


FACTS = [
    in_topic(TOPIC, PartitionPosition(5, 0, NOW)),
    replace(time_left_in_slot(SLOT, None), held_by="orders", held_version=1, at=NOW),
    time_left_in_files("landed", external=True),
    lost(Bound.MESSAGES_GONE, messages=4, topics=("orders", "bills")),
]


@pytest.mark.parametrize("left", FACTS, ids=lambda left: str(left.kind))
def test_a_time_left_is_restored_from_its_text_with_its_words(left: TimeLeft) -> None:
    found = time_left_of(left.as_text())
    assert found is not None and (found.words, found.bound.remedy) == (left.words, left.bound.remedy)
    assert found.as_json() == left.as_json() == json.loads(left.as_text())


@pytest.mark.parametrize("value", ["", "{", "[]", "7", "null", '{"kind": "later"}', '{"kind": "lost", "bound": {}}'])
def test_a_text_of_another_version_is_no_time_left(value: str) -> None:
    assert time_left_of(value) is None
    assert time_left_from_json(value) is None


def test_a_value_that_lacks_a_part_of_its_sentence_is_no_time_left() -> None:
    whole = FACTS[0].as_json()
    assert time_left_from_json(whole) is not None
    for name in whole["bound"]:
        if name != "sentence":
            less = {key: part for key, part in whole["bound"].items() if key != name}
            assert time_left_from_json({**whole, "bound": less}) is None
    assert time_left_from_json({**whole, "seconds": "soon"}) is None


times = st.floats(0, 1e7)


@given(st.lists(st.tuples(st.integers(0, 9), times), min_size=1), st.floats(-1e9, 1e9), st.floats(1, 1e9))
def test_no_clock_makes_a_position_lost(partitions: list[tuple[int, float]], jump_s: float, kept_s: float) -> None:
    positions = [PartitionPosition(n, 0, NOW - age_s if n else None, 1.0) for n, age_s in partitions]
    settings = replace(TOPIC, kept_s=kept_s)
    found = time_left_in_topic(settings, positions, message=None, now=NOW + jump_s)
    assert found.kind is Left.LIMITED and found.seconds is not None and found.seconds >= 0
    later = replace(found, at=NOW).as_of(NOW + jump_s)
    assert later.kind is Left.LIMITED and later.seconds is not None and 0 <= later.seconds <= found.seconds


@given(times, times, times)
def test_later_messages_and_longer_retentions_never_shorten_the_time(
    age_s: float, less_s: float, kept_s: float
) -> None:
    def left(age_s: float, kept_s: float) -> float:
        found = in_topic(replace(TOPIC, kept_s=kept_s), PartitionPosition(1, 0, NOW - age_s))
        assert found.seconds is not None
        return found.seconds

    assert left(max(0.0, age_s - less_s), kept_s) >= left(age_s, kept_s)
    assert left(age_s, kept_s + less_s) >= left(age_s, kept_s)


@given(st.integers(0, 1 << 40), st.integers(0, 1 << 40), st.floats(1, 1e9))
def test_a_slot_with_more_room_lasts_longer(free: int, more: int, per_s: float) -> None:
    less, roomy = (time_left_in_slot(replace(SLOT, free=each), per_s).seconds for each in (free, free + more))
    assert less is not None and roomy is not None and less <= roomy


def test_the_time_left_of_a_slot_without_a_limit_mentions_the_disk_and_the_setting() -> None:
    slot = SlotState("s", begins=0, end=21_000, now=NOW)
    found = str(time_left_in_slot(slot, None).words)
    assert found == (
        "never lost: the database keeps all of its log for the slot s, and its disk fills while the statement is "
        "stopped, unless max_slot_wal_keep_size is set"
    )
