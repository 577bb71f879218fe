"""Deadlines and the circuit breaker, without a pool."""

import threading
import time

import pytest

from core.model.errors import EngineRefused, PoolUnreachable
from pipelines.spark_connect.call_deadlines import (
    CircuitBreaker,
    CircuitState,
    MissedDeadline,
    call,
    is_given_up,
    lingering,
    remaining,
)


def test_a_call_gives_the_result_and_raises_what_was_raised() -> None:
    assert call(5, lambda a, b: a + b, 1, b=2) == 3
    with pytest.raises(EngineRefused, match="no such table"):
        call(5, _raise, EngineRefused("no such table"))


def test_a_call_that_lingers_knows_that_its_caller_has_given_up() -> None:
    over = threading.Event()

    def late() -> tuple[bool, bool]:
        with lingering(60):
            before = is_given_up()
            over.wait(30)
            return before, is_given_up()

    assert not is_given_up()
    with pytest.raises(MissedDeadline) as missed:
        call(0.2, late)
    over.set()
    assert missed.value.work is not None and missed.value.work.result(30) == (False, True)


def test_a_call_that_lingers_has_more_time_than_its_caller_who_can_wait_for_its_end() -> None:
    over = threading.Event()

    def late() -> float | None:
        with lingering(60):
            over.wait(30)
            return remaining()

    with pytest.raises(MissedDeadline) as missed:
        call(0.01, late)
    work = missed.value.work
    assert work is not None and not work.done()
    over.set()
    assert work.result(30) > 1


def test_a_call_that_never_returns_is_left_behind() -> None:
    never = threading.Event()
    with pytest.raises(MissedDeadline):
        call(0.05, never.wait)
    never.set()


def test_an_inner_call_has_no_more_time_than_the_outer() -> None:
    left = call(5, lambda: call(60, remaining))
    assert left is not None and left <= 5
    assert remaining() is None


def test_after_one_missed_deadline_others_are_refused_at_once_until_a_probe_passes() -> None:
    answers = threading.Event()
    probes = []

    def probe() -> None:
        probes.append(1)
        assert answers.wait(60)

    breaker = CircuitBreaker(probe, probe_s=60, every_s=0.01)
    with breaker.guard():
        assert call(5, lambda: "fine") == "fine"
    with pytest.raises(MissedDeadline), breaker.guard():
        call(0.05, threading.Event().wait)
    ran: list[int] = []
    for _ in range(20):
        with pytest.raises(PoolUnreachable, match="has not answered"), breaker.guard():
            ran.append(1)
    assert ran == [] and len(probes) <= 1
    answers.set()
    _until(lambda: breaker.state == CircuitState.CLOSED)
    with breaker.guard():
        assert call(5, lambda: "again") == "again"
    assert len(probes) == 1


def test_probes_that_miss_follow_each_other_one_at_a_time() -> None:
    flying: list[int] = []
    most: list[int] = []
    answers = threading.Event()

    def probe() -> None:
        flying.append(1)
        most.append(len(flying))
        passed = answers.wait(0.05)
        flying.pop()
        if not passed:
            raise MissedDeadline("still frozen")

    breaker = CircuitBreaker(probe, probe_s=5, every_s=0.01)
    with pytest.raises(MissedDeadline), breaker.guard():
        call(0.01, threading.Event().wait)
    _until(lambda: len(most) >= 3)
    answers.set()
    _until(lambda: breaker.state == CircuitState.CLOSED)
    assert max(most) == 1


def test_a_refusal_does_not_open_the_circuit() -> None:
    breaker = CircuitBreaker(lambda: None)
    with pytest.raises(EngineRefused), breaker.guard():
        call(5, _raise, EngineRefused("no"))
    assert breaker.state == CircuitState.CLOSED


def _raise(error: Exception) -> None:
    raise error


def _until(condition: object, seconds: float = 60) -> None:
    assert callable(condition)
    ends_at = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends_at, "the condition did not become true in time"
        time.sleep(0.005)
