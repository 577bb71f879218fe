"""Callers that hold connections, or send too much, do not keep others from being answered."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from agent_scenarios import wait_until

from core.ipc import framing
from pipelines.agent.requests import socket_server
from pipelines.agent.requests.socket_server import (
    MOST,
    MOST_OF_A_USER,
    RESERVED,
    ConnectionSlots,
    Slot,
    SocketServer,
    receive_frame,
    send_frame,
)

IDLE = 1000
ANA, BOB = 1, 2


@pytest.fixture
def at_work() -> threading.Event:
    """Set when answers to `peek` may end."""
    return threading.Event()


@pytest.fixture
def peeks() -> list[str]:
    """One entry for each answer to `peek` that has begun."""
    return []


@pytest.fixture
def path(tmp_path: Path, at_work: threading.Event, peeks: list[str]) -> Iterator[str]:
    def answer(caller: object, request: dict[str, Any]) -> dict[str, Any]:
        if request["op"] == "peek":
            peeks.append("peek")
            at_work.wait(60)
        return {"op": request["op"]}

    serving = SocketServer(str(tmp_path / "agent.sock"), {"protocol": framing.PROTOCOL}, answer)
    serving.open()
    yield str(tmp_path / "agent.sock")
    at_work.set()
    serving.close()


@pytest.fixture
def connect(path: str) -> Iterator[Callable[[], socket.socket]]:
    """Connect callers who have not sent a greeting yet."""
    with ExitStack() as open_ones:

        def connected() -> socket.socket:
            caller = open_ones.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            caller.settimeout(60)
            caller.connect(path)
            return caller

        yield connected


def ask(caller: socket.socket, op: str, **more: Any) -> None:
    send_frame(caller, {"hello": {}})
    receive_frame(caller)
    send_frame(caller, {"id": 1, "op": op, **more})


def asked(caller: socket.socket, op: str, **more: Any) -> dict[str, Any]:
    ask(caller, op, **more)
    return receive_frame(caller)


def closed(caller: socket.socket) -> bool:
    try:
        return caller.recv(1) == b""
    except ConnectionResetError:
        return True


def test_a_stop_succeeds_behind_a_thousand_idle_connections(connect: Callable[[], socket.socket]) -> None:
    before = threading.active_count()
    most = 0
    idle = []
    for n in range(IDLE // 2):
        idle.append(connect())
        if n % 2:
            send_frame(idle[-1], {"hello": {}})
        most = max(most, threading.active_count() - before)
    assert asked(connect(), "stop")["result"] == {"op": "stop"}
    for _ in range(IDLE // 2):
        # Each new connection takes the place of one closed here, so that the test needs few open files.
        idle.pop(0).close()
        idle.append(connect())
        most = max(most, threading.active_count() - before)
    assert asked(connect(), "stop")["result"] == {"op": "stop"}
    wait_until(lambda: threading.active_count() - before <= MOST_OF_A_USER + 1)
    assert most < IDLE // 2, "their threads end while others come"
    assert closed(idle[0]) and asked(connect(), "status")["ok"]


def test_a_stop_is_answered_while_every_slot_is_being_answered(
    connect: Callable[[], socket.socket], at_work: threading.Event, peeks: list[str]
) -> None:
    busy = [connect() for _ in range(MOST_OF_A_USER)]
    for caller in busy:
        ask(caller, "peek")
    wait_until(lambda: len(peeks) == MOST_OF_A_USER)
    refused = asked(connect(), "status")
    assert refused["error"]["class"] == "TryAgain" and "still takes stops" in refused["error"]["summary"]
    waiting = [connect() for _ in range(2 * RESERVED)]
    assert asked(connect(), "stop")["ok"]
    assert asked(connect(), "run", args={"act": "cancel"})["ok"]
    assert closed(waiting[0])
    at_work.set()
    assert [receive_frame(caller)["ok"] for caller in busy] == [True] * len(busy)
    assert asked(connect(), "status")["ok"]


def test_a_caller_who_does_not_greet_is_let_go(
    connect: Callable[[], socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket_server, "HANDSHAKE_S", 0.05)
    silent = connect()
    assert closed(silent)


@pytest.mark.parametrize(
    "greeting",
    [
        (framing.FRAME_LIMIT + 1).to_bytes(4, "big"),
        (socket_server.GREETING_LIMIT + 1).to_bytes(4, "big"),
        (4000).to_bytes(4, "big") + b"[" * 4000,
        (2).to_bytes(4, "big") + b"[]",
    ],
    ids=["too long for any frame", "too long for a greeting", "deep", "no object"],
)
def test_an_invalid_greeting_ends_only_its_own_connection(
    greeting: bytes, connect: Callable[[], socket.socket], caplog: pytest.LogCaptureFixture
) -> None:
    wrong = connect()
    wrong.sendall(greeting)
    assert closed(wrong)
    assert asked(connect(), "status")["ok"] and not caplog.records


def test_a_request_of_deep_json_ends_its_connection_alone(
    connect: Callable[[], socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[object] = []
    monkeypatch.setattr(threading, "excepthook", said.append)
    caller = connect()
    send_frame(caller, {"hello": {}})
    receive_frame(caller)
    caller.sendall((200_000).to_bytes(4, "big") + b'{"a":' * 40_000)
    assert "not valid JSON" in receive_frame(caller)["error"]["summary"]
    assert closed(caller) and not said


def test_large_requests_are_read_a_few_at_a_time(connect: Callable[[], socket.socket]) -> None:
    callers = [connect() for _ in range(6)]
    large = "x" * (socket_server.LARGE + 1)
    senders = [threading.Thread(target=ask, args=(caller, "status"), kwargs={"line": large}) for caller in callers]
    for sender in senders:
        sender.start()
    for sender, caller in zip(senders, callers, strict=True):
        sender.join(60)
        assert receive_frame(caller)["ok"]


@pytest.fixture
def slots() -> ConnectionSlots:
    return ConnectionSlots()


@pytest.fixture
def enter(slots: ConnectionSlots) -> Iterator[Callable[[int], Slot | None]]:
    with ExitStack() as open_ones:

        def entered(uid: int) -> Slot | None:
            ours, theirs = socket.socketpair()
            open_ones.enter_context(theirs)
            return slots.enter(open_ones.enter_context(ours), uid)

        yield entered


def has_place(slots: ConnectionSlots, slot: Slot | None) -> bool:
    return slot in slots._slots


def test_a_user_with_too_many_loses_his_own(slots: ConnectionSlots, enter: Callable[[int], Slot | None]) -> None:
    others = [enter(BOB) for _ in range(5)]
    mine = [enter(ANA) for _ in range(MOST_OF_A_USER + 3)]
    assert [has_place(slots, slot) for slot in mine[:4]] == [False, False, False, True]
    assert all(has_place(slots, slot) for slot in others)


def test_with_too_many_in_all_whoever_has_most_loses_one(
    slots: ConnectionSlots, enter: Callable[[int], Slot | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket_server, "MOST_OF_A_USER", MOST)
    few, many = [enter(BOB) for _ in range(4)], [enter(ANA) for _ in range(MOST - 4)]
    newest = enter(3)
    assert has_place(slots, newest) and newest is not None and not newest.for_stops
    assert not has_place(slots, many[0]) and all(has_place(slots, slot) for slot in few)


def test_a_connection_being_answered_keeps_its_slot_and_the_others_take_turns(
    slots: ConnectionSlots, enter: Callable[[int], Slot | None]
) -> None:
    mine = [enter(ANA) for _ in range(MOST_OF_A_USER)]
    first, second, third = mine[0], mine[1], mine[2]
    assert first and second and third
    slots.answer(first)
    slots.answer(second)
    slots.answered(second)
    enter(ANA)
    assert has_place(slots, first) and has_place(slots, second) and not has_place(slots, third)


def test_if_not_even_a_stop_fits_every_connection_is_refused(
    slots: ConnectionSlots, enter: Callable[[int], Slot | None]
) -> None:
    for n in range(MOST_OF_A_USER + RESERVED):
        slot = enter(ANA)
        assert slot is not None and slot.for_stops is (n >= MOST_OF_A_USER)
        slots.answer(slot)
    assert enter(ANA) is None
    other = enter(BOB)
    assert other is not None and not other.for_stops
