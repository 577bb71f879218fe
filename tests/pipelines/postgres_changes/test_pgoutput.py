"""The decoder on bytes that PostgreSQL 18.6 wrote."""

from collections.abc import Sequence

import pytest

from pipelines.postgres_changes.pgoutput import (
    UNCHANGED,
    BeginMessage,
    ChangeDecoder,
    CommitMessage,
    LogicalMessage,
    RelationMessage,
    RowMessage,
    StreamedChange,
    TruncateMessage,
    UnchangedValue,
    decode,
    position_after,
)

BEGIN, COMMIT = "42000000000173f8c000030436bc9e64bd000002f6", "4300000000000173f8c0000000000173f8f000030436bc9e64bd"
TABLE_T = (
    "52000040007075626c69630074006400030169640000000017ffffffff006e616d650000000019ffffffff006269670000000019ffffffff"
)
TABLE_F = "52000040087075626c69630066006600020169640000000017ffffffff01760000000019ffffffff"
INSERT, UPDATED_KEY = (
    "49000040004e00037400000001317400000002c3a96e",
    "55000040004b00037400000001316e6e4e00037400000001327400000002c3a96e",
)
DELETE, UNCHANGED_LARGE = "44000040004b00037400000001326e6e", "55000040004e000374000000013374000000016f75"
INSERT_F, UPDATE_FULL = (
    "49000040084e0002740000000131740000000161",
    "55000040084f00027400000001317400000001614e0002740000000131740000000162",
)
DELETE_FULL, TRUNCATE = "44000040084f0002740000000131740000000162", "5400000002000000400000004008"
TYPE, MESSAGE = "59000040117075626c6963006d6f6f6400", "4d01000000000174413861707000000000026869"
BEGUN = BeginMessage(0x173F8C0, 1795742869374141, 758)
START, END = 0x173F8C0, 0x173F8F0


def changes(
    *messages: str, table: str = "public.t", prefix: str = "", key: Sequence[str] = ("id",)
) -> list[StreamedChange]:
    columns = ("id", "name", "big", "v")
    decoder = ChangeDecoder(START, END, table=table, prefix=prefix, columns=columns, key=tuple(key))
    return [change for n, each in enumerate(messages) for change in decoder.changes(n, bytes.fromhex(each))]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (BEGIN, BEGUN),
        (COMMIT, CommitMessage(0x173F8C0, 0x173F8F0)),
        (TABLE_T, RelationMessage(0x4000, "public.t", ("id", "name", "big"), (True, False, False))),
        (TABLE_F, RelationMessage(0x4008, "public.f", ("id", "v"), (True, True))),
        (INSERT, RowMessage("I", 0x4000, None, False, ("1", "é", None))),
        (UPDATED_KEY, RowMessage("U", 0x4000, ("1", None, None), False, ("2", "é", None))),
        (UNCHANGED_LARGE, RowMessage("U", 0x4000, None, False, ("3", "o", UNCHANGED))),
        (UPDATE_FULL, RowMessage("U", 0x4008, ("1", "a"), True, ("1", "b"))),
        (DELETE, RowMessage("D", 0x4000, ("2", None, None), False, None)),
        (TRUNCATE, TruncateMessage((0x4000, 0x4008))),
        (MESSAGE, LogicalMessage(True, 0x1744138, "app", b"hi")),
        (TYPE, None),
    ],
)
def test_each_kind_of_message_is_decoded(data: str, expected: object) -> None:
    assert decode(bytes.fromhex(data)) == expected


@pytest.mark.parametrize("data", [BEGIN, COMMIT, TABLE_T, INSERT, UPDATED_KEY, DELETE, TRUNCATE, MESSAGE])
def test_a_message_that_is_cut_off_is_an_error(data: str) -> None:
    whole = bytes.fromhex(data)
    for end in range(1, len(whole) - 8):
        with pytest.raises(ValueError):
            decode(whole[:end])


def test_an_unknown_kind_of_message_or_value_is_an_error() -> None:
    for data in (b"Z", bytes.fromhex(INSERT).replace(b"t\0\0\0\x011", b"b\0\0\0\x011")):
        with pytest.raises(ValueError, match="unknown kind"):
            decode(data)


def test_rows_have_the_values_and_the_position_of_their_commit() -> None:
    assert changes(BEGIN, TABLE_T, INSERT, COMMIT) == [
        StreamedChange("c", {"id": "1", "name": "é", "big": None}, 2, BEGUN)
    ]


def test_an_update_of_the_key_deletes_the_old_key() -> None:
    found = changes(BEGIN, TABLE_T, UPDATED_KEY, COMMIT)
    assert [(each.op, each.values["id"]) for each in found] == [("d", "1"), ("c", "2")]


def test_a_complete_old_row_is_no_change_of_the_key() -> None:
    found = changes(BEGIN, TABLE_F, INSERT_F, UPDATE_FULL, DELETE_FULL, COMMIT, table="public.f")
    expected = [("c", "1", "a"), ("u", "1", "b"), ("d", "1", "b")]
    assert [(each.op, each.values["id"], each.values["v"]) for each in found] == expected
    found = changes(BEGIN, TABLE_F, UPDATE_FULL, COMMIT, table="public.f", key=("v",))
    assert [(each.op, each.values["v"]) for each in found] == [("d", "a"), ("c", "b")]


def test_a_value_that_is_not_in_the_log_is_an_error_unless_the_column_is_not_read() -> None:
    with pytest.raises(UnchangedValue) as raised:
        changes(BEGIN, TABLE_T, UNCHANGED_LARGE, COMMIT)
    assert raised.value.args == ("big", 2)
    decoder = ChangeDecoder(START, END, table="public.t", columns=("id",), key=("id",))
    found = [each for data in (BEGIN, TABLE_T, UNCHANGED_LARGE) for each in decoder.changes(0, bytes.fromhex(data))]
    assert [(each.op, each.values) for each in found] == [("u", {"id": "3"})]


def test_a_truncate_is_a_row_without_values() -> None:
    assert changes(BEGIN, TABLE_T, TABLE_F, TRUNCATE, COMMIT) == [StreamedChange("t", {}, 3, BEGUN)]


def test_only_transactions_that_commit_between_the_positions_count() -> None:
    def found(start: int, end: int) -> int:
        decoder = ChangeDecoder(start, end, table="public.t", columns=("id",), key=("id",))
        return sum(len(list(decoder.changes(0, bytes.fromhex(each)))) for each in (BEGIN, TABLE_T, INSERT, COMMIT))

    # A batch ends at the end of its last commit record, and the next batch begins there.
    assert [found(0, START), found(0, END), found(START, END), found(END, END + 100)] == [0, 1, 1, 0]


def test_messages_are_chosen_by_their_prefix() -> None:
    alone = MESSAGE.replace("4d010000000001744138", "4d0000000000" + "0173f8c0")
    found = changes(BEGIN, MESSAGE, COMMIT, alone, table="", prefix="app")
    assert [(each.content, each.begin.xid) for each in found] == [(b"hi", 758), (b"hi", 0)]
    assert changes(BEGIN, MESSAGE, COMMIT, table="", prefix="ap") == []
    assert changes(BEGIN, TABLE_T, INSERT, MESSAGE, COMMIT, table="", prefix="other") == []


def test_a_position_follows_a_commit_or_a_message_without_a_transaction() -> None:
    alone = bytes.fromhex(MESSAGE.replace("4d01", "4d00"))
    assert [position_after(data) for data in (bytes.fromhex(COMMIT), alone)] == [END, 0x1744139]
    for data in (BEGIN, MESSAGE):
        with pytest.raises(ValueError):
            position_after(bytes.fromhex(data))
