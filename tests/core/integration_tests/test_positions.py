"""Positions of statements: everything has been read only if two readings of all positions show that."""

from dataclasses import replace

import pytest

from core.integration_tests.positions import WATERMARK_S, Position, Positions, Unread, unread
from core.model.names import TableName as T

A = Position(T("a"), 1, 3, 3, pending=0, watermark_ms=5, next_watermark_ms=5, stateful=True)
B = replace(A, table=T("b"), batch=1, planned=1)


def both(a: Position = A, b: Position = B) -> Positions:
    return {a.table: a, b.table: b}


def test_everything_is_read_if_nothing_has_moved_between_two_readings() -> None:
    assert unread(both(), both(), idle_s=0.0) == ()


@pytest.mark.parametrize(
    ("before", "now", "kind"),
    [
        (A, replace(A, pending=2), Unread.PENDING),
        (A, replace(A, pending=2, messages=2), Unread.MESSAGES),
        (A, replace(A, pending=2, messages=1), Unread.BOTH),
        (A, replace(A, planned=4), Unread.OPEN),
        (replace(A, batch=2, planned=2), A, Unread.MOVED),
        (replace(A, pending=1), A, Unread.MOVED),
        (replace(A, version=2), A, Unread.MOVED),
        (replace(A, next_watermark_ms=9), replace(A, next_watermark_ms=9), Unread.WATERMARK),
        (replace(A, batch=None, planned=None), replace(A, batch=None, planned=0), Unread.OPEN),
    ],
)
def test_a_statement_that_reads_or_has_moved_is_named(before: Position, now: Position, kind: Unread) -> None:
    (fact,) = unread(both(before), both(now), idle_s=0.0)
    assert fact.kind is kind and dict(fact.values)["table"] == "a"


def test_a_first_reading_proves_nothing() -> None:
    assert [fact.kind for fact in unread({}, both(), idle_s=0.0)] == [Unread.MOVED, Unread.MOVED]


def test_a_statement_without_state_and_one_without_another_batch_do_not_wait_for_the_watermark() -> None:
    stateless, quiet = replace(A, next_watermark_ms=9, stateful=False), replace(A, next_watermark_ms=9)
    assert unread(both(stateless), both(stateless), idle_s=0.0) == ()
    assert unread(both(quiet), both(quiet), idle_s=WATERMARK_S) == ()


def test_a_statement_with_slow_batches_gets_more_time_to_begin_the_next_one() -> None:
    slow = replace(A, next_watermark_ms=9, batch_s=4.0)
    assert [fact.kind for fact in unread(both(slow), both(slow), idle_s=WATERMARK_S)] == [Unread.WATERMARK]
    assert unread(both(slow), both(slow), idle_s=12.0) == ()
