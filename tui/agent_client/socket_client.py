"""The client's side of the agent's socket: one connection per call, with a deadline.

The agent does not trust the client: the kernel identifies the user, and the agent computes confirmations itself.
"""

import os
import socket
import stat
import struct
import time
from dataclasses import dataclass
from typing import Any

from core.ipc import framing
from core.ipc.framing import PROGRAM_VERSION
from core.model.errors import AgentUnreachable, HeadgateError, TryAgain, UsageError, VersionMismatch, error_from_json

CONNECT_S = 2.0
CONNECT_AGAIN_S = 0.02

DEADLINES_S = {
    "status": 3.0,
    "stop": 30.0,
    "start": 60.0,
    "restart": 90.0,
    "submit_plan": 60.0,
    "apply": 30.0,
    "run": 30.0,
    "stage": 10.0,
    "unstage": 10.0,
    "peek": 60.0,
    "opinion": 60.0,
    "exit": 90.0,
}
"""Deadline of each operation in seconds; 30 for unlisted operations.

If an operation takes longer, the ledger shows its outcome.
"""

WITH_AN_OLDER_AGENT = frozenset({"status", "stop", "exit"})
"""Operations that a newer program may send to an older agent, because their meaning has not changed."""


@dataclass(frozen=True, slots=True)
class AgentVersions:
    """The versions that an agent reports: of its program, its protocol and its ledger."""

    program: str
    protocol: int
    ledger: int


class AgentClient:
    """Sends commands to one environment's agent, one connection per command. Thread-safe."""

    def __init__(
        self, path: str, *, ledger: int, title: str = "", owner: int | None = None, up: str = "headgate up"
    ) -> None:
        """Prepare calls to the socket at `path`.

        `ledger` is the newest ledger version that this program understands. `owner` is the agent's user id, by default
        this user's, and `up` the command that starts the agent.
        """
        self._path = path
        self._owner = os.getuid() if owner is None else owner
        self._ledger = ledger
        self._title = title or path
        self._up = up

    def call(
        self, op: str, args: dict[str, Any] | None = None, *, confirm: str | None = None, line: str = ""
    ) -> dict[str, Any]:
        """Send a command to the agent and return its result. Raises the agent's error if it refuses the command.

        `confirm` is the typed confirmation, `line` the equivalent command line. Also raises AgentUnreachable if no
        agent answers or the agent exits, VersionMismatch if its version does not fit, and TryAgain after the deadline.
        """
        try:
            request = framing.encode_frame({"id": 1, "op": op, "args": args or {}, "confirm": confirm, "line": line})
        except framing.BadFrame as error:
            raise UsageError(f"{_op_words(op)}: {error}", remedy="name fewer tables at a time") from error
        patience_s = DEADLINES_S.get(op, 30.0)
        ends_at = time.monotonic() + patience_s
        with self._connect() as connection:
            try:
                self._greet(connection, op)
                connection.settimeout(_left(ends_at))
                connection.sendall(request)
                answer = _receive(connection, ends_at)
            except TimeoutError as error:
                raise TryAgain(
                    f"the agent of {self._title} did not answer within {patience_s:.0f} s ({_op_words(op)})",
                    remedy="the command may still complete: check headgate ls and headgate audit before trying again",
                ) from error
            except (EOFError, OSError) as error:
                raise AgentUnreachable(
                    f"the agent of {self._title} stopped before it had answered ({_op_words(op)})",
                    remedy=f"start it again: {self._up}; it continues from its ledger",
                ) from error
            except framing.BadFrame as error:
                raise VersionMismatch(
                    f"the agent of {self._title} uses a different protocol: {error}",
                    remedy="restart the agent with this program: headgate down --keep-pool, headgate up",
                ) from error
        if answer.get("ok"):
            result = answer.get("result")
            return result if isinstance(result, dict) else {}
        raise _refusal(answer)

    def hello(self) -> AgentVersions:
        """Return the agent's versions without sending a command. Raises AgentUnreachable if no agent answers."""
        with self._connect() as connection:
            try:
                return self._exchange(connection)
            except (EOFError, OSError, framing.BadFrame) as error:
                raise AgentUnreachable(
                    f"the process listening at {self._path} is not a Headgate agent",
                    remedy="headgate doctor shows details",
                ) from error

    def _connect(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(CONNECT_S)
        try:
            self._refuse_squatted(os.lstat(os.path.dirname(self._path)))
            self._reach(connection)
            self._refuse_stranger(connection)
        except TryAgain:
            connection.close()
            raise
        except PermissionError as error:
            connection.close()
            raise AgentUnreachable(
                f"you may not send commands to the agent of {self._title}",
                remedy="ask its owner to add you to the group of its socket; you can still read the ledger",
            ) from error
        except OSError as error:
            connection.close()
            raise AgentUnreachable(f"no agent is running for {self._title}", remedy=f"start it: {self._up}") from error
        return connection

    def _reach(self, connection: socket.socket) -> None:
        # The kernel rejects connections while too many are waiting.
        ends_at = time.monotonic() + CONNECT_S
        while True:
            try:
                connection.connect(self._path)
                return
            except BlockingIOError as error:
                if time.monotonic() > ends_at:
                    summary = f"too many callers connect to the agent of {self._title}"
                    raise TryAgain(summary, remedy="try again in a moment") from error
                time.sleep(CONNECT_AGAIN_S)

    def _refuse_squatted(self, folder: os.stat_result) -> None:
        # Any user can create the folder in /tmp.
        path = os.path.dirname(self._path)
        if not stat.S_ISDIR(folder.st_mode):
            raise AgentUnreachable(
                f"{path} is not a folder: another user may have put it there", remedy=f"remove {path}"
            )
        if folder.st_uid != self._owner:
            raise AgentUnreachable(
                f"{path} belongs to user {folder.st_uid}, the agent of {self._title} to user {self._owner}",
                remedy=f"have that user, or root, remove {path}",
            )

    def _refuse_stranger(self, connection: socket.socket) -> None:
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        _, uid, _ = struct.unpack("3i", credentials)
        if uid != self._owner:
            raise AgentUnreachable(
                f"user {uid} listens at {self._path}, the agent of {self._title} belongs to user {self._owner}",
                remedy="have that process ended, then headgate up",
            )

    def _greet(self, connection: socket.socket, op: str) -> None:
        theirs = self._exchange(connection)
        if theirs.ledger > self._ledger or theirs.protocol > framing.PROTOCOL:
            raise VersionMismatch(
                f"the agent is Headgate {theirs.program} (protocol {theirs.protocol}, ledger {theirs.ledger}), this "
                f"program is {PROGRAM_VERSION} (protocol {framing.PROTOCOL}, ledger {self._ledger})",
                remedy=f"use Headgate {theirs.program} or newer",
            )
        if theirs.protocol < framing.PROTOCOL and op not in WITH_AN_OLDER_AGENT:
            raise VersionMismatch(
                f"the agent is Headgate {theirs.program}, older than this program ({PROGRAM_VERSION}): "
                "only viewing and stopping are possible",
                remedy="restart the agent (statements keep running): headgate down --keep-pool, then headgate up",
            )

    def _exchange(self, connection: socket.socket) -> AgentVersions:
        ends_at = time.monotonic() + CONNECT_S
        ours = {"program": PROGRAM_VERSION, "protocol": framing.PROTOCOL, "ledger": self._ledger}
        _send(connection, {"hello": ours}, ends_at)
        answer = _receive(connection, ends_at)
        hello = answer.get("hello")
        if not isinstance(hello, dict):
            if answer.get("ok") is False:
                raise _refusal(answer)
            raise framing.BadFrame("the agent did not answer the greeting")
        return AgentVersions(
            program=str(hello.get("program", "?")),
            protocol=int(hello.get("protocol", 0)),
            ledger=int(hello.get("ledger", 0)),
        )


def _refusal(answer: dict[str, Any]) -> HeadgateError:
    error = answer.get("error")
    return error_from_json(
        error if isinstance(error, dict) else {"summary": "the agent refused without giving a reason"}
    )


def _send(connection: socket.socket, message: dict[str, Any], ends_at: float) -> None:
    connection.settimeout(_left(ends_at))
    connection.sendall(framing.encode_frame(message))


def _receive(connection: socket.socket, ends_at: float) -> dict[str, Any]:
    size = framing.frame_length(_exactly(connection, framing.FRAME_HEADER, ends_at))
    return framing.decode_frame(_exactly(connection, size, ends_at))


def _exactly(connection: socket.socket, count: int, ends_at: float) -> bytes:
    parts: list[bytes] = []
    while count:
        connection.settimeout(_left(ends_at))
        part = connection.recv(min(count, 1 << 20))
        if not part:
            raise EOFError
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def _left(ends_at: float) -> float:
    left = ends_at - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _op_words(op: str) -> str:
    from state.audit_log import op_words

    return op_words(op)
