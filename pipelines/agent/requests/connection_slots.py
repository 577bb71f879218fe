"""How many callers may be connected: idle ones give way to new ones, and a stop always finds a slot."""

import socket
import threading
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass

MOST = 64
"""Connections in all."""

MOST_OF_A_USER = 32

RESERVED = 8
"""Slots beside those, for stops while all others are being answered."""


@dataclass(eq=False, slots=True)
class Slot:
    """One connection; without an answer under way it is idle, and the first to go."""

    connection: socket.socket
    uid: int
    for_stops: bool = False
    """Whether every other slot was being answered when it came: only a stop is answered."""
    answering: bool = False


class ConnectionSlots:
    """The open connections, those first that have been idle longest."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._slots: list[Slot] = []

    def enter(self, connection: socket.socket, uid: int) -> Slot | None:
        """Return a slot for a new connection, whose place an idle one may have lost; None where not even a stop fits.

        A user with too many loses his own; where there are too many in all, whoever has most loses one.
        """
        with self._lock:
            mine = [slot for slot in self._slots if slot.uid == uid]
            fits = len(mine) < MOST_OF_A_USER and len(self._slots) < MOST
            for_stops = not fits and not self._give_way(mine if len(mine) >= MOST_OF_A_USER else self._of_the_most())
            if for_stops and not self._reserve():
                return None
            slot = Slot(connection, uid, for_stops)
            self._slots.append(slot)
            return slot

    def answer(self, slot: Slot) -> None:
        """Keep a slot whose request is being answered."""
        with self._lock:
            slot.answering = True

    def answered(self, slot: Slot) -> None:
        """Count a slot as idle from now on."""
        with self._lock:
            slot.answering = False
            if slot in self._slots:
                self._slots.remove(slot)
                self._slots.append(slot)

    def leave(self, slot: Slot) -> None:
        """Free a slot; nothing where it has lost its place."""
        with self._lock, suppress(ValueError):
            self._slots.remove(slot)

    def _of_the_most(self) -> list[Slot]:
        (uid, _), *_ = Counter(slot.uid for slot in self._slots if not slot.answering).most_common(1) or [(-1, 0)]
        return [slot for slot in self._slots if slot.uid == uid]

    def _reserve(self) -> bool:
        """Return whether one of the reserved slots is free, or held by an idle connection, which loses it."""
        reserved = [slot for slot in self._slots if slot.for_stops]
        return len(reserved) < RESERVED or self._give_way(reserved)

    def _give_way(self, slots: list[Slot]) -> bool:
        """Close the connection that has been idle longest; returns whether there was one."""
        idle = next((slot for slot in slots if not slot.answering), None)
        if idle is None:
            return False
        self._slots.remove(idle)
        with suppress(OSError):
            # Its own thread, which waits for it, ends by this.
            idle.connection.shutdown(socket.SHUT_RDWR)
        return True
