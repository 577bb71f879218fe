"""The agent's Unix socket. Requests and answers are sent as frames, and the kernel identifies the caller."""

import grp
import logging
import os
import pwd
import select
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from core.ipc import framing
from core.model.errors import HeadgateError, Refused, TryAgain, UsageError, VersionMismatch, error_as_message

log = logging.getLogger(__name__)

T = TypeVar("T")

IDLE_S = 600.0
"""Seconds without a request before a connection is closed."""

HANDSHAKE_S = 5.0
"""Time limit, in seconds, for a new connection to send its greeting."""

FRAME_S = 30.0
"""Time limit, in seconds, for the rest of a request after its first byte, and for sending the answer."""

GREETING_LIMIT = 4096
"""Maximum size of a greeting, in bytes."""

LARGE = 1024 * 1024
LARGE_AT_ONCE = 2
"""Number of requests larger than `LARGE` bytes that may be read at the same time, to bound memory."""

ACCEPT_AGAIN_S = 0.1

WAITING = 1024
"""Number of connections that the kernel queues until they are accepted. It refuses all others."""

_PEER_GROUPS = 59
"""Linux socket option SO_PEERGROUPS (`asm-generic/socket.h`), which Python 3.11 does not define."""
_PEER_PIDFD = 77
"""Linux 6.5 socket option SO_PEERPIDFD, which Python 3.11 does not define."""
_MOST_BYTES = 1024

LAST_ANSWERS_S = 1.0
"""Longest time, in seconds, that `close` waits for answers in progress, such as the answer to `exit`."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The calling process, identified by `SO_PEERCRED` (unix(7)) and its login uid (proc(5), /proc/PID/loginuid).

    The login uid is read only for processes of root or of the agent's own user, such as those started by `sudo`. Any
    other process whose login uid is unset (container, service, cron) may set it (Linux: `audit_set_loginuid_perm`).
    Root and the agent's user could set it too, but they can write to the ledger anyway. The login uid is known only if
    the kernel provides a descriptor of the process (`SO_PEERPIDFD`, Linux 6.5). Without a descriptor, only the uid is
    used, because the process id may have been reused.
    """

    pid: int
    uid: int
    login_uid: int | None
    gids: tuple[int, ...] = ()
    """Groups of the calling process, including its primary group."""

    @property
    def person(self) -> int:
        """Return the login uid, which `sudo` does not change, or the uid if the login uid is unknown."""
        return self.uid if self.login_uid is None else self.login_uid

    def may_be(self, name: str, *uids: int | None) -> bool:
        """True if the caller has one of `uids`; if all of them are None, True if the caller has the name `name`."""
        known = set(uids) - {None}
        return bool(known & {self.uid, self.person}) if known else self.name == name

    @property
    def name(self) -> str:
        """Return the user name of `person`, or the uid as text if there is no such user."""
        try:
            return pwd.getpwuid(self.person).pw_name
        except KeyError:
            return str(self.person)

    @property
    def groups(self) -> frozenset[str]:
        """Return the names of the caller's groups, with ids in place of missing names. The lookup may be slow."""
        return frozenset(map(_group_name, self.gids))


MOST = 64
"""Maximum number of connections, not counting reserved slots."""

MOST_OF_A_USER = 32

RESERVED = 8
"""Number of additional slots for when all other slots are busy. They accept only stop requests."""


@dataclass(eq=False, slots=True)
class Slot:
    """A connection.

    A slot without a request in progress is idle, and may be closed to make room for another connection.
    """

    connection: socket.socket
    uid: int
    for_stops: bool = False
    """True for a reserved slot, whose connection may only send stop requests."""
    answering: bool = False


class ConnectionSlots:
    """The open connections, ordered by when they last became idle."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._slots: list[Slot] = []

    def enter(self, connection: socket.socket, uid: int) -> Slot | None:
        """Return a slot for a new connection, or None if no slot is free and none can be freed.

        If the user has too many connections, one of the user's idle connections is closed. If there are too many in
        total, an idle connection of the user with the most idle connections is closed. If no connection is idle, the
        new connection gets a reserved slot, which accepts only stop requests.
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
        """Mark a slot as busy."""
        with self._lock:
            slot.answering = True

    def answered(self, slot: Slot) -> None:
        """Mark a slot as idle, and restart its idle time."""
        with self._lock:
            slot.answering = False
            if slot in self._slots:
                self._slots.remove(slot)
                self._slots.append(slot)

    def leave(self, slot: Slot) -> None:
        """Free a slot, unless its connection has already been closed to make room for another."""
        with self._lock, suppress(ValueError):
            self._slots.remove(slot)

    def _of_the_most(self) -> list[Slot]:
        (uid, _), *_ = Counter(slot.uid for slot in self._slots if not slot.answering).most_common(1) or [(-1, 0)]
        return [slot for slot in self._slots if slot.uid == uid]

    def _reserve(self) -> bool:
        reserved = [slot for slot in self._slots if slot.for_stops]
        return len(reserved) < RESERVED or self._give_way(reserved)

    def _give_way(self, slots: list[Slot]) -> bool:
        idle = next((slot for slot in slots if not slot.answering), None)
        if idle is None:
            return False
        self._slots.remove(idle)
        with suppress(OSError):
            # This ends the thread that waits for it.
            idle.connection.shutdown(socket.SHUT_RDWR)
        return True


RequestHandler = Callable[[Caller, dict[str, Any]], dict[str, Any]]
"""Answers a request `{op, args, confirm, line}` of a caller. Returns the result or raises HeadgateError."""


class SocketServer:
    """Accepts connections, and serves each in its own thread, so that a slow answer never delays a stop request."""

    def __init__(self, path: str, hello: dict[str, Any], handle: RequestHandler) -> None:
        self._path = path
        self._hello = hello
        self._handle = handle
        self._socket: socket.socket | None = None
        self._slots = ConnectionSlots()
        self._large = threading.Semaphore(LARGE_AT_ONCE)
        self._answering = 0
        self._bound = 0
        self._answered = threading.Condition()

    def open(self) -> None:
        """Bind the socket, accessible to its owner and group, and start listening.

        Raises Refused if the socket's folder is a link or belongs to another user.
        """
        _own_folder(os.path.dirname(self._path))
        with suppress(FileNotFoundError):
            os.unlink(self._path)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(self._path)
        os.chmod(self._path, 0o660)
        listener.listen(WAITING)
        self._bound = os.stat(self._path).st_ino
        self._socket = listener
        threading.Thread(target=self._accept, name="socket", daemon=True).start()

    def close(self) -> None:
        """Stop listening, wait briefly for answers in progress, and remove the socket."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        with self._answered:
            self._answered.wait_for(lambda: self._answering == 0, LAST_ANSWERS_S)
        with suppress(FileNotFoundError):
            # If this agent's home was removed, another agent may have bound its own socket at the same path.
            if os.stat(self._path).st_ino == self._bound:
                os.unlink(self._path)

    def _accept(self) -> None:
        while (listener := self._socket) is not None:
            try:
                connection, _ = listener.accept()
            except OSError as error:
                if self._socket is None:
                    return
                # There are too many open files, or the caller left at once. Keep accepting, because a stop must still
                # get through.
                log.warning("a connection was not accepted: %s", error)
                time.sleep(ACCEPT_AGAIN_S)
                continue
            slot = self._slots.enter(connection, _credentials(connection)[1])
            if slot is None:
                connection.close()
                continue
            threading.Thread(target=self._serve, args=(slot,), daemon=True).start()

    def _serve(self, slot: Slot) -> None:
        connection = slot.connection
        with connection:
            try:
                caller = _caller(connection)
                self._greet(connection)
                while True:
                    request = self._readable(connection, HANDSHAKE_S if slot.for_stops else IDLE_S)
                    self._slots.answer(slot)
                    with self._under_way():
                        refused = slot.for_stops and not _stops(request)
                        answer = _busy(request) if refused else self._answer(caller, request)
                        connection.settimeout(FRAME_S)
                        send_frame(connection, answer)
                    self._slots.answered(slot)
            except (EOFError, OSError, framing.BadFrame) as error:
                log.debug("connection ended: %s", error)
            finally:
                self._slots.leave(slot)

    def _readable(self, connection: socket.socket, idle_s: float) -> dict[str, Any]:
        try:
            return self._request(connection, idle_s)
        except framing.BadFrame as error:
            refusal = UsageError(f"the agent cannot read this request: {error}", remedy="use the headgate program")
            connection.settimeout(FRAME_S)
            send_frame(connection, {"id": 0, "ok": False, "error": refusal.as_json()})
            raise

    def _request(self, connection: socket.socket, idle_s: float) -> dict[str, Any]:
        first = _exactly(connection, 1, time.monotonic() + idle_s)
        ends_at = time.monotonic() + FRAME_S
        size = framing.frame_length(first + _exactly(connection, framing.FRAME_HEADER - 1, ends_at))
        if size <= LARGE:
            return framing.decode_frame(_exactly(connection, size, ends_at))
        if not self._large.acquire(timeout=FRAME_S):
            raise TimeoutError("other large requests are being read")
        try:
            return framing.decode_frame(_exactly(connection, size, time.monotonic() + FRAME_S))
        finally:
            self._large.release()

    @contextmanager
    def _under_way(self) -> Iterator[None]:
        with self._answered:
            self._answering += 1
        try:
            yield
        finally:
            with self._answered:
                self._answering -= 1
                self._answered.notify_all()

    def _greet(self, connection: socket.socket) -> None:
        # The caller uses the agent's version to decide which commands it may send.
        message = receive_frame(connection, HANDSHAKE_S, GREETING_LIMIT)
        if "hello" not in message:
            error = VersionMismatch("the first message was not a greeting", remedy="use the headgate program")
            send_frame(connection, {"id": 0, "ok": False, "error": error.as_json()})
            raise EOFError
        send_frame(connection, {"hello": self._hello})

    def _answer(self, caller: Caller, request: dict[str, Any]) -> dict[str, Any]:
        number = request.get("id", 0)
        try:
            return {"id": number, "ok": True, "result": self._handle(caller, request)}
        except HeadgateError as error:
            return {"id": number, "ok": False, "error": error_as_message(error)}
        except Exception:
            log.exception("the command %s failed inside the agent", request.get("op"))
            failed = HeadgateError("the agent failed to execute this command", remedy="see `headgate logs agent`")
            return {"id": number, "ok": False, "error": failed.as_json()}


def _own_folder(path: str) -> None:
    os.makedirs(path, mode=0o750, exist_ok=True)
    try:
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError as error:
        raise Refused(f"{path} is a link, or another user's: {error.strerror}", remedy=f"remove {path}") from error
    try:
        found = os.fstat(folder)
        if found.st_uid != os.getuid():
            raise Refused(f"{path} belongs to user {found.st_uid}", remedy=f"have that user, or root, remove {path}")
        os.fchmod(folder, found.st_mode & 0o7755)
    finally:
        os.close(folder)


def send_frame(connection: socket.socket, message: dict[str, Any]) -> None:
    connection.sendall(framing.encode_frame(message))


def receive_frame(
    connection: socket.socket, seconds: float = FRAME_S, limit: int = framing.FRAME_LIMIT
) -> dict[str, Any]:
    """Read one frame. Raises EOFError if the peer closes the connection, and TimeoutError after `seconds`."""
    ends_at = time.monotonic() + seconds
    size = framing.frame_length(_exactly(connection, framing.FRAME_HEADER, ends_at), limit)
    return framing.decode_frame(_exactly(connection, size, ends_at))


def _exactly(connection: socket.socket, count: int, ends_at: float) -> bytes:
    parts: list[bytes] = []
    while count:
        left = ends_at - time.monotonic()
        if left <= 0:
            raise TimeoutError
        connection.settimeout(left)
        part = connection.recv(min(count, 1 << 20))
        if not part:
            raise EOFError
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def _stops(request: dict[str, Any]) -> bool:
    """True if a request stops something. Such requests are answered even if all slots are busy."""
    args = request.get("args")
    act = args.get("act") if isinstance(args, dict) else None
    return request.get("op") == "stop" or (request.get("op") == "run" and act in ("pause", "cancel"))


def _busy(request: dict[str, Any]) -> dict[str, Any]:
    error = TryAgain("the agent is answering too many callers; it still takes stops", remedy="try again in a moment")
    return {"id": request.get("id", 0), "ok": False, "error": error.as_json()}


def _credentials(connection: socket.socket) -> tuple[int, int, int]:
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    pid, uid, gid = struct.unpack("3i", credentials)
    return pid, uid, gid


def _caller(connection: socket.socket) -> Caller:
    pid, uid, gid = _credentials(connection)
    login_uid = _while_it_lives(connection, pid, _login_uid) if uid in (0, os.getuid()) else None
    return Caller(pid=pid, uid=uid, login_uid=login_uid, gids=(gid, *_supplementary_groups(connection, pid)))


def _supplementary_groups(connection: socket.socket, pid: int) -> tuple[int, ...]:
    # Groups that do not fit into the 1024-byte buffer are read from /proc.
    try:
        found = connection.getsockopt(socket.SOL_SOCKET, _PEER_GROUPS, _MOST_BYTES)
        return struct.unpack(f"{len(found) // 4}I", found)
    except OSError:
        return _while_it_lives(connection, pid, _groups_of_process) or ()


def _while_it_lives(connection: socket.socket, pid: int, read: Callable[[int], T | None]) -> T | None:
    # The id of a process that has ended may be reused, so nothing is returned for it.
    try:
        process = connection.getsockopt(socket.SOL_SOCKET, _PEER_PIDFD)
    except OSError:
        return None
    try:
        found = read(pid)
        # The descriptor of a process that has ended becomes readable (pidfd_open(2)).
        ended = select.poll()
        ended.register(process, select.POLLIN)
        return None if ended.poll(0) else found
    finally:
        os.close(process)


def _groups_of_process(pid: int) -> tuple[int, ...] | None:
    try:
        with open(f"/proc/{pid}/status") as file:
            line = next(line for line in file if line.startswith("Groups:"))
    except (OSError, StopIteration):
        return None
    return tuple(map(int, line.split()[1:]))


def _group_name(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


def _login_uid(pid: int) -> int | None:
    try:
        with open(f"/proc/{pid}/loginuid") as file:
            uid = int(file.read())
    except (OSError, ValueError):
        return None
    # For processes without a login (daemons, containers) the kernel reports -1 as an unsigned number.
    return None if uid == 0xFFFFFFFF else uid
